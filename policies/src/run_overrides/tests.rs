//! A run may be stricter, and wider only as far as the policy says.

use expect_test::{Expect, expect};

use super::*;
use crate::{NoFiles, SampleRequest, Source, read};

const POLICY: &str = "version: 1
proc: {memory: 2GiB, pids: 100}
net: {enabled: true, allow: [a.example]}
overrides: {allow: ['*.example.org'], max: {memory: 4GiB, timeout: 1h}}
";

#[test]
fn less_is_always_permitted_and_more_up_to_the_maximum() {
    let wanted = RunOverrides {
        allow: vec![HostPattern::parse("b.example.org").unwrap()],
        proc: ProcLimits {
            memory: size("3GiB"),
            pids: Some(10),
            timeout: span("30m"),
            ..ProcLimits::default()
        },
        ..RunOverrides::default()
    };
    let policy = policy().for_run(&wanted).unwrap();
    assert_eq!((policy.proc.memory, policy.proc.pids), (size("3GiB"), Some(10)));
    let asked = SampleRequest::new("GET", "https://b.example.org/").unwrap();
    assert_eq!(policy.decide(&asked.question()).to_string(), "allow: run.allow[0]");
    let asked = SampleRequest::new("POST", "https://b.example.org/").unwrap();
    assert_eq!(policy.decide(&asked.question()).to_string(), "deny: no rule matches");
}

#[test]
fn an_added_host_is_https_on_443_with_a_safe_method_and_no_websocket() {
    let wanted = RunOverrides {
        allow: vec![HostPattern::parse("b.example.org").unwrap()],
        ..RunOverrides::default()
    };
    let policy = policy().for_run(&wanted).unwrap();
    let answer = |method: &str, url: &str| {
        let asked = SampleRequest::new(method, url).unwrap();
        policy.decide(&asked.question()).to_string()
    };
    assert_eq!(answer("HEAD", "https://b.example.org/any/path"), "allow: run.allow[0]");
    for (method, url) in [
        ("GET", "http://b.example.org/"),
        ("GET", "http://b.example.org:443/"),
        ("GET", "https://b.example.org:80/"),
        ("GET", "https://b.example.org:8443/"),
        ("GET", "wss://b.example.org/"),
        ("PUT", "https://b.example.org/"),
        ("GET", "https://c.example.org/"),
    ] {
        assert_eq!(answer(method, url), "deny: no rule matches", "{method} {url}");
    }
    let private = "10.0.0.1:443".parse().unwrap();
    let to = crate::Destination::parse("b.example.org:443").unwrap();
    assert!(policy.reach_of(&to).check(private).is_err(), "public addresses alone");
    let added = policy.rules().find(|rule| rule.id() == "run.allow[0]").unwrap();
    assert_eq!(added.summary(), "b.example.org");
}

#[test]
fn everything_beyond_is_refused_at_once_with_what_is_permitted() {
    check(
        &RunOverrides {
            allow: vec![
                HostPattern::parse("evil.example").unwrap(),
                HostPattern::parse("*.org.uk.example").unwrap(),
            ],
            proc: ProcLimits {
                memory: size("5GiB"),
                pids: Some(101),
                timeout: span("2h"),
                ..ProcLimits::default()
            },
            observe: true,
            no_sandbox: true,
        },
        expect![[r#"
            `evil.example` is not among the hosts that a run may add; the policy permits `*.example.org`
            `*.org.uk.example` is not among the hosts that a run may add; the policy permits `*.example.org`
            memory `5GiB` is more than the policy permits, which is `4GiB`
            pids `101` is more than the policy permits, which is `100`
            timeout `2h` is more than the policy permits, which is `1h`
            observing is not permitted; the policy would need `overrides: {observe: true}`
            running without a sandbox is not permitted; the policy would need `overrides: {no_sandbox: true}`"#]],
    );
}

#[test]
fn an_added_host_is_still_subject_to_every_deny() {
    let text = "version: 1\nnet: {enabled: true, deny: [bad.example.org]}\noverrides: {allow: ['*.example.org']}\n";
    let policy = read(&Source::new("p", text), &NoFiles).unwrap();
    let wanted = RunOverrides {
        allow: vec![HostPattern::parse("bad.example.org").unwrap()],
        ..RunOverrides::default()
    };
    let policy = policy.for_run(&wanted).unwrap();
    let asked = SampleRequest::new("GET", "https://bad.example.org/").unwrap();
    assert_eq!(policy.decide(&asked.question()).to_string(), "deny: net.deny[0]");
}

#[test]
fn a_run_cannot_turn_on_a_network_that_the_policy_turned_off() {
    let text = "version: 1\nextends: [deny-all]\noverrides: {allow: ['*.example.org']}\n";
    let policy = read(&Source::new("p", text), &NoFiles).unwrap();
    let wanted = RunOverrides {
        allow: vec![HostPattern::parse("a.example.org").unwrap()],
        ..RunOverrides::default()
    };
    assert_eq!(policy.for_run(&wanted).unwrap_err(), [NotPermitted::NetworkOff]);
}

fn policy() -> Policy {
    read(&Source::new("p", POLICY), &NoFiles).unwrap()
}

fn size(text: &str) -> Option<Size> {
    Size::parse(text).ok()
}

fn span(text: &str) -> Option<Span> {
    Span::parse(text).ok()
}

#[track_caller]
fn check(wanted: &RunOverrides, expected: Expect) {
    let beyond = policy().for_run(wanted).unwrap_err();
    let lines: Vec<String> = beyond.iter().map(ToString::to_string).collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn a_destination_reaches_what_its_rules_name_and_no_other_does() {
    let text = "version: 1\nnet:\n  enabled: true\n  allow:\n  - {host: a.test, addresses: [10.1.0.0/16]}\n  - {host: b.test}\n";
    let policy = read(&Source::new("p", text), &NoFiles).unwrap_or_else(|err| panic!("{err}"));
    let reaches = |to: &str, address: &str| {
        let to = crate::Destination::parse(to).unwrap();
        policy.reach_of(&to).check(address.parse().unwrap()).is_ok()
    };
    assert!(reaches("a.test:443", "10.1.0.1:443"));
    assert!(!reaches("a.test:443", "10.2.0.1:443"));
    assert!(!reaches("a.test:8443", "10.1.0.1:8443"), "no rule is about this port");
    assert!(!reaches("b.test:443", "10.1.0.1:443"));
}

#[test]
fn a_run_may_have_all_that_is_permitted() {
    let proc = ProcLimits { memory: size("4GiB"), pids: Some(100), ..ProcLimits::default() };
    let wanted = RunOverrides { proc, ..RunOverrides::default() };
    let policy = policy().for_run(&wanted).unwrap();
    assert_eq!((policy.proc.memory, policy.proc.pids), (size("4GiB"), Some(100)));
}
