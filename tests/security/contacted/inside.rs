//! B9 to B12 and B15: what could be carried inside something that is allowed.

use http::Request;
use tests::sandbox::read_http2;
use tests::websocket::Frame;
use tests::world::policy;
use tests::{Http2, Plan, Reply, Way, World, answering_http2, code};

/// B9: under a wildcard the client chooses the name, and the name itself is what
/// leaves, through the name server.
#[tokio::test]
async fn names_under_a_wildcard_are_paid_for_out_of_the_upload_budget() {
    const BUDGET: usize = 2048;
    for alpn in [["http/1.1", "http/1.0"], ["h2", "http/1.1"]] {
        let limits = format!("  limits: {{upload: {BUDGET}B}}\n");
        let rules = policy(&["{host: allowed.test}", "\"*.wild.test\""]);
        let world = World::new().policy(&(rules + &limits)).start().await;
        let mut spent = false;
        for index in 0..64 {
            let name = format!("{index:063x}.wild.test");
            world.resolver.answer(&name, &["10.0.0.1"]);
            let reply = match world.sandbox.tls(Way::Proxy, &name, &alpn).await {
                Ok(line) if line.alpn.as_deref() == Some(b"h2") => {
                    Http2::open(line).await.get(&format!("https://{name}/")).await
                }
                Ok(mut line) => {
                    line.send(format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n")).await;
                    line.reply().await
                }
                Err(refused) => refused,
            };
            match reply.code().as_str() {
                "destination_forbidden" => assert!(!spent, "a budget does not come back"),
                "budget_spent" => spent = true,
                other => panic!("{other}"),
            }
        }
        assert!(spent, "{alpn:?}: 64 names of 73 bytes fitted into {BUDGET}");
        let leaked: usize = world.resolver.asked().iter().map(String::len).sum();
        assert!(leaked <= BUDGET, "{alpn:?}: {leaked} bytes of names left");
        world.end().await;
    }
}

/// B10.
#[tokio::test]
async fn a_tunnel_cannot_be_asked_for_inside_a_tunnel() {
    let world = World::new().start().await;
    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    line.send("CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n").await;
    line.reply().await.assert_refused(403, "denied");
    world.assert_nobody_was_contacted();
    world.assert_still_serves().await;

    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    line.send("CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n").await;
    line.reply().await.assert_refused(403, "denied");
    world
        .audit
        .find("the record", |event| event["kind"] == "request" && code(event) == "denied")
        .await;

    // In the clear, after a request that was allowed.
    let mut line = world.sandbox.proxy().await;
    line.send("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    line.reply().await.assert_relayed(200);
    line.send("CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n").await;
    let reply = line.reply().await;
    assert_eq!(reply.status, 403, "{}", reply.text());
    let record = world.audit.find("the record of it", |event| {
        event["kind"] == "request" && event.to_string().contains("evil.test")
    });
    assert_eq!(code(&record.await), "denied");
    world.assert_nobody_was_contacted();
    world.end().await;
}

/// B10, in HTTP/2, where CONNECT has a form of its own.
#[tokio::test]
async fn a_tunnel_cannot_be_asked_for_in_a_stream() {
    let plan = answering_http2(|_| Reply { status: 200, ..Reply::default() });
    let world = World::new().upstream("allowed.test", plan).start().await;
    let mut session = world.sandbox.http2(Way::Proxy, "allowed.test").await;
    for to in ["evil.test:443", "allowed.test:443"] {
        let connect = Request::connect(to).body(()).unwrap();
        let (response, stream) = session.begin(connect, false).await;
        drop(stream);
        let reply = read_http2(response).await.unwrap();
        assert_eq!(reply.status, 403, "{}", reply.text());
        assert_eq!(reply.code(), "denied");
    }
    session.get("https://allowed.test/").await.assert_relayed(200);
    world.upstream("evil.test").assert_never_contacted();
    assert_eq!(world.upstream("allowed.test").requests().len(), 1);
    world.end().await;
}

/// B12.
#[tokio::test]
async fn http2_in_the_clear_is_no_way_past_the_judge() {
    let world = World::new().start().await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let mut lines = vec![world.sandbox.proxy().await, world.sandbox.captured_http().await];
    lines.push(world.sandbox.connect("allowed.test:443").await.unwrap());
    lines.push(world.sandbox.tunnel(Way::Socks, "allowed.test", 80).await.unwrap());
    for mut line in lines {
        line.send(preface).await;
        let reply = line.reply().await;
        assert_eq!(reply.status, 400, "{}", reply.text());
        line.assert_ends().await;
    }
    world.upstream("allowed.test").assert_never_contacted();

    // An upgrade is not passed on, so nothing is upgraded.
    let reply = world
        .sandbox
        .ask("GET", "http://allowed.test/")
        .header("Connection", "Upgrade, HTTP2-Settings")
        .header("Upgrade", "h2c")
        .header("HTTP2-Settings", "AAMAAABkAAQCAAAAAAIAAAAA")
        .send()
        .await;
    reply.assert_relayed(200);
    let received = world.upstream("allowed.test").requests().pop().unwrap();
    for hidden in ["upgrade", "http2-settings"] {
        assert_eq!(received.header(hidden), None, "{hidden} went through");
    }
    assert!(received.header("connection").is_none_or(|value| !value.contains("pgrade")));
    world.end().await;
}

/// B12, with an upstream that switches without having been asked.
#[tokio::test]
async fn an_upstream_that_upgrades_by_itself_is_not_believed() {
    let plan = Plan::sending(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nblind",
    );
    let world = World::new().upstream("allowed.test", plan).start().await;
    for headers in ["", "Connection: Upgrade\r\nUpgrade: h2c\r\n"] {
        let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &[]).await.unwrap();
        line.send(format!("GET / HTTP/1.1\r\nHost: allowed.test\r\n{headers}\r\n")).await;
        line.reply().await.assert_refused(502, "upstream_malformed");
        world.audit.refused("allowed.test", "upstream_malformed").await;
    }
    world.end().await;
}

/// B15: a WebSocket can carry anything, so a rule for requests is no rule for it.
#[tokio::test]
async fn a_websocket_needs_a_rule_of_its_own() {
    let world = World::allowing(&["{host: allowed.test}", "{host: ws.test, websocket: true}"])
        .upstream("allowed.test", Plan::websocket_echo())
        .upstream("ws.test", Plan::websocket_echo())
        .start()
        .await;
    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    line.send(upgrade("allowed.test")).await;
    line.reply().await.assert_refused(403, "no_rule");
    world.upstream("allowed.test").assert_never_contacted();
    world.audit.refused("allowed.test", "no_rule").await;

    // And the other way round: its rule lets no plain request through.
    world.sandbox.get("https://ws.test/").await.assert_refused(403, "no_rule");
    world.upstream("ws.test").assert_never_contacted();
    world.audit.refused("ws.test", "no_rule").await;

    let mut line = world.sandbox.tls(Way::Proxy, "ws.test", &["http/1.1"]).await.unwrap();
    line.send(upgrade("ws.test")).await;
    assert_eq!(line.reply().await.status, 101);
    drop(line);
    world.end().await;
}

/// B15: and what it carries is counted and timed.
#[tokio::test]
async fn a_websocket_has_an_end() {
    let rules = policy(&["{host: allowed.test}", "{host: ws.test, websocket: true}"]);
    for (limits, reason) in [
        ("upload: 8KiB", "budget_spent"),
        ("download: 8KiB", "budget_spent"),
        ("total: 1s", "cap_reached"),
        ("idle: 1s", "idle"),
    ] {
        let world = World::new()
            .policy(&format!("{rules}  limits: {{{limits}}}\n"))
            .upstream("ws.test", Plan::websocket_echo())
            .start()
            .await;
        let mut line = world.sandbox.tls(Way::Proxy, "ws.test", &["http/1.1"]).await.unwrap();
        line.send(upgrade("ws.test")).await;
        assert_eq!(line.reply().await.status, 101);
        let mut echoed = 0;
        let frame = Frame::text(&"x".repeat(1000));
        // With an idle limit nothing is sent; else until nobody answers.
        while !limits.starts_with("idle") && echoed < 2000 {
            if line.try_send(&frame.bytes(true)).await.is_err() {
                break;
            }
            let some = line.some().await;
            if some.is_empty() {
                break;
            }
            echoed += 1;
            if limits.starts_with("total") {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
        line.rest().await;
        let record = world.audit.refused("ws.test", reason).await;
        assert_eq!(code(&record), reason);
        if limits.contains("load") {
            assert!(echoed < 10, "{limits}: {echoed} messages went through");
        }
        world.end().await;
    }
}

fn upgrade(host: &str) -> String {
    format!(
        "GET /chat HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}
