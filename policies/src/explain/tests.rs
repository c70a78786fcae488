//! What a person is told, for each kind of answer.

use expect_test::{Expect, expect};

use crate::{Asked, NoFiles, Source, read};

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
    ] {
        let asked = Asked::new(method, url).unwrap();
        let policy = read(&Source::new("p", POLICY), &NoFiles).unwrap();
        let rule = policy.explain(&asked).would_allow.unwrap();
        let text = format!("version: 1\nnet:\n  enabled: true\n  allow:\n    - {rule}\n");
        let widened = read(&Source::new("p", text), &NoFiles).unwrap_or_else(|err| panic!("{err}"));
        assert_eq!(widened.decide(&asked.question()).to_string(), "allow: net.allow[0]", "{rule}");
    }
}

#[track_caller]
fn check(method: &str, url: &str, expected: Expect) {
    let policy = read(&Source::new("p", POLICY), &NoFiles).unwrap();
    let asked = Asked::new(method, url).unwrap();
    let explained = policy.explain(&asked);
    let mut text = format!("{}\nbecause {}\n", explained.decision, explained.because);
    for near in &explained.near_misses {
        text.push_str(&format!("near miss {} but for the {}\n", near.rule, near.lacks));
    }
    if let Some(rule) = &explained.would_allow {
        text.push_str(&format!("would allow {rule}\n"));
    }
    if let Some(but) = &explained.but {
        text.push_str(&format!("but {but}\n"));
    }
    expected.assert_eq(&text);
}
