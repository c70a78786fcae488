use std::time::Duration;

use expect_test::expect;
use policies::{Destination, HostName, NoFiles, Source};
use uuid::Uuid;

use super::*;
use crate::limits::{LimitKind, LimitReached};

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
        limit: LimitKind::RequestsPerMinute,
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
    let told =
        wire(&Refusal::Policy(Denial::not_done_yet(policies::NotDoneYet::Secret, rule)), false);
    assert!(told.contains("\nx-sluice-rule: net.allow[0]??Evil: 1?\n"), "{told}");
}

/// What a record says of each refusal, beside what the sandbox is told.
#[test]
fn each_refusal_is_recorded_as_what_it_is() {
    let mut table = String::new();
    for refusal in page::samples() {
        let verdict = refusal.verdict().map(|verdict| format!("{verdict:?}"));
        let rule = refusal.rule().map(|rule| rule.as_str().to_owned());
        table.push_str(&format!(
            "{} {} {:?} {} {}\n",
            refusal.code(),
            refusal.status(),
            refusal.outcome(),
            verdict.as_deref().unwrap_or("-"),
            rule.as_deref().unwrap_or("-"),
        ));
    }
    expect![[r#"
        ambiguous 400 Refused Deny -
        audit_unavailable 503 Failed - -
        bad_authority 400 Refused Deny -
        bad_authority 400 Refused Deny -
        body_not_checkable 403 Refused Deny net.allow[0]
        body_too_large 413 Refused Deny -
        budget_spent 403 Refused Deny -
        budget_spent 403 Refused Deny -
        rate_limited 429 Refused Deny -
        cap_reached 403 Refused Deny -
        client_gone 400 Failed - -
        denied 403 Refused Deny -
        handshake_failed 400 Refused Deny -
        head_too_large 431 Refused Deny -
        idle 408 Failed - -
        malformed 400 Refused Deny -
        denied 403 Refused Deny -
        name_mismatch 421 Refused Deny -
        no_server_name 400 Refused Deny -
        opening_timeout 408 Refused Deny -
        ambiguous 400 Refused Deny -
        malformed 400 Refused Deny -
        denied 403 Refused Deny -
        secret_unavailable 403 Refused Deny net.allow[0]
        sealed_name_unreadable 403 Refused Deny -
        denied 403 Refused Deny -
        upstream_unreachable 502 Failed - -
        upstream_malformed 502 Failed - -
        upstream_timeout 504 Failed - -
        upstream_malformed 502 Failed - -
        websocket_malformed 400 Refused Deny -
        upstream_unreachable 502 Failed - -
        destination_forbidden 403 Refused Deny -
        upstream_unreachable 502 Failed - -
        upstream_incompatible 502 Failed - -
        upstream_unreachable 502 Failed - -
        upstream_unresolved 502 Failed - -
        upstream_timeout 504 Failed - -
        upstream_untrusted 502 Failed - -
        upstream_proxy_failed 502 Failed - -
        network_off 403 Refused Deny -
        no_rule 403 Refused Deny -
        terms_differ 403 Refused Deny -
        not_approved 403 Refused Ask net.allow[0]
        denied 403 Refused Deny net.allow[0]
    "#]]
    .assert_eq(&table);
}

#[test]
fn whoever_could_change_something_is_told_what() {
    let mut table = String::new();
    for refusal in page::samples() {
        if let Some(hint) = refusal.hint() {
            table.push_str(&format!("{}: {hint}\n", refusal.code()));
        }
    }
    expect![[r#"
        body_too_large: raise `net.limits.body` in the policy
        budget_spent: raise `net.limits.upload` in the policy
        budget_spent: raise `net.limits.download` in the policy
        rate_limited: wait, or raise `net.limits.requests_per_minute` in the policy
        name_mismatch: open a connection of its own to that host; each host is judged by itself
    "#]]
    .assert_eq(&table);
}

#[test]
fn a_path_is_ambiguous_where_servers_differ_and_malformed_where_none_would_read_it() {
    for (fault, code) in [
        (PathFault::Backslash, "ambiguous"),
        (PathFault::Control, "malformed"),
        (PathFault::DotSegment, "ambiguous"),
        (PathFault::DoubleEscape, "ambiguous"),
        (PathFault::EmptySegment, "ambiguous"),
        (PathFault::Encoding, "ambiguous"),
        (PathFault::Escape, "malformed"),
        (PathFault::Length, "malformed"),
        (PathFault::Parameters, "ambiguous"),
    ] {
        assert_eq!(path_code(fault), code, "{fault:?}");
    }
}

/// Titles for people, statuses for gRPC's clients.
#[test]
fn each_status_has_a_title_and_a_status_of_grpc() {
    let mut told: Vec<String> = page::samples()
        .iter()
        .map(|refusal| {
            let reply = Reply::new(refusal, Uuid::nil());
            let phrase = reply.reason_phrase();
            let title = phrase.split(" (").next().unwrap_or_default().to_owned();
            let wire = reply.wire(true);
            let (_, grpc) = wire.headers.iter().find(|(name, _)| *name == "grpc-status").unwrap();
            format!("{} {title}, {grpc}", reply.status)
        })
        .collect();
    told.sort();
    told.dedup();
    expect![[r#"
        400 Bad request, 3
        403 Refused by policy, 7
        408 Bad request, 4
        413 Body too large, 8
        421 Misdirected request, 3
        429 Too many requests, 8
        431 Head too large, 8
        502 Upstream failed, 14
        503 Gateway unavailable, 14
        504 Upstream timed out, 4"#]]
    .assert_eq(&told.join("\n"));
}

#[test]
fn a_message_for_grpc_is_plain_ascii() {
    let told = wire(&Refusal::Malformed("100 % \u{e9}\n\u{7f}~".to_owned()), true);
    assert!(told.contains("\ngrpc-message: 100 %25 %C3%A9%0A%7F~ (malformed)\n"), "{told}");
}

#[test]
fn what_broke_on_our_side_is_told_by_kind_alone() {
    let closed = Refusal::UpstreamClosed("10.1.2.3 reset it".to_owned());
    let told = wire(&closed, false);
    assert!(told.contains("The upstream closed the connection.") && !told.contains("10.1.2.3"));
    assert!(closed.to_string().contains("10.1.2.3"), "the record may say it");
    let told = wire(&Refusal::AuditUnavailable(Unavailable::Closed), false);
    assert!(told.contains("The gateway cannot record requests, so it lets none pass."), "{told}");
}

#[test]
fn only_what_is_sent_over_a_websocket_violates_it() {
    for refusal in page::samples() {
        let violates = matches!(refusal, Refusal::WebSocket(_) | Refusal::UpstreamWebSocket(_));
        assert_eq!(refusal.is_websocket_violation(), violates, "{refusal}");
    }
    assert!(Refusal::WebSocket(WebSocketFault::Masked).is_websocket_violation());
    assert!(Refusal::UpstreamWebSocket(WebSocketFault::Masked).is_websocket_violation());
}

#[test]
fn a_denied_destination_is_told_the_entry_that_names_it() {
    let policy = "version: 1\nnet: {enabled: true}\n";
    let policy = policies::read(&Source::new("t.yaml", policy), &NoFiles).unwrap();
    for (to, entry) in [
        ("evil.test:443", "evil.test"),
        ("evil.test:8443", "{host: evil.test, port: 8443}"),
        ("[2001:db8::1]:8443", "{host: \"[2001:db8::1]\", port: 8443}"),
    ] {
        let to = Destination::parse(to).unwrap();
        let policies::Admission::Deny(decision) = policy.admit(&to) else { panic!("{to}") };
        let hint = Denial::of_host(&decision, &to).hint.unwrap();
        assert_eq!(hint, format!("a person could add to `net.allow`: {entry}"));
    }
}

#[test]
fn a_denied_request_names_the_method_that_a_header_asks_for() {
    let policy = "version: 1\nnet: {enabled: true, allow: [allowed.test]}\n";
    let policy = policies::read(&Source::new("t.yaml", policy), &NoFiles).unwrap();
    let to = Destination::parse("allowed.test:443").unwrap();
    for (header, named) in
        [("DELETE", ", which a header or a parameter turns into DELETE,"), ("POST", "")]
    {
        let mut headers = crate::http1_codec::fields::Fields::default();
        let text = format!("Host: allowed.test\r\nX-HTTP-Method-Override: {header}\r\n");
        headers.read(text.as_bytes(), 16).unwrap();
        let asked = crate::request::RawRequest {
            method: b"POST",
            target: b"/v1",
            authority: None,
            headers: &headers,
            version: crate::http_version::HttpVersion::Http11,
            websocket: false,
        };
        let scheme = policies::Scheme::Https;
        let request =
            crate::request::ParsedRequest::read(&asked, scheme, &to, "allowed.test").unwrap();
        let question = request.question(scheme, &to);
        let told = Denial::of_request(&policy.decide(&question), &question).detail;
        let expected =
            format!("`POST https://allowed.test:443/v1`{named} is not allowed: no rule matches");
        assert_eq!(told, expected);
    }
}
