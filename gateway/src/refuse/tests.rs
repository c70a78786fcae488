use std::time::Duration;

use expect_test::expect;
use policies::{Destination, HostName, NoFiles, Source};
use uuid::Uuid;

use super::*;
use crate::limits::{Limit, LimitReached};

fn denial() -> Refusal {
    let text = "version: 1\nname: t\nnet:\n  enabled: true\n  allow: [allowed.test]\n";
    let policy = policies::read(&Source::new("t.yaml", text), &NoFiles).unwrap();
    let to = Destination { host: HostName::parse("evil.test").unwrap().into(), port: 443 };
    match policy.admit(&to) {
        policies::Admission::Deny(decision) => Refusal::Policy(Denial::of_host(&decision, &to)),
        other => panic!("{other:?}"),
    }
}

fn wire(refusal: &Refusal, grpc: bool) -> String {
    let wire = Reply::new(refusal, Uuid::nil()).wire(grpc);
    let mut text = format!("{}\n", wire.status);
    for (name, value) in &wire.headers {
        text.push_str(&format!("{name}: {value}\n"));
    }
    text + &String::from_utf8(wire.body).unwrap()
}

#[test]
fn a_refusal_says_what_why_and_what_to_change() {
    expect![[r#"
        403
        content-type: application/problem+json
        cache-control: no-store
        x-sluice-code: no_rule
        x-sluice-request-id: 00000000-0000-0000-0000-000000000000
        {"type":"about:blank","title":"Refused by policy","status":403,"detail":"`evil.test:443` is not allowed: no rule matches","code":"no_rule","request_id":"00000000-0000-0000-0000-000000000000","hint":"a person could add to `net.allow`: evil.test"}
    "#]]
    .assert_eq(&wire(&denial(), false));
}

#[test]
fn a_grpc_client_gets_a_status_it_understands() {
    expect![[r#"
        200
        content-type: application/grpc
        grpc-status: 7
        grpc-message: `evil.test:443` is not allowed: no rule matches (no_rule); a person could add to `net.allow`: evil.test
        cache-control: no-store
        x-sluice-code: no_rule
        x-sluice-request-id: 00000000-0000-0000-0000-000000000000
    "#]]
    .assert_eq(&wire(&denial(), true));
}

#[test]
fn a_rate_limit_says_when_to_come_back() {
    let reached = LimitReached {
        limit: Limit::RequestsPerMinute,
        value: 600,
        reached: 601,
        retry_after: Some(Duration::from_millis(1500)),
    };
    let told = wire(&reached.into(), false);
    assert!(told.contains("\nretry-after: 2\n"), "{told}");
    assert!(told.starts_with("429\n"), "{told}");
}

#[test]
fn an_inner_address_is_not_told() {
    let refused = policies::Reach::public().check("10.1.2.3:443".parse().unwrap()).unwrap_err();
    let to = Destination { host: HostName::parse("inner.test").unwrap().into(), port: 443 };
    let refusal = Refusal::Dial(DialError::Forbidden { to, first: refused });
    let told = wire(&refusal, false);
    assert!(told.contains("\"code\":\"destination_forbidden\""), "{told}");
    assert!(told.contains("a private address"), "{told}");
    assert!(!told.contains("10.1.2.3"), "{told}");
    assert!(refusal.to_string().contains("10.1.2.3"), "the record may say it");
}

#[test]
fn a_rules_name_cannot_break_a_header() {
    let rule = "net.allow[0]\r\nEvil: 1\u{e9}".into();
    let told = wire(&Refusal::SecretUnavailable { rule }, false);
    assert!(told.contains("\nx-sluice-rule: net.allow[0]??Evil: 1?\n"), "{told}");
}
