//! What a person is told, for each kind of answer.

use expect_test::{Expect, expect};

use crate::{Method, NoFiles, NotDoneYet, Policy, SampleRequest, Source, read};

const POLICY: &str = "version: 1
net:
  enabled: true
  allow:
    - docs.example
    - {host: api.example, methods: [POST], paths: [/v1/messages]}
    - {git: git.example/acme/widgets}
    - {host: db.example, port: 5432, protocol: tcp}
  ask:
    - {host: ask.example, reason: costs money}
  deny:
    - {host: drop.example, reason: anyone can write there}
";

#[test]
fn an_allow_names_its_rule() {
    check(
        "GET",
        "https://docs.example/x",
        expect![[r#"
        allow: net.allow[0]
        because `net.allow[0]` (p line 5) matches: docs.example
    "#]],
    );
}

#[test]
fn a_request_that_no_rule_matches_is_told_what_was_close_and_what_would_do() {
    check(
        "DELETE",
        "https://api.example/v1/messages",
        expect![[r#"
        deny: no rule matches
        because no rule matches, and what no rule allows is denied
        near miss net.allow[1] but for the method
        would allow {host: api.example, methods: [DELETE], paths: [/v1/messages]}
    "#]],
    );
    check(
        "POST",
        "https://api.example:8443/v1/files?x=1",
        expect![[r#"
        deny: no rule matches
        because no rule matches, and what no rule allows is denied
        near miss net.allow[1] but for the port
        would allow {host: api.example, port: 8443, methods: [POST], paths: [/v1/files]}
    "#]],
    );
    check(
        "GET",
        "wss://new.example/live",
        expect![[r#"
        deny: no rule matches
        because no rule matches, and what no rule allows is denied
        would allow {host: new.example, websocket: true, paths: [/live]}
    "#]],
    );
}

#[test]
fn a_deny_says_that_no_allow_helps() {
    check(
        "GET",
        "https://drop.example/",
        expect![[r#"
        deny: net.deny[0]
        because `net.deny[0]` (p line 12) matches: drop.example; anyone can write there
        would allow {host: drop.example, methods: [GET], paths: [/]}
        but a deny beats every allow: `net.deny[0]` (p line 12) would have to go
    "#]],
    );
}

#[test]
fn an_allow_that_loses_is_said_to_match_and_the_deny_that_won_is_named() {
    check_with(
        "version: 1
net:
  enabled: true
  allow: [h.example, {host: h.example, methods: [POST]}]
  ask: [{host: ask.example}]
  deny: [{host: h.example, paths: ['/admin/**']}]
",
        "GET",
        "https://h.example/admin/x",
        expect![[r#"
            deny: net.deny[0]
            because `net.deny[0]` (p line 6) matches: h.example /admin/**
            overruled net.allow[0]
            near miss net.allow[1] but for the method
            would allow {host: h.example, methods: [GET], paths: [/admin/x]}
            but a deny beats every allow: `net.deny[0]` (p line 6) would have to go
        "#]],
    );
}

#[test]
fn a_deny_that_could_spare_what_has_a_secret_is_told_how() {
    let policy = |deny: &str| {
        format!(
            "version: 1
net:
  enabled: true
  allow: [{{host: h.example, paths: [/v1], secret: KEY}}, h.example]
  deny: [{deny}]
secrets: {{KEY: {{hosts: [h.example], header: x-key}}}}
"
        )
    };
    check_with(
        &policy("h.example"),
        "GET",
        "https://h.example/v1",
        expect![[r#"
            deny: net.deny[0]
            because `net.deny[0]` (p line 5) matches: h.example
            overruled net.allow[0]
            overruled net.allow[1]
            would allow {host: h.example, methods: [GET], paths: [/v1]}
            but a deny beats every allow: `net.deny[0]` (p line 5) would have to go, or say `unless: secret` to spare what `net.allow[0]` sends with `KEY`
        "#]],
    );
    check_with(
        &policy("{host: h.example, unless: secret}"),
        "GET",
        "https://h.example/v2",
        expect![[r#"
            deny: net.deny[0]
            because `net.deny[0]` (p line 5) matches: h.example unless with a bound secret
            overruled net.allow[1]
            near miss net.allow[0] but for the path
            would allow {host: h.example, methods: [GET], paths: [/v2]}
            but a deny beats every allow: `net.deny[0]` (p line 5) spares only what a rule with a secret allows, however a server reads it
        "#]],
    );
}

#[test]
fn a_rule_of_several_shapes_is_measured_by_the_nearest() {
    // The first shape of a `git` rule is a GET, the second the POST asked for.
    check(
        "POST",
        "https://git.example/acme/other/git-upload-pack",
        expect![[r#"
            deny: no rule matches
            because no rule matches, and what no rule allows is denied
            near miss net.allow[2] but for the path
            would allow {host: git.example, methods: [POST], paths: [/acme/other/git-upload-pack]}
        "#]],
    );
    check(
        "GET",
        "https://git.example/acme/widgets/info/refs?service=git-receive-pack",
        expect![[r#"
            deny: no rule matches
            because no rule matches, and what no rule allows is denied
            near miss net.allow[2] but for the query
            would allow {host: git.example, methods: [GET], paths: [/acme/widgets/info/refs]}
        "#]],
    );
}

#[test]
fn the_reading_that_decided_is_named() {
    let policy = "version: 1
net:
  enabled: true
  allow: [{host: h.example, paths: [/v1/*]}]
  deny: [{host: h.example, paths: ['/admin/**']}]
";
    check_with(
        policy,
        "GET",
        "https://h.example/admin%2Fx",
        expect![[r#"
            deny: net.deny[0]
            because `net.deny[0]` (p line 5) matches what some servers take the path for, `/admin/x`: h.example /admin/**
            read as /admin%2Fx deny: no rule matches
            read as /admin/x deny: net.deny[0]
            near miss net.allow[0] but for the path
            would allow {host: h.example, methods: [GET], paths: ["/admin%2Fx"]}
            but a deny beats every allow: `net.deny[0]` (p line 5) would have to go
        "#]],
    );
    check_with(
        policy,
        "GET",
        "https://h.example/v1/a%2Fb",
        expect![[r#"
            deny: no rule matches
            because some servers take the path for `/v1/a/b`, which no rule allows
            read as /v1/a%2Fb allow: net.allow[0]
            read as /v1/a/b deny: no rule matches
            near miss net.allow[0] but for the path /v1/a/b
            would allow {host: h.example, methods: [GET], paths: ["/v1/a%2Fb"]}
        "#]],
    );
    check_with(
        policy,
        "GET",
        "https://h.example/v1/a;b",
        expect![[r#"
            allow: net.allow[0]
            because `net.allow[0]` (p line 4) matches: h.example /v1/*
            read as /v1/a;b allow: net.allow[0]
            read as /v1/a allow: net.allow[0]
        "#]],
    );
}

/// A rule that is called near must be one that does not decide, and a rule that
/// is called overruled one that would: that is what deciding without the rule
/// that won says.
#[test]
fn what_is_said_to_match_does_decide_once_the_winner_is_gone() {
    let rules =
        "  allow: [{host: h.example, paths: ['/a/**', /b]}, {host: h.example, query: {k: v}}]";
    let with = format!("version: 1\nnet:\n  enabled: true\n{rules}\n  deny: [h.example]\n");
    let without = format!("version: 1\nnet:\n  enabled: true\n{rules}\n");
    let read = |text: String| read(&Source::new("p", text), &NoFiles).unwrap();
    let (with, without) = (read(with), read(without));
    for url in ["/a/x", "/a", "/b", "/b?k=v", "/c?k=v&k=w", "/c?k=v", "/A/x"] {
        let asked = SampleRequest::new("GET", &format!("https://h.example{url}")).unwrap();
        let explained = with.explain(&asked);
        let first = explained.overruled.first().map(|rule| rule.id());
        assert_eq!(first, without.decide(&asked.question()).rule_id(), "{url}");
    }
}

#[test]
fn the_reading_that_was_denied_is_named_although_the_path_as_sent_is_allowed() {
    check_with(
        "version: 1
net:
  enabled: true
  allow: [{host: h.example, paths: [/v1/*, '/v1/a/*']}]
  deny: [{host: h.example, paths: [/v1/a/b]}]
",
        "GET",
        "https://h.example/v1/a%2Fb",
        expect![[r#"
            deny: net.deny[0]
            because `net.deny[0]` (p line 5) matches what some servers take the path for, `/v1/a/b`: h.example /v1/a/b
            read as /v1/a%2Fb allow: net.allow[0]
            read as /v1/a/b deny: net.deny[0]
            overruled net.allow[0]
            would allow {host: h.example, methods: [GET], paths: ["/v1/a%2Fb"]}
            but a deny beats every allow: `net.deny[0]` (p line 5) would have to go
        "#]],
    );
}

#[test]
fn readings_that_are_allowed_on_different_terms_are_said_to_be() {
    check_with(
        "version: 1
net:
  enabled: true
  allow: [{host: h.example, paths: [/v1/*], secret: KEY}, {host: h.example, paths: [/v1/*/x]}]
secrets: {KEY: {from: {env: KEY}, hosts: [h.example], header: x-key}}
",
        "GET",
        "https://h.example/v1/a%2Fx",
        expect![[r#"
            deny: rules allow it on different terms
            because servers could read it in several ways, and the rules that allow those differ in their secret, addresses or refs
            read as /v1/a%2Fx allow: net.allow[0]
            read as /v1/a/x allow: net.allow[1]
            near miss net.allow[0] but for the path /v1/a/x
            near miss net.allow[1] but for the path
            but one rule would have to match it however a server reads it; or send the plainest spelling
        "#]],
    );
}

#[test]
fn what_no_gateway_can_do_yet_is_said() {
    check_with(
        "version: 1\nnet: {enabled: true, allow: [{host: h.example, secret: KEY}]}\n\
         secrets: {KEY: {hosts: [h.example], header: x-key}}\n",
        "GET",
        "https://h.example/",
        expect![[r#"
            allow: net.allow[0]
            because `net.allow[0]` (p line 2) matches: h.example with KEY
            but secrets are not put into requests yet, so the gateway refuses it
        "#]],
    );
    for (not_done, code, word) in [
        (NotDoneYet::Body, "body_not_checkable", "bodies"),
        (NotDoneYet::Secret, "secret_unavailable", "secrets"),
    ] {
        assert_eq!(not_done.code(), code);
        assert!(not_done.why().starts_with(word), "{}", not_done.why());
    }
}

#[test]
fn a_network_that_is_off_is_told_how_to_be_on() {
    check_with(
        "version: 1\nnet: {allow: [h.example]}\n",
        "GET",
        "https://h.example/a%2Fb",
        expect![[r#"
            deny: the network is off
            because the network is off, so nothing goes out
            overruled net.allow[0]
            would allow {host: h.example, methods: [GET], paths: ["/a%2Fb"]}
            but the network is off: set `net.enabled: true`
        "#]],
    );
}

#[test]
fn a_hint_names_the_method_that_a_header_asks_for_as_well() {
    let asked = SampleRequest::new("POST", "https://h.example/v1").unwrap();
    for (override_method, methods) in
        [(None, "POST"), (Some(Method::Post), "POST"), (Some(Method::Delete), "POST, DELETE")]
    {
        let expected = format!("{{host: h.example, methods: [{methods}], paths: [/v1]}}");
        assert_eq!(Policy::hint(&asked, override_method), expected);
    }
}

#[test]
fn an_ask_says_who_decides() {
    check(
        "GET",
        "https://ask.example/",
        expect![[r#"
        ask: net.ask[0]
        because `net.ask[0]` (p line 10) matches: ask.example; costs money
        would allow {host: ask.example, methods: [GET], paths: [/]}
        but a person is asked because of `net.ask[0]`; without that rule an entry would allow it
    "#]],
    );
}

#[test]
fn a_relayed_connection_says_that_requests_are_not_seen() {
    check(
        "GET",
        "https://db.example:5432/",
        expect![[r#"
        allow: net.allow[3]
        because the connection is relayed unopened, so its requests are not judged
    "#]],
    );
}

#[test]
fn the_suggested_rule_really_allows_the_request() {
    for (method, url) in [
        ("DELETE", "https://api.example/v1/messages"),
        ("GET", "http://plain.example/"),
        ("POST", "https://h.example:8443/a/b?q"),
        ("GET", "wss://ws.example/live"),
        ("GET", "https://h.example/@scope%2Fname"),
        ("PUT", "https://203.0.114.9/x"),
        ("GET", "https://h.example/a,b:c"),
        ("GET", "https://h.example/%7Bx%7D"),
        ("GET", "https://h.example/a;b/c+d%2Fe%20"),
    ] {
        let asked = SampleRequest::new(method, url).unwrap();
        let policy = read(&Source::new("p", POLICY), &NoFiles).unwrap();
        let rule = policy.explain(&asked).would_allow.unwrap();
        let text = format!("version: 1\nnet:\n  enabled: true\n  allow:\n    - {rule}\n");
        let widened = read(&Source::new("p", text), &NoFiles).unwrap_or_else(|err| panic!("{err}"));
        assert_eq!(widened.decide(&asked.question()).to_string(), "allow: net.allow[0]", "{rule}");
    }
}

#[track_caller]
fn check(method: &str, url: &str, expected: Expect) {
    check_with(POLICY, method, url, expected);
}

#[track_caller]
fn check_with(policy: &str, method: &str, url: &str, expected: Expect) {
    let policy = read(&Source::new("p", policy), &NoFiles).unwrap();
    let asked = SampleRequest::new(method, url).unwrap();
    let explained = policy.explain(&asked);
    let mut text = format!("{}\nbecause {}\n", explained.decision, explained.because);
    for reading in &explained.readings {
        text.push_str(&format!("read as {} {}\n", reading.path, reading.decision));
    }
    for rule in &explained.overruled {
        text.push_str(&format!("overruled {rule}\n"));
    }
    for near in &explained.near_misses {
        let reading = near.reading.as_deref().map(|path| format!(" {path}")).unwrap_or_default();
        text.push_str(&format!("near miss {} but for the {}{reading}\n", near.rule, near.lacks));
    }
    if let Some(rule) = &explained.would_allow {
        text.push_str(&format!("would allow {rule}\n"));
    }
    if let Some(but) = &explained.but {
        text.push_str(&format!("but {but}\n"));
    }
    expected.assert_eq(&text);
}
