//! Text in, text out: a policy's lists, some requests, the answers.

mod headers;
mod secrets;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use crate::{
    Admission, Destination, Method, NoFiles, Policy, PolicyQuestion, SampleRequest, Source,
    Verdict, read,
};

#[test]
fn a_bare_host_is_https_on_443_with_a_safe_method() {
    check(
        "allow: [docs.example]",
        &[
            "GET https://docs.example/a",
            "HEAD https://docs.example/",
            "OPTIONS https://docs.example/",
            "POST https://docs.example/",
            "GET http://docs.example/",
            "GET https://docs.example:8443/",
            "GET wss://docs.example/",
        ],
        expect![[r#"
            GET https://docs.example/a -> allow: net.allow[0]
            HEAD https://docs.example/ -> allow: net.allow[0]
            OPTIONS https://docs.example/ -> allow: net.allow[0]
            POST https://docs.example/ -> deny: no rule matches
            GET http://docs.example/ -> deny: no rule matches
            GET https://docs.example:8443/ -> deny: no rule matches
            GET wss://docs.example/ -> deny: no rule matches
        "#]],
    );
}

#[test]
fn a_deny_beats_an_ask_beats_an_allow_wherever_they_stand() {
    check(
        "allow: ['*.example.com', a.example.com]
         ask: [{host: b.example.com}, {host: c.example.com}]
         deny: [{host: c.example.com, paths: ['/secret/**']}, d.example.com]",
        &[
            "GET https://a.example.com/",
            "GET https://b.example.com/",
            "GET https://c.example.com/",
            "GET https://c.example.com/secret/x",
            "GET https://d.example.com/",
            "GET http://d.example.com:99/",
            "GET wss://d.example.com/",
        ],
        expect![[r#"
            GET https://a.example.com/ -> allow: net.allow[0]
            GET https://b.example.com/ -> ask: net.ask[0]
            GET https://c.example.com/ -> ask: net.ask[1]
            GET https://c.example.com/secret/x -> deny: net.deny[0]
            GET https://d.example.com/ -> deny: net.deny[1]
            GET http://d.example.com:99/ -> deny: net.deny[1]
            GET wss://d.example.com/ -> deny: net.deny[1]
        "#]],
    );
}

#[test]
fn a_wildcard_covers_neither_the_parent_nor_a_lookalike() {
    check(
        "allow: ['*.wild.example']",
        &[
            "GET https://a.wild.example/",
            "GET https://a.b.wild.example/",
            "GET https://wild.example/",
            "GET https://evilwild.example/",
            "GET https://wild.example.evil.example/",
        ],
        expect![[r#"
            GET https://a.wild.example/ -> allow: net.allow[0]
            GET https://a.b.wild.example/ -> allow: net.allow[0]
            GET https://wild.example/ -> deny: no rule matches
            GET https://evilwild.example/ -> deny: no rule matches
            GET https://wild.example.evil.example/ -> deny: no rule matches
        "#]],
    );
}

#[test]
fn paths_are_judged_in_their_canonical_form() {
    check(
        "allow: [{host: h.example, paths: ['/repos/ok/**', /v1/*, '/@scope%2Fname']}]",
        &[
            "GET https://h.example/repos/ok/a/b",
            "GET https://h.example/repos/%6fk/a",
            "GET https://h.example/repos/okay",
            "GET https://h.example/v1/x",
            "GET https://h.example/v1/x/y",
            "GET https://h.example/@scope%2fname",
        ],
        expect![[r#"
            GET https://h.example/repos/ok/a/b -> allow: net.allow[0]
            GET https://h.example/repos/%6fk/a -> allow: net.allow[0]
            GET https://h.example/repos/okay -> deny: no rule matches
            GET https://h.example/v1/x -> allow: net.allow[0]
            GET https://h.example/v1/x/y -> deny: no rule matches
            GET https://h.example/@scope%2fname -> allow: net.allow[0]
        "#]],
    );
}

#[test]
fn a_deny_by_path_is_not_dodged_by_spelling() {
    check(
        "allow: [h.example]
         deny: [{host: h.example, paths: [/gists, '/Admin/**']}]",
        &[
            "GET https://h.example/gists",
            "GET https://h.example/GISTS",
            "GET https://h.example/gists/",
            "GET https://h.example/gists;x=1",
            "GET https://h.example/admin;a/users",
            "GET https://h.example/ADMIN/users",
            "GET https://h.example/%41dmin/users",
            "GET https://h.example/gistsx",
        ],
        expect![[r#"
            GET https://h.example/gists -> deny: net.deny[0]
            GET https://h.example/GISTS -> deny: net.deny[0]
            GET https://h.example/gists/ -> deny: net.deny[0]
            GET https://h.example/gists;x=1 -> deny: net.deny[0]
            GET https://h.example/admin;a/users -> deny: net.deny[0]
            GET https://h.example/ADMIN/users -> deny: net.deny[0]
            GET https://h.example/%41dmin/users -> deny: net.deny[0]
            GET https://h.example/gistsx -> allow: net.allow[0]
        "#]],
    );
}

#[test]
fn an_allow_wants_the_one_right_value_and_a_deny_any() {
    check(
        "allow: [{host: h.example, query: {service: git-*}}]
         deny: [{host: h.example, query: {debug: '*'}}]",
        &[
            "GET https://h.example/?service=git-upload-pack",
            "GET https://h.example/?service=x",
            "GET https://h.example/?service=git-a&service=x",
            "GET https://h.example/",
            "GET https://h.example/?service=git-a&debug=1",
            "GET https://h.example/?service=git-a&debug=&debug=2",
        ],
        expect![[r#"
            GET https://h.example/?service=git-upload-pack -> allow: net.allow[0]
            GET https://h.example/?service=x -> deny: no rule matches
            GET https://h.example/?service=git-a&service=x -> deny: no rule matches
            GET https://h.example/ -> deny: no rule matches
            GET https://h.example/?service=git-a&debug=1 -> deny: net.deny[0]
            GET https://h.example/?service=git-a&debug=&debug=2 -> deny: net.deny[0]
        "#]],
    );
}

#[test]
fn a_websocket_needs_a_rule_of_its_own() {
    check(
        "allow: [h.example, {host: ws.example, websocket: true, paths: [/live]}]",
        &[
            "GET wss://h.example/live",
            "GET https://h.example/live",
            "GET wss://ws.example/live",
            "GET wss://ws.example/other",
            "GET https://ws.example/live",
        ],
        expect![[r#"
            GET wss://h.example/live -> deny: no rule matches
            GET https://h.example/live -> allow: net.allow[0]
            GET wss://ws.example/live -> allow: net.allow[1]
            GET wss://ws.example/other -> deny: no rule matches
            GET https://ws.example/live -> deny: no rule matches
        "#]],
    );
}

#[test]
fn ports_protocols_and_addresses_are_as_written() {
    check(
        "allow: [{host: h.example, port: [8443, 9443]}, {host: p.example, protocol: http}, '203.0.114.7']",
        &[
            "GET https://h.example:8443/",
            "GET https://h.example/",
            "GET http://p.example/",
            "GET https://p.example/",
            "GET https://203.0.114.7/",
            "GET https://3405804039/",
            "GET https://203.0.114.8/",
        ],
        expect![[r#"
            GET https://h.example:8443/ -> allow: net.allow[0]
            GET https://h.example/ -> deny: no rule matches
            GET http://p.example/ -> allow: net.allow[1]
            GET https://p.example/ -> deny: no rule matches
            GET https://203.0.114.7/ -> allow: net.allow[2]
            GET https://3405804039/ -> allow: net.allow[2]
            GET https://203.0.114.8/ -> deny: no rule matches
        "#]],
    );
}

#[test]
fn git_rules_know_the_repository_and_the_direction() {
    check(
        "allow: [{git: git.example/acme/widgets, access: push, refs: ['refs/heads/agent/*']}, {git: git.example/acme/docs}]
         deny: [{git: git.example/acme/secret}]",
        &[
            "GET https://git.example/acme/widgets.git/info/refs?service=git-upload-pack",
            "POST https://git.example/acme/widgets/git-receive-pack",
            "POST https://git.example/acme/docs.git/git-upload-pack",
            "POST https://git.example/acme/docs.git/git-receive-pack",
            "GET https://git.example/acme/docs.git/info/refs?service=git-receive-pack",
            "GET https://git.example/acme/docs.git/info/refs",
            "GET https://git.example/acme/other.git/info/refs?service=git-upload-pack",
            "GET https://git.example/acme/secret/info/refs?service=git-upload-pack",
            "GET https://git.example/acme/widgets/releases",
        ],
        expect![[r#"
            GET https://git.example/acme/widgets.git/info/refs?service=git-upload-pack -> allow: net.allow[0]
            POST https://git.example/acme/widgets/git-receive-pack -> allow: net.allow[0], body to be checked
            POST https://git.example/acme/docs.git/git-upload-pack -> allow: net.allow[1]
            POST https://git.example/acme/docs.git/git-receive-pack -> deny: no rule matches
            GET https://git.example/acme/docs.git/info/refs?service=git-receive-pack -> deny: no rule matches
            GET https://git.example/acme/docs.git/info/refs -> deny: no rule matches
            GET https://git.example/acme/other.git/info/refs?service=git-upload-pack -> deny: no rule matches
            GET https://git.example/acme/secret/info/refs?service=git-upload-pack -> deny: net.deny[0]
            GET https://git.example/acme/widgets/releases -> deny: no rule matches
        "#]],
    );
}

#[test]
fn package_rules_are_read_only_and_judge_files_by_package() {
    check(
        "allow: [{pip: [requests], registry: 'https://pip.example/simple/', files: ['https://files.example/packages/']},
                 {npm: [left-pad, '@acme/ui'], registry: 'https://npm.example/r/'}]",
        &[
            "GET https://pip.example/simple/requests/", "GET https://pip.example/simple/evil/",
            "GET https://files.example/packages/ab/cd/requests-2.31.0-py3-none-any.whl",
            "GET https://files.example/packages/ab/cd/evil-1.0.tar.gz", "GET https://files.example/other/requests-1.0.tar.gz",
            "POST https://pip.example/simple/requests/", "GET https://npm.example/r/left-pad",
            "GET https://npm.example/r/left-pad/-/left-pad-1.3.0.tgz", "GET https://npm.example/r/left-pad/-/evil-1.3.0.tgz",
            "GET https://npm.example/r/@acme%2fui", "GET https://npm.example/r/@acme/ui/-/ui-1.0.0.tgz",
            "PUT https://npm.example/r/left-pad", "GET https://npm.example/r/evil", "GET https://npm.example/left-pad",
        ],
        expect![[r#"
            GET https://pip.example/simple/requests/ -> allow: net.allow[0]
            GET https://pip.example/simple/evil/ -> deny: no rule matches
            GET https://files.example/packages/ab/cd/requests-2.31.0-py3-none-any.whl -> allow: net.allow[0]
            GET https://files.example/packages/ab/cd/evil-1.0.tar.gz -> deny: no rule matches
            GET https://files.example/other/requests-1.0.tar.gz -> deny: no rule matches
            POST https://pip.example/simple/requests/ -> deny: no rule matches
            GET https://npm.example/r/left-pad -> allow: net.allow[1]
            GET https://npm.example/r/left-pad/-/left-pad-1.3.0.tgz -> allow: net.allow[1]
            GET https://npm.example/r/left-pad/-/evil-1.3.0.tgz -> deny: no rule matches
            GET https://npm.example/r/@acme%2fui -> allow: net.allow[1]
            GET https://npm.example/r/@acme/ui/-/ui-1.0.0.tgz -> allow: net.allow[1]
            PUT https://npm.example/r/left-pad -> deny: no rule matches
            GET https://npm.example/r/evil -> deny: no rule matches
            GET https://npm.example/left-pad -> deny: no rule matches
        "#]],
    );
}

/// Many servers ignore an upgrade that they do not know, and answer the request.
#[test]
fn a_host_may_resolve_to_what_any_of_its_rules_names() {
    let policy = policy(
        "allow: [{host: h.wide.example, addresses: [10.0.0.0/8]}, {host: other.example, addresses: [172.16.0.0/12]}]
         ask: [{host: '*.wide.example', port: 8443, addresses: [192.168.0.0/16]}]",
    );
    let reach = |to: &str| {
        let reach = policy.reach_of(&Destination::parse(to).unwrap());
        reach.ranges().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(reach("h.wide.example:443"), ["10.0.0.0/8"]);
    assert_eq!(reach("other.example:443"), ["172.16.0.0/12"]);
    assert_eq!(reach("h.wide.example:8443"), ["192.168.0.0/16"]);
    assert!(reach("h.wide.example:80").is_empty());
}

#[test]
fn of_two_rules_that_allow_either_method_the_one_for_the_method_sent_is_named() {
    let policy =
        policy("allow: [{host: h.example, methods: [POST]}, {host: h.example, methods: [PUT]}]");
    let asked = SampleRequest::new("POST", "https://h.example/").unwrap();
    let question = PolicyQuestion { override_method: Some(Method::Put), ..asked.question() };
    assert_eq!(policy.decide(&question).to_string(), "allow: net.allow[0]");
}

#[test]
fn a_path_that_a_header_names_is_judged_with_its_own_query() {
    let policy = policy(
        "allow: [h.example]
         deny: [{host: h.example, query: {mode: raw}}]",
    );
    let with = |url: &str| {
        let asked = SampleRequest::new("GET", "https://h.example/a?mode=plain").unwrap();
        let name = crate::HeaderName::parse("x-original-url").unwrap();
        let asked = asked.with_headers([(name, url.to_owned())]).unwrap();
        policy.decide(&asked.question()).to_string()
    };
    assert_eq!(with("/b?mode=plain"), "allow: net.allow[0]");
    assert_eq!(with("/b?mode=raw"), "deny: net.deny[0]");
}

#[test]
fn a_method_listed_twice_is_listed() {
    check(
        "allow: [{host: h.example, methods: [POST, PUT, POST]}]",
        &["POST https://h.example/", "PUT https://h.example/", "GET https://h.example/"],
        expect![[r#"
            POST https://h.example/ -> allow: net.allow[0]
            PUT https://h.example/ -> allow: net.allow[0]
            GET https://h.example/ -> deny: no rule matches
        "#]],
    );
}

#[test]
fn a_network_that_is_off_answers_nothing() {
    check_whole(
        "version: 1\nnet: {allow: [h.example]}\n",
        &["GET https://h.example/"],
        expect![[r#"
            GET https://h.example/ -> deny: the network is off
        "#]],
    );
}

#[test]
fn an_empty_list_denies_all() {
    check(
        "allow: []",
        &["GET https://h.example/"],
        expect![[r#"
        GET https://h.example/ -> deny: no rule matches
    "#]],
    );
}

#[test]
fn an_overriding_header_is_judged_as_the_method_it_names() {
    let policy = policy("allow: [{host: h.example, methods: [GET, POST]}]");
    let asked = SampleRequest::new("POST", "https://h.example/").unwrap();
    let with = |override_method| {
        policy.decide(&PolicyQuestion { override_method, ..asked.question() }).to_string()
    };
    assert_eq!(with(None), "allow: net.allow[0]");
    assert_eq!(with(Some(Method::Get)), "allow: net.allow[0]");
    assert_eq!(with(Some(Method::Delete)), "deny: no rule matches");
}

#[test]
fn a_destination_is_opened_relayed_or_refused() {
    let policy = policy(
        "allow: [h.example, {host: db.example, port: 5432, protocol: tcp}]
         ask: [{host: db2.example, port: 5432, protocol: tcp}]
         deny: [bad.example, {host: db3.example, paths: [/x]}, {host: part.example, paths: [/x]}]
         passthrough: [pinned.example, bad.example, h.example, db3.example]",
    );
    let admit = |text: &str| match policy.admit(&Destination::parse(text).unwrap()) {
        Admission::Ask(decision) => format!("ask by {}", decision.rule.unwrap()),
        Admission::Deny(decision) => decision.to_string(),
        Admission::Inspect => "inspect".to_owned(),
        Admission::Passthrough(decision) => format!("passthrough by {}", decision.rule.unwrap()),
        Admission::Tcp(decision) => format!("tcp by {}", decision.rule.unwrap()),
    };
    assert_eq!(admit("h.example:443"), "inspect", "looking inside is the stricter way to allow");
    assert_eq!(admit("h.example:80"), "deny: no rule matches");
    assert_eq!(admit("db.example:5432"), "tcp by net.allow[1]");
    assert_eq!(admit("db2.example:5432"), "ask by net.ask[0]");
    assert_eq!(admit("pinned.example:443"), "passthrough by net.passthrough[0]");
    assert_eq!(admit("bad.example:443"), "deny: net.deny[0]");
    assert_eq!(
        admit("db3.example:443"),
        "deny: net.deny[1]",
        "what is not opened cannot be held to conditions"
    );
    assert_eq!(admit("other.example:443"), "deny: no rule matches");
    assert_eq!(admit("part.example:443"), "deny: no rule matches", "the deny may not even apply");
}

#[test]
fn observing_looks_inside_unless_everything_there_is_denied() {
    let text = "version: 1
net:
  enabled: true
  mode: observe
  deny: [bad.example, {host: part.example, paths: [/admin]}]
";
    let policy = whole(text);
    let admit = |text: &str| policy.admit(&Destination::parse(text).unwrap());
    assert!(matches!(admit("new.example:443"), Admission::Inspect));
    assert!(matches!(admit("part.example:443"), Admission::Inspect));
    assert!(matches!(admit("bad.example:443"), Admission::Deny(_)));
}

proptest! {
    /// Whatever the order of the rules, the strictest that matches decides.
    #[test]
    fn order_says_nothing(seed in any::<u64>(), rules in proptest::collection::vec((0..3usize, 0..6usize, 0..4usize), 1..12)) {
        let hosts = ["a.example.com", "'*.example.com'", "b.example.com", "'*.b.example.com'", "example.com", "c.example.org"];
        let paths = ["/**", "/x/**", "/x/y", "/z"];
        let write = |rules: &[(usize, usize, usize)]| {
            let list = |verdict: usize| -> String {
                rules.iter().filter(|rule| rule.0 == verdict)
                    .map(|rule| format!("{{host: {}, paths: [{}]}}", hosts[rule.1], if paths[rule.2].contains('*') { format!("'{}'", paths[rule.2]) } else { paths[rule.2].to_owned() }))
                    .collect::<Vec<_>>().join(", ")
            };
            format!("allow: [{}]\nask: [{}]\ndeny: [{}]", list(0), list(1), list(2))
        };
        let mut shuffled = rules.clone();
        let mut state = seed;
        for at in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            shuffled.swap(at, (state >> 33) as usize % (at + 1));
        }
        let (one, other) = (policy(&write(&rules)), policy(&write(&shuffled)));
        for host in ["a.example.com", "b.example.com", "x.b.example.com", "example.com", "c.example.org"] {
            for path in ["/", "/x/y", "/x/q", "/z"] {
                let asked = SampleRequest::new("GET", &format!("https://{host}{path}")).unwrap();
                let verdict = one.decide(&asked.question()).verdict;
                prop_assert_eq!(verdict, other.decide(&asked.question()).verdict);
                // The obvious way to decide, without any index.
                let matching = rules.iter().filter(|(_, h, p)| {
                    let pattern = crate::HostPattern::parse(hosts[*h].trim_matches('\'')).unwrap();
                    let glob = crate::PathPattern::parse(paths[*p]).unwrap().glob().compile_matcher();
                    pattern.matches(&asked.target.destination.host) && glob.is_match(path)
                });
                let naive = matching.map(|rule| [Verdict::Allow, Verdict::Ask, Verdict::Deny][rule.0]).min();
                prop_assert_eq!(verdict, naive.unwrap_or(Verdict::Deny));
            }
        }
    }
}

fn policy(net: &str) -> Policy {
    let net: String = net.lines().map(|line| format!("  {}\n", line.trim())).collect();
    whole(&format!("version: 1\nnet:\n  enabled: true\n{net}"))
}

fn whole(text: &str) -> Policy {
    read(&Source::new("p", text), &NoFiles).unwrap_or_else(|err| panic!("{err}\n{text}"))
}

#[track_caller]
fn check(net: &str, requests: &[&str], expected: Expect) {
    answers(&policy(net), requests, expected);
}

#[track_caller]
fn check_whole(text: &str, requests: &[&str], expected: Expect) {
    answers(&whole(text), requests, expected);
}

/// The only function here that knows the engine's API.
#[track_caller]
fn answers(policy: &Policy, requests: &[&str], expected: Expect) {
    let mut answers = String::new();
    for request in requests {
        let (method, url) = request.split_once(' ').unwrap();
        let asked = SampleRequest::new(method, url).unwrap_or_else(|err| panic!("{err}"));
        let decision = policy.decide(&asked.question());
        let check = if decision.body_check().is_some() { ", body to be checked" } else { "" };
        answers.push_str(&format!("{request} -> {decision}{check}\n"));
    }
    expected.assert_eq(&answers);
}
