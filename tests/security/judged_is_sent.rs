//! C18: a header that is judged is the header that is sent, and the only one
//! that a server behind us could take for it.

mod forged;
mod overrides;
mod parameters;
mod trailers;

use tests::sandbox::Ask;
use tests::{Plan, Received, Reply, Way, World, answering_http2};

/// Requests need `x-mode: safe`, and never pass with `x-danger: on`.
const BY_HEADER: &str = "\
version: 1
net:
  enabled: true
  allow:
    - {name: still-here, host: allowed.test, paths: [/still-here]}
    - {name: safe, host: allowed.test, methods: [GET, POST], paths: [/by-header], headers: {x-mode: safe}}
    - {name: calm, host: allowed.test, methods: [GET, POST], paths: [/calm]}
  deny:
    - {name: danger, host: allowed.test, headers: {x-danger: 'on'}}
";

/// `allowed.test` over HTTP/1.1 or HTTP/2, under a policy.
pub(crate) async fn world_over(http2: bool, policy: &str) -> World {
    let plan = if http2 { echoing_http2() } else { Plan::echoing() };
    World::new().policy(policy).upstream("allowed.test", plan).start().await
}

fn echoing_http2() -> Plan {
    answering_http2(|asked: &Received| Reply {
        status: 200,
        body: format!("{asked:?}").into_bytes(),
        ..Reply::default()
    })
}

/// A request over the protocol of [`world_over`].
pub(crate) fn ask<'w>(world: &'w World, http2: bool, method: &str, path: &str) -> Ask<'w> {
    let ask = world.sandbox.ask(method, &format!("https://allowed.test{path}"));
    if http2 { ask.over_http2() } else { ask }
}

/// No request reached the upstream. A connection may have: that is how the gateway
/// learns whether it speaks HTTP/2.
#[track_caller]
pub(crate) fn assert_nothing_was_asked(world: &World) {
    let requests = world.upstream("allowed.test").requests();
    assert!(requests.is_empty(), "{requests:?}");
}

pub(crate) async fn assert_still_serves(world: &World, http2: bool) {
    ask(world, http2, "GET", "/still-here").send().await.assert_relayed(200);
}

/// C18: `Connection` takes a header away before it is judged, not after.
#[tokio::test]
async fn a_header_that_is_nominated_away_does_not_count() {
    let world = world_over(false, BY_HEADER).await;
    for nominated in ["x-mode", "X-MODE", "close, x-mode", "x-other\r\nConnection: x-mode"] {
        let reply = ask(&world, false, "GET", "/by-header")
            .header("x-mode", "safe")
            .header("Connection", nominated)
            .send()
            .await;
        reply.assert_refused(403, "no_rule");
    }
    assert_nothing_was_asked(&world);
    // What is not sent cannot do harm either.
    let reply = ask(&world, false, "GET", "/calm")
        .header("x-danger", "on")
        .header("Connection", "x-danger")
        .send()
        .await;
    reply.assert_relayed(200);
    assert!(!world.upstream("allowed.test").received().contains("x-danger"));
    world.end().await;
}

/// C18: what says where a message ends or whom it is for is not for `Connection`
/// to take away.
#[tokio::test]
async fn what_frames_or_routes_cannot_be_nominated() {
    let world = World::new().start().await;
    for nominated in ["host", "Content-Length", "close, HOST"] {
        let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
        line.send(format!(
            "POST / HTTP/1.1\r\nHost: allowed.test\r\nConnection: {nominated}\r\n\
             Content-Length: 1\r\n\r\nx"
        ))
        .await;
        line.reply().await.assert_refused(400, "malformed");
        line.assert_ends().await;
    }
    assert_nothing_was_asked(&world);
    world.assert_still_serves().await;
    world.end().await;
}

/// C18: CGI and its descendants read every punctuation mark in a name as `_`.
#[tokio::test]
async fn a_second_spelling_of_a_judged_header_is_judged_too() {
    for http2 in [false, true] {
        let world = world_over(http2, BY_HEADER).await;
        for name in ["x_danger", "x.danger", "x!danger", "x~danger", "X-Danger"] {
            let reply = ask(&world, http2, "GET", "/calm").header(name, "on").send().await;
            reply.assert_refused(403, "denied");
        }
        for name in ["x_mode", "x.mode"] {
            let reply = ask(&world, http2, "GET", "/by-header").header(name, "safe").send().await;
            reply.assert_refused(403, "no_rule");
        }
        let list = ask(&world, http2, "GET", "/calm").header("x-danger", "off, on").send().await;
        list.assert_refused(403, "denied");
        assert_nothing_was_asked(&world);
        assert_still_serves(&world, http2).await;
        world.end().await;
    }
}

/// C18: two spellings of one name in one request: which one counts is the
/// server's secret, and `X-Mode` beside `x-mode` is no second spelling.
#[tokio::test]
async fn two_spellings_of_one_name_are_ambiguous() {
    for http2 in [false, true] {
        let world = world_over(http2, BY_HEADER).await;
        for second in ["x_mode", "x.mode", "X_Mode", "x|mode"] {
            let reply = ask(&world, http2, "GET", "/by-header")
                .header("x-mode", "safe")
                .header(second, "evil")
                .send()
                .await;
            reply.assert_refused(400, "ambiguous");
            assert!(reply.text().contains("x-mode"), "{}", reply.text());
        }
        assert_nothing_was_asked(&world);
        let reply = ask(&world, http2, "GET", "/by-header")
            .header("x-mode", "safe")
            .header("accept", "a/b")
            .header("Accept", "c/d")
            .header("session_id", "1")
            .send()
            .await;
        reply.assert_relayed(200);
        world.end().await;
    }
}

/// C18: a name that some servers read as one that frames, routes or identifies.
#[tokio::test]
async fn a_misspelt_control_field_is_refused() {
    for http2 in [false, true] {
        let world = world_over(http2, tests::world::ONE_HOST).await;
        for (name, value) in [
            ("Content_Length", "44"),
            ("Transfer_Encoding", "chunked"),
            ("transfer.encoding", "chunked"),
            ("Content_Type", "application/x-www-form-urlencoded"),
            ("content!encoding", "gzip"),
            ("proxy_authorization", "Basic eDp5"),
            ("Keep_Alive", "5"),
            ("http2_settings", "AAMAAABkAAQAAP__"),
        ] {
            let reply =
                ask(&world, http2, "POST", "/x").header(name, value).body("hello").send().await;
            reply.assert_refused(400, "ambiguous");
        }
        assert_nothing_was_asked(&world);
        assert_still_serves(&world, http2).await;
        world.end().await;
    }
}

/// What is between a client and us, or speaks with our voice, stays here.
#[tokio::test]
async fn our_own_and_hop_by_hop_fields_are_not_sent() {
    for http2 in [false, true] {
        let world = world_over(http2, tests::world::ONE_HOST).await;
        let mut asked = ask(&world, http2, "GET", "/x")
            .header("x-sluice-code", "1")
            .header("X-Sluice-Request-Id", "2")
            .header("x_sluice_rule", "3")
            .header("proxy-authorization", "4")
            .header("proxy-authenticate", "5")
            .header("http2-settings", "6")
            .header("x-kept", "7");
        if !http2 {
            asked = asked.header("Keep-Alive", "8").header("Proxy-Connection", "9");
        }
        asked.send().await.assert_relayed(200);
        let received = world.upstream("allowed.test").requests().pop().unwrap();
        let names: Vec<&str> = received.headers.iter().map(|(name, _)| name.as_str()).collect();
        let expected: &[&str] = if http2 { &["x-kept"] } else { &["host", "x-kept"] };
        assert_eq!(names, expected);
        world.end().await;
    }
}
