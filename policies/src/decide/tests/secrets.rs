//! Rules with a secret, beside rules without one.

use expect_test::expect;

use super::{check_whole, whole};
use crate::{Admission, Destination, Method, PolicyQuestion, SampleRequest};

#[test]
fn a_sparing_deny_yields_only_to_a_bound_secret() {
    let text = "version: 1
net:
  enabled: true
  allow:
    - {host: api.llm.example, methods: [POST], paths: [/v1/messages], secret: KEY}
    - {host: api.llm.example, methods: [POST], paths: [/v1/files]}
  deny: [{host: api.llm.example, unless: secret}]
secrets: {KEY: {from: {env: KEY}, hosts: [api.llm.example], header: x-api-key}}
";
    let requests = [
        "POST https://api.llm.example/v1/messages",
        "POST https://api.llm.example/v1/files",
        "GET https://api.llm.example/",
    ];
    check_whole(
        text,
        &requests,
        expect![[r#"
        POST https://api.llm.example/v1/messages -> allow: net.allow[0]
        POST https://api.llm.example/v1/files -> deny: net.deny[0]
        GET https://api.llm.example/ -> deny: net.deny[0]
    "#]],
    );
}

#[test]
fn a_destination_is_spared_a_deny_only_for_a_bound_secret_that_goes_there() {
    let admit = |rules: &str, to: &str| {
        let text = format!(
            "version: 1\nnet: {{enabled: true, {rules}}}\nsecrets: {{KEY: {{from: {{env: KEY}}, hosts: [h.example], header: x-api-key}}}}\n"
        );
        match whole(&text).admit(&Destination::parse(to).unwrap()) {
            Admission::Deny(decision) => decision.to_string(),
            Admission::Inspect => "inspect".to_owned(),
            other => panic!("{other:?}"),
        }
    };
    let with = "allow: [{host: h.example, secret: KEY}]";
    let without = "allow: [h.example]";
    let sparing = "deny: [{host: h.example, unless: secret}]";
    let plain = "deny: [h.example]";
    assert_eq!(admit(&format!("{with}, {sparing}"), "h.example:443"), "inspect");
    assert_eq!(admit(&format!("{without}, {sparing}"), "h.example:443"), "deny: net.deny[0]");
    assert_eq!(admit(&format!("{with}, {plain}"), "h.example:443"), "deny: net.deny[0]");
    assert_eq!(admit(&format!("{with}, {sparing}"), "h.example:8443"), "deny: net.deny[0]");
    // A deny with a condition is for requests, not for the destination.
    let some = "deny: [{host: h.example, methods: [POST], unless: secret}]";
    assert_eq!(admit(&format!("{without}, {some}"), "h.example:443"), "inspect");
}

#[test]
fn where_a_rule_with_a_secret_matches_it_alone_decides() {
    let text = "version: 1
net:
  enabled: true
  allow:
    - {host: h.example, methods: [GET, POST]}
    - {host: h.example, methods: [POST], paths: [/v1/messages], secret: KEY}
secrets: {KEY: {from: {env: KEY}, hosts: [h.example], header: x-api-key}}
";
    check_whole(
        text,
        &[
            "POST https://h.example/v1/messages",
            "POST https://h.example/v1/files",
            "GET https://h.example/v1/messages",
            // What a server that ignores case, a parameter or a last slash would read.
            "POST https://h.example/v1/Messages",
            "POST https://h.example/v1/messages;x",
            "POST https://h.example/v1/messages/",
        ],
        expect![[r#"
            POST https://h.example/v1/messages -> allow: net.allow[1]
            POST https://h.example/v1/files -> allow: net.allow[0]
            GET https://h.example/v1/messages -> allow: net.allow[0]
            POST https://h.example/v1/Messages -> deny: rules allow it on different terms
            POST https://h.example/v1/messages;x -> deny: rules allow it on different terms
            POST https://h.example/v1/messages/ -> deny: rules allow it on different terms
        "#]],
    );
}

#[test]
fn what_a_server_could_read_as_bound_is_not_let_pass_by_observing() {
    let policy = whole(
        "version: 1
net: {enabled: true, mode: observe, allow: [{host: h.example, methods: [POST], paths: [/v1/messages], secret: KEY}]}
secrets: {KEY: {from: {env: KEY}, hosts: [h.example], header: x-api-key}}
",
    );
    let passes = |path: &str, other: Option<Method>| {
        let asked = SampleRequest::new("POST", &format!("https://h.example{path}")).unwrap();
        let question = PolicyQuestion { override_method: other, ..asked.question() };
        policy.decide(&question).is_unmatched()
    };
    assert!(passes("/v1/files", None));
    for path in ["/v1/messages;x", "/v1/Messages", "/v1/messages/"] {
        assert!(!passes(path, None), "{path}");
    }
    assert!(!passes("/v1/messages", Some(Method::Patch)));
}

#[test]
fn a_websocket_is_no_way_around_a_secret() {
    check_whole(
        "version: 1
net:
  enabled: true
  allow:
    - {host: h.example, paths: [/v1/models], secret: KEY}
    - {host: h.example, websocket: true}
secrets: {KEY: {from: {env: KEY}, hosts: [h.example], header: x-api-key}}
",
        &[
            "GET https://h.example/v1/models",
            "GET wss://h.example/v1/models",
            "GET wss://h.example/live",
        ],
        expect![[r#"
            GET https://h.example/v1/models -> allow: net.allow[0]
            GET wss://h.example/v1/models -> deny: rules allow it on different terms
            GET wss://h.example/live -> allow: net.allow[1]
        "#]],
    );
}

#[test]
fn a_sparing_deny_changes_nothing_where_it_does_not_match() {
    let text = "version: 1
net:
  enabled: true
  allow: [h.example, {host: h.example, secret: KEY}]
  deny: [{host: h.example, paths: [/admin], unless: secret}, {host: h.example, paths: [/gone]}]
secrets: {KEY: {from: {env: KEY}, hosts: [h.example], header: x-api-key}}
";
    check_whole(
        text,
        &["GET https://h.example/", "GET https://h.example/admin", "GET https://h.example/gone"],
        expect![[r#"
            GET https://h.example/ -> allow: net.allow[1]
            GET https://h.example/admin -> allow: net.allow[1]
            GET https://h.example/gone -> deny: net.deny[1]
        "#]],
    );
}
