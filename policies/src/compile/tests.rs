//! Mistakes that take two fields to make, each told once and by itself.

use expect_test::{Expect, expect};

use crate::document::MountMode;
use crate::policy::Carried;
use crate::read::tests::Files;
use crate::{HeaderName, HostPattern, NoFiles, Source, Sources, read};

#[test]
fn no_rule_can_name_an_address_that_names_are_answered_with() {
    check(
        "version: 1
net:
  allow:
    - {host: 198.18.0.1}
    - {host: 198.19.0.1, port: 5432, protocol: tcp, addresses: [0.0.0.0/0]}
    - {host: h.example, addresses: [198.19.0.0/16]}
",
        &NoFiles,
        expect![[r#"
            p: net.allow[0]: `198.18.0.1` is a benchmark address; no rule can reach it
            p: net.allow[1]: `198.19.0.1` is a benchmark address; no rule can reach it
            p: net.allow[2].addresses[0]: `198.19.0.0/16` is not a range of addresses: benchmark addresses are never dialled, so it would have no effect; leave it out"#]],
    );
}

#[test]
fn a_secret_that_could_not_be_read_is_not_said_to_be_missing() {
    // Its own section is wrong.
    check(
        "version: 1
net: {allow: [{host: h.example, secret: KEY}]}
secrets: {KEY: {from: {inline: x}, hosts: [h.example], header: x}}
",
        &NoFiles,
        expect!["p: secrets.KEY.from: `inline` is not one of `env`, `file`"],
    );
    // The file that may hold it is not there.
    check(
        "version: 1\nextends: [./team.yaml]\nnet: {allow: [{host: h.example, secret: KEY}]}\n",
        &Files(Vec::new()),
        expect!["p: extends: there is no file `./team.yaml`"],
    );
    // The file that may hold it is wrong, wherever that is.
    check(
        "version: 1\nextends: [./team.yaml]\nnet: {allow: [{host: h.example, secret: KEY}]}\n",
        &Files(vec![("./team.yaml", "version: 1\nproc: {pids: 0}\n".to_owned())]),
        expect!["./team.yaml: proc.pids: must be at least 1; leave it out for the default"],
    );
    // Something else of ours is wrong: the secret is missing all the same.
    check(
        "version: 1\nproc: {pids: 0}\nnet: {allow: [{host: h.example, secret: KEY}]}\n",
        &NoFiles,
        expect![[r#"
            p: proc.pids: must be at least 1; leave it out for the default
            p: net.allow[0]: no secret is named `KEY`; declare it under `secrets:`"#]],
    );
}

#[test]
fn a_secret_of_an_extended_file_is_known() {
    let team =
        "version: 1\nsecrets: {KEY: {from: {env: KEY}, hosts: [h.example], header: x-key}}\n";
    let files = Files(vec![("./team.yaml", team.to_owned())]);
    let text =
        "version: 1\nextends: [./team.yaml]\nnet: {allow: [{host: h.example, secret: KEY}]}\n";
    let policy = read(&Source::new("p", text), &files).unwrap_or_else(|err| panic!("{err}"));
    assert_eq!(policy.secrets.len(), 1);
}

#[test]
fn what_a_header_could_not_carry_is_refused_in_a_secret() {
    for (how, message) in [
        ("basic: 'a:b'", "a user name for `basic` cannot contain `:`"),
        ("basic: \"a\\tb\"", "a user name for `basic` cannot contain `:`"),
        ("header: x, format: \"{secret}\\u0007\"", "`format` must be plain ASCII text"),
        ("header: x, format: '{secret} ä'", "`format` must be plain ASCII text"),
        (
            "basic: user, format: '{secret}'",
            "`format` goes with `header`; `basic` has a fixed form",
        ),
        (
            "header: x, format: '{secret}{secret}'",
            "`format: {secret}{secret}` must contain `{secret}` once, as in `Bearer {secret}`",
        ),
    ] {
        let text = format!(
            "version: 1\nsecrets: {{KEY: {{from: {{env: KEY}}, hosts: [h.example], {how}}}}}\n"
        );
        assert_eq!(problems(&text, &NoFiles), [format!("p: secrets.KEY: {message}")], "{how}");
    }
}

#[test]
fn a_secret_is_carried_as_it_says() {
    let text = "version: 1
secrets:
  A: {from: {env: A}, hosts: [h.example], basic: x-access-token}
  B: {from: {env: B}, hosts: [h.example], header: X-Key, format: 'Bearer {secret}!'}
";
    let policy = read(&Source::new("p", text), &NoFiles).unwrap_or_else(|err| panic!("{err}"));
    let carried: Vec<_> = policy.secrets.values().map(|secret| &secret.carried).collect();
    let basic = Carried::Basic { user: "x-access-token".to_owned() };
    let name = HeaderName::parse("x-key").unwrap();
    let header = Carried::Header { name, before: "Bearer ".to_owned(), after: "!".to_owned() };
    assert_eq!(carried, [&basic, &header]);
}

#[test]
fn a_mount_is_kept_with_the_file_that_asks_for_it() {
    let text = "version: 1\nfs: {mounts: [{source: ../deps, target: /deps/, mode: ro}]}\n";
    let policy = read(&Source::new("p", text), &NoFiles).unwrap_or_else(|err| panic!("{err}"));
    let [mount] = policy.fs.mounts.as_slice() else { panic!("{:?}", policy.fs.mounts) };
    assert_eq!((mount.source.as_str(), mount.target.as_str()), ("../deps", "/deps"));
    assert_eq!((&*mount.declared_in, mount.mode), ("p", MountMode::Ro));
}

/// Each by itself, so that no field hides behind another.
#[test]
fn every_field_of_http_is_refused_where_it_means_nothing() {
    let about_host = "`port`, `protocol`, `methods`, `paths`, `query`, `headers` and `websocket` go with `host`; `git`, `pip` and `npm` set them";
    let tcp = "`protocol: tcp` relays bytes unseen: `methods`, `paths`, `query`, `headers` and `websocket` cannot be judged";
    let passthrough = "`passthrough` entries have `host`, `port`, `addresses`, `name` and `reason` alone: nothing inside is seen";
    for field in
        ["methods: [GET]", "paths: [/x]", "query: {a: b}", "headers: {x-a: b}", "websocket: true"]
    {
        refused("allow", &format!("git: g.example/a/b, {field}"), about_host);
        refused("allow", &format!("host: h.example, protocol: tcp, port: 1, {field}"), tcp);
        refused("passthrough", &format!("host: h.example, {field}"), passthrough);
    }
    for field in ["port: 8443", "protocol: http"] {
        refused("allow", &format!("git: g.example/a/b, {field}"), about_host);
    }
    refused("passthrough", "host: h.example, protocol: https", passthrough);
    refused("passthrough", "git: g.example/a/b", passthrough);
}

#[test]
fn a_field_is_refused_beside_what_it_does_not_go_with() {
    for (list, rule, message) in [
        ("allow", "host: h.example, protocol: tcp", "`protocol: tcp` needs a `port`"),
        (
            "allow",
            "host: '*.h.example', protocol: tcp, port: 1",
            "`protocol: tcp` needs one host, not a wildcard",
        ),
        (
            "allow",
            "host: h.example, methods: []",
            "`methods: []` matches nothing; leave it out for GET, HEAD and OPTIONS",
        ),
        (
            "allow",
            "host: h.example, paths: []",
            "`paths: []` matches nothing; leave it out for every path",
        ),
        (
            "allow",
            "host: h.example, websocket: true, methods: [GET]",
            "`websocket: true` implies its method; leave `methods` out",
        ),
        ("allow", "host: h.example, access: push", "`access` goes with `git`"),
        (
            "allow",
            "git: g.example/a/b, refs: [refs/heads/x]",
            "`refs` goes with `git` and `access: push`",
        ),
        (
            "allow",
            "git: g.example/a/b, access: fetch, refs: [refs/heads/x]",
            "`refs` goes with `git` and `access: push`",
        ),
        (
            "allow",
            "git: g.example/a/b, access: push, refs: []",
            "`refs: []` lets nothing be pushed; leave it out for every ref",
        ),
        (
            "deny",
            "git: g.example/a/b, access: push, refs: [refs/heads/x]",
            "`refs` cannot be denied; allow the others instead",
        ),
        (
            "allow",
            "host: h.example, registry: 'https://r.example/'",
            "`registry` goes with `pip` or `npm`",
        ),
        (
            "allow",
            "npm: [x], registry: 'https://r.example/', files: ['https://f.example/']",
            "`files` goes with `pip`",
        ),
        (
            "allow",
            "pip: [], registry: 'https://r.example/'",
            "`pip: []` names no package; name some or remove the rule",
        ),
        (
            "allow",
            "npm: [], registry: 'https://r.example/'",
            "`npm: []` names no package; name some or remove the rule",
        ),
        ("deny", "host: h.example, secret: KEY", "`secret` goes with rules that let requests pass"),
        (
            "passthrough",
            "host: h.example, secret: KEY",
            "`secret` goes with rules that let requests pass",
        ),
        ("allow", "host: h.example, unless: secret", "`unless` goes with `deny`"),
        (
            "deny",
            "host: h.example, addresses: [10.0.0.0/8]",
            "`addresses` says what may be dialled; a deny dials nothing",
        ),
    ] {
        refused(list, rule, message);
    }
}

#[test]
fn a_wildcard_covers_itself_and_what_is_below_it() {
    let pattern = |text: &str| HostPattern::parse(text).unwrap();
    for (outer, inner, covered) in [
        ("*.a.example", "*.a.example", true),
        ("*.a.example", "*.b.a.example", true),
        ("*.b.a.example", "*.a.example", false),
        ("*.a.example", "*.other.example", false),
        ("*.a.example", "x.a.example", true),
        ("*.a.example", "a.example", false),
        ("a.example", "*.a.example", false),
        ("10.0.0.1", "*.a.example", false),
        ("10.0.0.1", "10.0.0.1", true),
    ] {
        assert_eq!(
            crate::host_pattern::covers(&pattern(outer), &pattern(inner)),
            covered,
            "{outer} {inner}"
        );
    }
}

#[track_caller]
fn refused(list: &str, rule: &str, message: &str) {
    let text = format!(
        "version: 1
net: {{{list}: [{{{rule}}}]}}
secrets: {{KEY: {{from: {{env: KEY}}, hosts: [h.example], header: x}}}}
"
    );
    assert_eq!(problems(&text, &NoFiles), [format!("p: net.{list}[0]: {message}")], "{rule}");
}

#[track_caller]
fn check(text: &str, sources: &dyn Sources, expected: Expect) {
    expected.assert_eq(&problems(text, sources).join("\n"));
}

/// Without their places, which other tests are about.
fn problems(text: &str, sources: &dyn Sources) -> Vec<String> {
    let problems = read(&Source::new("p", text), sources).unwrap_err();
    let said = |problem: &crate::Problem| {
        format!("{}: {}: {}", problem.source, problem.path, problem.message)
    };
    problems.iter().map(said).collect()
}
