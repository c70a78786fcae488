//! Headers by name, and paths that a request names besides its own.

use super::*;
use crate::HeaderName;

/// The answers to a request with each of these headers.
fn answers(policy: &Policy, method: &str, url: &str, headers: &[(&str, &str)]) -> String {
    let headers =
        headers.iter().map(|(name, value)| (HeaderName::parse(name).unwrap(), (*value).to_owned()));
    let asked = SampleRequest::new(method, url).and_then(|asked| asked.with_headers(headers));
    match asked {
        Ok(asked) => policy.decide(&asked.question()).to_string(),
        Err(refused) => refused,
    }
}

#[test]
fn a_deny_holds_for_any_spelling_of_a_header_and_an_allow_for_one() {
    let policy = policy(
        "allow: [{host: h.example, headers: {x-mode: safe}}, {host: i.example}]
         deny: [{host: i.example, headers: {x-mode: evil}}]",
    );
    let allow = |headers: &[(&str, &str)]| answers(&policy, "GET", "https://h.example/", headers);
    assert_eq!(allow(&[("x-mode", "safe")]), "allow: net.allow[0]");
    assert_eq!(allow(&[("X-Mode", "safe")]), "allow: net.allow[0]");
    assert_eq!(allow(&[("x_mode", "safe")]), "deny: no rule matches");
    assert_eq!(allow(&[("x-mode", "safe, evil")]), "deny: no rule matches");
    assert_eq!(allow(&[("x-mode", "safe"), ("x-mode", "safe")]), "deny: no rule matches");
    assert_eq!(
        allow(&[("x-mode", "safe"), ("x.mode", "evil")]),
        "some servers read the headers `x.mode` and `x-mode` as one; send one of them"
    );
    let deny = |headers: &[(&str, &str)]| answers(&policy, "GET", "https://i.example/", headers);
    for name in ["x-mode", "x_mode", "X.MODE"] {
        assert_eq!(deny(&[(name, "evil")]), "deny: net.deny[0]", "{name}");
        assert_eq!(deny(&[(name, "a,evil ,b")]), "deny: net.deny[0]", "{name}");
        assert_eq!(deny(&[(name, "fine")]), "allow: net.allow[1]", "{name}");
    }
}

#[test]
fn a_path_that_is_named_besides_must_be_allowed_too() {
    let policy = policy(
        "allow: [{host: h.example, methods: [GET, POST], paths: ['/a/**']}]
         ask: [{host: h.example, paths: ['/a/b/**']}]
         deny: [{host: h.example, paths: ['/a/c/**']}]",
    );
    let with = |value: &str| {
        answers(&policy, "GET", "https://h.example/a/x", &[("x-original-url", value)])
    };
    assert_eq!(with("/a/y"), "allow: net.allow[0]");
    assert_eq!(with("/a/b/y"), "ask: net.ask[0]");
    assert_eq!(with("/a/c/y"), "deny: net.deny[0]");
    assert_eq!(with("/z"), "deny: no rule matches");
    let both = [("x-original-url", "/a/b/y"), ("x-rewrite-url", "/a/c/y")];
    assert_eq!(answers(&policy, "GET", "https://h.example/a/x", &both), "deny: net.deny[0]");
    // The method that is named is tried on the path that is named.
    let both = [("x-original-url", "/a/y"), ("x-http-method", "DELETE")];
    assert_eq!(answers(&policy, "POST", "https://h.example/a/x", &both), "deny: no rule matches");
}

#[test]
fn a_query_that_is_named_besides_is_judged() {
    let policy = policy(
        "allow: [{host: h.example, paths: ['/a/**']}]
         deny: [{host: h.example, paths: ['/a/**'], query: {mode: delete}}]",
    );
    let with = |value: &str| {
        answers(&policy, "GET", "https://h.example/a/x", &[("x-original-url", value)])
    };
    assert_eq!(with("/a/y?mode=show"), "allow: net.allow[0]");
    assert_eq!(with("/a/y?mode=delete"), "deny: net.deny[0]");
}

#[test]
fn a_path_that_is_named_besides_does_not_dodge_a_check_of_the_body() {
    let policy = policy(
        "allow: [{host: git.example, methods: [POST], paths: [/free]},
                 {git: git.example/acme/widgets, access: push, refs: [refs/heads/x]}]",
    );
    let asked = |first: &str, besides: &str| {
        let header = (HeaderName::parse("x-original-url").unwrap(), besides.to_owned());
        let asked = SampleRequest::new("POST", &format!("https://git.example{first}")).unwrap();
        asked.with_headers([header]).unwrap()
    };
    let push = "/acme/widgets.git/git-receive-pack";
    for asked in [asked("/free", push), asked(push, "/free")] {
        let decision = policy.decide(&asked.question());
        assert_eq!(decision.verdict, Verdict::Deny, "{decision}");
    }
    let decision = policy.decide(&asked("/free", "/free").question()).to_string();
    assert_eq!(decision, "allow: net.allow[0]");
}

#[test]
fn a_rule_cannot_be_about_a_header_that_is_not_sent_on() {
    for name in ["connection", "Host", "te", "transfer-encoding", "x-sluice-code", "keep_alive"] {
        let text =
            format!("version: 1\nnet: {{allow: [{{host: h.example, headers: {{{name}: a}}}}]}}\n");
        let problems = read(&Source::new("p", text.as_str()), &NoFiles).unwrap_err().to_string();
        assert!(problems.contains("no rule can be about the header"), "{name}: {problems}");
    }
    let text = "version: 1\nnet: {allow: [{host: h.example, headers: {content-type: a}}]}\n";
    assert!(read(&Source::new("p", text), &NoFiles).is_ok());
}

#[test]
fn a_policy_knows_which_headers_it_judges() {
    let policy = policy("deny: [{host: h.example, headers: {x-mode: evil}}]");
    for (name, judged) in [("x-mode", true), ("X_Mode", true), ("x-modes", false), ("a", false)] {
        assert_eq!(policy.judges_header(name.as_bytes()), judged, "{name}");
    }
}
