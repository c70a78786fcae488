//! One smell a test, and a policy without any.

use expect_test::{Expect, expect};

use crate::{NoFiles, Source, read};

#[test]
fn a_careful_policy_has_no_findings() {
    check(
        "
        allow: [docs.python.org, {host: api.github.com, methods: [POST], paths: [/repos/acme/widgets/issues]}]
        deny: [gist.github.com]
        ",
        expect![""],
    );
}

#[test]
fn a_rule_behind_a_deny_is_unreachable() {
    check(
        "allow: [a.example.com]\ndeny: ['*.example.com']",
        expect![
            "p:4: unreachable: net.allow[0]: never decides: `net.deny[0]` answers deny first; remove one of the two"
        ],
    );
}

#[test]
fn a_rule_that_a_wider_one_contains_is_shadowed() {
    check(
        "allow: [{host: a.example.com, paths: ['/x/**']}, {host: a.example.com, methods: [GET], paths: [/x/y]}]",
        expect![
            "p:4: shadowed: net.allow[1]: adds nothing to `net.allow[0]`, which matches all that it does; remove it, or make the other one narrower"
        ],
    );
}

#[test]
fn a_wildcard_where_anyone_can_rent_a_name_is_flagged() {
    check(
        "allow: ['*.github.io', '*.s3.amazonaws.com', '*.storage.test', '*.example.com']",
        expect![[r#"
            p:4: shared-suffix: net.allow[0]: anyone can get a name below `github.io`, an attacker too; name your own hosts one by one
            p:4: shared-suffix: net.allow[1]: anyone can get a name below `s3.amazonaws.com`, an attacker too; name your own hosts one by one
            p:4: shared-suffix: net.allow[2]: anyone can get a name below `storage.test`, an attacker too; name your own hosts one by one"#]],
    );
}

#[test]
fn a_write_to_a_bare_wildcard_is_flagged() {
    check(
        "allow: [{host: '*.example.com', methods: [PUT]}, {host: '*.example.org', methods: [PUT], paths: [/x]}]",
        expect![
            "p:4: wildcard-write: net.allow[0]: writes to any path of any host below `example.com` pass; name the hosts, or the paths, that take the writes"
        ],
    );
}

#[test]
fn a_tcp_rule_about_an_address_says_that_no_door_leads_there() {
    check(
        "allow: [{host: 93.184.216.34, port: 25, protocol: tcp}]",
        expect![[r#"
        p:4: tcp: net.allow[0]: bytes are relayed unseen: only who is contacted is judged and recorded; keep it only for protocols that are not HTTP
        p:4: no-door: net.allow[0]: no name leads to `93.184.216.34`, so only programs that use the proxy reach it; name the host, and give its address with `addresses` or a pin"#]],
    );
}

#[test]
fn passthrough_and_tcp_say_what_is_lost() {
    check(
        "allow: [{host: db.example.com, protocol: tcp, port: 5432}, pinned.example.net]\npassthrough: ['*.example.org', pinned.example.net]",
        expect![[r#"
            p:4: tcp: net.allow[0]: bytes are relayed unseen: only who is contacted is judged and recorded; keep it only for protocols that are not HTTP
            p:5: wildcard-passthrough: net.passthrough[0]: TLS to every name below `example.org` is not opened: names and bodies can carry data out unseen; name one host, or allow it without passthrough
            p:5: passthrough: net.passthrough[1]: TLS is not opened: methods, paths, bodies and secrets are neither judged nor recorded; keep it only for programs that pin their certificates
            p:5: unreachable: net.passthrough[1]: never applies: `net.allow[1]` opens TLS to the same host; remove one of the two"#]],
    );
}

#[test]
fn a_secret_that_nothing_carries_is_flagged() {
    let text = "version: 1
net: {enabled: true, allow: [api.example.com]}
secrets:
  USED_BY_NONE: {from: {env: X}, hosts: [api.example.com], header: x-key}
  NOWHERE: {from: {env: X}, hosts: ['*.elsewhere.example'], header: x-key}
";
    check_whole(
        text,
        expect![[r#"
        p: unused-secret: secret `NOWHERE` is bound to no host that a rule lets requests reach; add `secret: NOWHERE` to the rule for its host, or remove it
        p: wide-secret: secret `NOWHERE` may go to every name below `*.elsewhere.example`; name the hosts one by one
        p: unused-secret: secret `USED_BY_NONE` is declared, and no rule carries it; add `secret: USED_BY_NONE` to the rule for its host, or remove it"#]],
    );
}

#[test]
fn a_way_around_a_secret_is_flagged() {
    let text = |rules: &str| {
        format!(
            "version: 1
net: {{enabled: true, {rules}}}
secrets: {{KEY: {{from: {{env: X}}, hosts: ['*.h.example'], header: x-key}}}}
"
        )
    };
    check_whole(
        &text(
            "allow: [{host: a.h.example, methods: [POST], secret: KEY}, '*.h.example', b.example]",
        ),
        expect![[r#"
            p:2: not-in-force: net.allow[0]: secrets are not put into requests yet, so the gateway refuses it; what it names stays out of reach until that is built
            p:2: beside-secret: net.allow[1]: lets requests to `a.h.example` pass without `KEY`, which `net.allow[0]` sends there; if they must not, add to `net.deny`: {host: "a.h.example", unless: secret}
            p: wide-secret: secret `KEY` may go to every name below `*.h.example`; name the hosts one by one"#]],
    );
    check_whole(
        &text("allow: [{host: a.h.example, secret: KEY}, a.h.example], deny: ['*.h.example']"),
        expect![[r#"
            p:2: unreachable: net.allow[0]: never decides: `net.deny[0]` answers deny first; write `unless: secret` into `net.deny[0]` to spare what goes out with `KEY`, or remove one of the two
            p:2: not-in-force: net.allow[0]: secrets are not put into requests yet, so the gateway refuses it; what it names stays out of reach until that is built
            p:2: unreachable: net.allow[1]: never decides: `net.deny[0]` answers deny first; remove one of the two
            p: wide-secret: secret `KEY` may go to every name below `*.h.example`; name the hosts one by one"#]],
    );
    check_whole(
        &text(
            "allow: [{host: a.h.example, secret: KEY}, a.h.example], deny: [{host: a.h.example, unless: secret}]",
        ),
        expect![[r#"
            p:2: not-in-force: net.allow[0]: secrets are not put into requests yet, so the gateway refuses it; what it names stays out of reach until that is built
            p:2: unreachable: net.allow[1]: never decides: `net.deny[0]` answers deny first; remove one of the two
            p: wide-secret: secret `KEY` may go to every name below `*.h.example`; name the hosts one by one"#]],
    );
}

#[test]
fn a_way_around_a_secret_is_named_by_what_both_rules_reach() {
    let findings = |rules: &str| {
        let text = format!(
            "version: 1\nnet: {{enabled: true, {rules}}}\nsecrets: {{KEY: {{hosts: ['*.h.example'], header: x}}}}\n"
        );
        let policy = read(&Source::new("p", text), &NoFiles).unwrap();
        let found = policy.lint().into_iter().filter(|it| it.code == "beside-secret");
        found.map(|it| format!("{}: {}", it.message, it.instead)).collect::<Vec<_>>()
    };
    assert_eq!(
        findings("allow: [{host: '*.h.example', secret: KEY}, a.h.example, b.example]"),
        [
            "lets requests to `a.h.example` pass without `KEY`, which `net.allow[0]` sends there: if they must not, add to `net.deny`: {host: \"a.h.example\", unless: secret}"
        ]
    );
    // A person is asked about the one, and TLS is opened instead of the other.
    let ask = "allow: [a.h.example], ask: [{host: a.h.example, methods: [POST], secret: KEY}]";
    assert!(findings(ask).is_empty());
    let sealed = "allow: [{host: a.h.example, secret: KEY}], passthrough: [a.h.example]";
    assert!(findings(sealed).is_empty());
}

#[test]
fn only_an_allow_is_spared_for_its_secret() {
    let ask = "ask: [{host: a.example.com, secret: KEY}]";
    for deny in ["a.example.com", "{host: a.example.com, unless: secret}"] {
        assert_eq!(codes(&format!("{ask}\n  deny: [{deny}]")), ["unreachable"], "{deny}");
    }
}

#[test]
fn switches_that_surprise_are_flagged() {
    check_whole(
        "version: 1\nnet: {allow: [example.com]}\n",
        expect![
            "p: network-off: rules let requests pass, but the network is off; write `net: {enabled: true}`, or remove the rules"
        ],
    );
    check_whole(
        "version: 1\nnet: {enabled: true, mode: observe}\n",
        expect![
            "p: observing: requests that no rule names go out; use it to learn what a run needs, then write `mode: enforce`"
        ],
    );
}

#[test]
fn what_is_not_built_yet_is_flagged() {
    check_whole(
        "version: 1\nscan: {patterns: deny}\n",
        expect![
            "p: not-in-force: `scan` changes nothing yet: no gateway looks into bodies; do not rely on it; allow fewer hosts and methods"
        ],
    );
    check_whole("version: 1\n", expect![""]);
}

#[test]
fn a_package_rule_without_a_registry_is_flagged() {
    check(
        "allow: [{pip: [requests]}]",
        expect![
            "p:4: no-registry: net.allow[0]: the rule matches nothing; pip names no registry on this machine; write `registry: https://...` in the rule"
        ],
    );
}

#[test]
fn a_pattern_that_servers_read_otherwise_is_flagged() {
    check(
        "allow: [{host: a.example.com, paths: ['/@acme%2Fui', /v1/*, '/m;v=1/x']}, {host: b.example.com, paths: ['/@acme%2Fui', /@acme/ui]}]
         deny: [{host: a.example.com, paths: ['/x;y', '/@evil%2F*']}]",
        expect![[r#"
            p:5: path-readings: net.deny[0]: some servers take `/x;y` for `/x`, which the rule does not deny; deny both if they are the same to the server
            p:4: path-readings: net.allow[0]: some servers take `/@acme%2Fui` for `/@acme/ui`; the rule lets it pass all the same; keep it if the server means the same by both, or write the plainer one
            p:4: path-readings: net.allow[0]: some servers take `/m;v=1/x` for `/m/x`; the rule lets it pass all the same; keep it if the server means the same by both, or write the plainer one"#]],
    );
    // A package's two spellings are both there already.
    check("allow: [{npm: ['@acme/ui'], registry: 'https://npm.example/'}]", expect![""]);
}

#[test]
fn a_rule_is_shadowed_only_by_one_that_matches_all_that_it_does() {
    // Each differs from the first in one condition that the first does not meet.
    for second in [
        "{host: a.example.com, methods: [GET, PUT]}",
        "{host: a.example.com, port: 8443}",
        "{host: a.example.com, protocol: http}",
        "{host: a.example.com, websocket: true}",
        "{host: a.example.com, addresses: [10.0.0.0/8]}",
        "{host: b.example.com}",
    ] {
        assert_eq!(codes(&format!("allow: [a.example.com, {second}]")), [""; 0], "{second}");
    }
    let with_secret = "allow: [a.example.com, {host: a.example.com, secret: KEY}]";
    assert_eq!(codes(with_secret), ["beside-secret", "not-in-force"]);
    for first in [
        "{host: a.example.com, query: {k: v}}",
        "{host: a.example.com, headers: {x-a: b}}",
        "{host: a.example.com, paths: [/x]}",
    ] {
        assert_eq!(codes(&format!("allow: [{first}, a.example.com]")), [""; 0], "{first}");
    }
    for second in [
        "a.example.com",
        "{host: a.example.com, methods: [GET]}",
        "{host: a.example.com, paths: [/x]}",
        "{host: a.example.com, query: {k: v}}",
    ] {
        assert_eq!(codes(&format!("allow: [a.example.com, {second}]")), ["shadowed"], "{second}");
    }
}

#[test]
fn a_deny_without_conditions_hides_every_allow_and_a_sparing_one_those_without_a_secret() {
    let allow = "allow: [{host: a.example.com, websocket: true}]";
    assert_eq!(codes(&format!("{allow}\n  deny: [a.example.com]")), ["unreachable"]);
    let sparing = "deny: [{host: a.example.com, unless: secret}]";
    assert_eq!(codes(&format!("{allow}\n  {sparing}")), ["unreachable"]);
    let bound = "allow: [{host: a.example.com, secret: KEY}]";
    assert_eq!(codes(&format!("{bound}\n  {sparing}")), ["not-in-force"]);
    assert_eq!(
        codes(&format!("{allow}\n  deny: [{{host: a.example.com, websocket: false}}]")),
        [""; 0]
    );
    // An allow does not hide a deny.
    assert_eq!(codes("allow: ['*.example.com']\n  deny: [a.example.com]"), [""; 0]);
}

#[test]
fn a_push_to_some_refs_does_not_cover_the_same_request_with_any_body() {
    let request = "{host: git.example, methods: [POST], paths: [/a/b/git-receive-pack]}";
    let push = |more: &str| format!("{{git: git.example/a/b, access: push{more}}}");
    assert_eq!(codes(&format!("allow: [{}, {request}]", push(""))), ["shadowed"]);
    let to_some = push(", refs: [refs/heads/x]");
    assert_eq!(codes(&format!("allow: [{to_some}, {request}]")), ["not-in-force"]);
}

#[test]
fn a_name_below_a_provider_or_a_store_is_rented_out() {
    for (suffix, rented) in [
        ("amazonaws.com", true),
        ("eu-west-1.amazonaws.com", true),
        ("notamazonaws.com", false),
        ("s3-eu-west-1.example.com", true),
        ("files.example.com", true),
        ("my-files.example.com", false),
    ] {
        let found = codes(&format!("allow: ['*.{suffix}']"));
        assert_eq!(found.contains(&"shared-suffix"), rented, "{suffix}");
    }
}

#[test]
fn a_secret_is_reachable_where_a_rule_is_wider_or_narrower_than_its_hosts() {
    for (rule, host, reachable) in [
        ("api.example.com", "'*.example.com'", true),
        ("'*.example.com'", "api.example.com", true),
        ("api.example.com", "api.example.org", false),
    ] {
        let text = format!(
            "version: 1\nnet: {{enabled: true, allow: [{rule}]}}\nsecrets: {{KEY: {{from: {{env: X}}, hosts: [{host}], header: x}}}}\n"
        );
        let policy = read(&Source::new("p", text), &NoFiles).unwrap();
        let unused =
            policy.lint().into_iter().find(|finding| finding.code == "unused-secret").unwrap();
        assert_eq!(unused.message.contains("no rule carries it"), reachable, "{rule} {host}");
    }
}

/// The findings about rules.
fn codes(net: &str) -> Vec<&'static str> {
    let text = format!(
        "version: 1\nnet:\n  enabled: true\n  {net}\nsecrets: {{KEY: {{from: {{env: X}}, hosts: [a.example.com], header: x}}}}\n"
    );
    let policy = read(&Source::new("p", text), &NoFiles).unwrap_or_else(|err| panic!("{err}"));
    policy
        .lint()
        .iter()
        .filter(|finding| finding.rule.is_some())
        .map(|finding| finding.code)
        .collect()
}

/// `net`'s lists alone, the usual case.
#[track_caller]
fn check(net: &str, expected: Expect) {
    let net: String = net.lines().map(|line| format!("  {}\n", line.trim())).collect();
    check_whole(&format!("version: 1\nnet:\n  enabled: true\n{net}"), expected);
}

#[track_caller]
fn check_whole(text: &str, expected: Expect) {
    let policy = read(&Source::new("p", text), &NoFiles).unwrap_or_else(|err| panic!("{err}"));
    let findings: Vec<String> = policy.lint().iter().map(ToString::to_string).collect();
    expected.assert_eq(&findings.join("\n"));
}
