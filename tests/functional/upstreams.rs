//! Upstreams that fail, and the ways to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tests::authority::Authority;
use tests::{Peer, Plan, Received, Upstream, Way, World, until};

/// Who is not there, hangs up, says nothing or resets: each has its own words.
#[tokio::test]
async fn an_upstream_that_fails_is_told_by_how_it_fails() {
    let hangs_up = Plan::scripted(|mut peer: Peer| async move {
        peer.request().await;
    });
    let resets = Plan::scripted(|mut peer: Peer| async move {
        peer.request().await;
        peer.reset();
    });
    let half_a_head = Plan::scripted(|mut peer: Peer| async move {
        peer.request().await;
        peer.line.send("HTTP/1.1 200 OK\r\nContent-Le").await;
    });
    let no_tls = Plan::echoing();
    let world = World::allowing(&[
        "{host: allowed.test}",
        "{host: \"*.fails.test\"}",
        "{host: resolved.test}",
        "{host: nowhere.test}",
    ])
    .upstream("hangs-up.fails.test", hangs_up)
    .upstream("resets.fails.test", resets)
    .upstream("half.fails.test", half_a_head)
    .upstream("plain.fails.test", no_tls)
    .pin("closed.fails.test", closed_port())
    .start()
    .await;
    for (host, code) in [
        ("closed.fails.test", "upstream_unreachable"),
        ("hangs-up.fails.test", "upstream_unreachable"),
        ("resets.fails.test", "upstream_unreachable"),
        ("half.fails.test", "upstream"),
        ("nowhere.test", "upstream_unresolved"),
    ] {
        let reply = world.sandbox.get(&format!("https://{host}/")).await;
        assert_eq!(reply.status, 502, "{host}: {}", reply.text());
        assert!(reply.code().starts_with(code), "{host}: {}", reply.text());
        assert!(!reply.text().contains("127.0.0.1"), "no inside address: {}", reply.text());
        let record = world.audit.refused(host, &reply.code()).await;
        assert_eq!(record["sluice.outcome"], "failed");
    }
    world.assert_still_serves().await;
    world.end().await;
}

/// A port that was free a moment ago.
fn closed_port() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

#[tokio::test]
async fn a_silent_upstream_is_waited_for_and_not_for_ever() {
    let silent = Plan::scripted(|mut peer: Peer| async move {
        peer.request().await;
        peer.request().await;
    });
    let world = World::allowing(&["{host: allowed.test}", "{host: silent.test}"])
        .limits("idle: 1s")
        .upstream("silent.test", silent)
        .start()
        .await;
    let reply = world.sandbox.get("https://silent.test/").await;
    reply.assert_refused(504, "upstream_timeout");
    world.audit.refused("silent.test", "upstream_timeout").await;
    world.assert_still_serves().await;
    world.end().await;
}

/// An upstream that accepts and never answers the handshake.
#[tokio::test]
async fn a_handshake_that_does_not_come_is_not_waited_for() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let world = World::allowing(&["{host: allowed.test}", "{host: mute.test}"])
        .pin("mute.test", at)
        .upstream_settings("  timeouts: {handshake: 1s}")
        .start()
        .await;
    let reply = world.sandbox.get("https://mute.test/").await;
    reply.assert_refused(504, "upstream_timeout");
    drop(listener);
    world.assert_still_serves().await;
    world.end().await;
}

/// What broke in the middle must not look complete.
#[tokio::test]
async fn an_answer_that_breaks_off_is_broken_off() {
    for (head, body) in [
        ("Content-Length: 1000", "only this"),
        ("Transfer-Encoding: chunked", "9\r\nonly this\r\n"),
        ("Transfer-Encoding: chunked", "100\r\nonly this"),
    ] {
        let plan = Plan::scripted(move |mut peer: Peer| async move {
            peer.request().await;
            peer.line.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}")).await;
            peer.line.finish().await;
            peer.line.rest().await;
        });
        let world = World::allowing(&["{host: allowed.test}", "{host: breaks.test}"])
            .upstream("breaks.test", plan)
            .start()
            .await;
        let mut line = world.sandbox.captured_https().await;
        line = world.sandbox.handshake(line, "breaks.test", &["http/1.1"]).await.unwrap();
        line.send("GET / HTTP/1.1\r\nHost: breaks.test\r\n\r\n").await;
        tests::within("the head", line.head()).await.unwrap();
        let rest = String::from_utf8(line.rest().await).unwrap();
        assert!(rest.contains("only this"), "{head}: {rest:?}");
        assert!(!rest.contains("\r\n0\r\n"), "{head}: {rest:?}");
        let record = world.audit.find("the record", |event| {
            event["kind"] == "request" && event["server.address"] == "breaks.test"
        });
        assert_eq!(record.await["sluice.outcome"], "failed", "{head}");
        world.assert_still_serves().await;
        world.end().await;
    }
}

/// TLS says when it ends. An answer that lasts until then and is cut off on the
/// way, by whoever stands there, must not look complete.
#[tokio::test]
async fn an_answer_cut_off_under_tls_is_not_complete() {
    let plan = Plan::scripted(|mut peer: Peer| async move {
        peer.request().await;
        peer.line.send("HTTP/1.1 200 OK\r\n\r\nonly this").await;
        // The connection goes away without TLS having said goodbye.
        peer.socket.shutdown(std::net::Shutdown::Both).ok();
    });
    let world = World::allowing(&["{host: allowed.test}", "{host: cut.test}"])
        .upstream("cut.test", plan)
        .start()
        .await;
    let mut line = world.sandbox.tls(Way::Proxy, "cut.test", &["http/1.1"]).await.unwrap();
    line.send("GET / HTTP/1.1\r\nHost: cut.test\r\n\r\n").await;
    let head = tests::within("the head", line.head()).await.unwrap();
    assert_eq!(head.header("transfer-encoding"), Some("chunked"));
    let rest = String::from_utf8(line.rest().await).unwrap();
    assert!(rest.contains("only this"), "{rest:?}");
    assert!(!rest.ends_with("0\r\n\r\n"), "{rest:?}");
    drop(line);
    world.end().await;
}

/// Only what policy allowed is looked up, and once.
#[tokio::test]
async fn a_name_is_looked_up_after_policy_said_yes() {
    let world = World::allowing(&["{host: allowed.test}", "{host: found.test, paths: [/ok]}"])
        .start()
        .await;
    world.resolver.answer("found.test", &["10.0.0.7"]);
    world.sandbox.get("https://found.test/no").await.assert_refused(403, "no_rule");
    world.resolver.assert_never_asked();
    world.sandbox.get("https://found.test/ok").await.assert_refused(403, "destination_forbidden");
    assert_eq!(world.resolver.asked(), ["found.test"]);
    world.end().await;
}

/// A proxy of the operator's: everything goes through it, with its password, and
/// TLS is still between the gateway and the upstream.
#[tokio::test]
async fn the_operators_proxy_is_gone_through() {
    let proxy = Plan::scripted(|mut peer: Peer| async move {
        let Some(asked) = peer.request().await else { return };
        if asked.method != "CONNECT" {
            peer.line.send("HTTP/1.1 405 Only tunnels\r\nContent-Length: 0\r\n\r\n").await;
            return;
        }
        if asked.target.starts_with("closed.test") {
            peer.line.send("HTTP/1.1 503 Not today\r\nContent-Length: 0\r\n\r\n").await;
            return;
        }
        // It is not asked where to: it knows one upstream.
        let port = asked.target.rsplit_once(':').unwrap().1.parse().unwrap();
        let mut far = tests::sandbox::open(([127, 0, 0, 1], port).into()).await.into_stream();
        peer.line.send("HTTP/1.1 200 Go on\r\n\r\n").await;
        let mut near = peer.line.into_stream();
        drop(tokio::io::copy_bidirectional(&mut near, &mut far).await);
    });
    let authority = Authority::new();
    let upstream: Upstream = Plan::echoing().start("through.test", &authority).await;
    let port = upstream.at.port();
    let proxy = proxy.start("proxy.test", &Authority::new()).await;
    let world =
        World::allowing(&[&format!("{{host: through.test, port: {port}}}"), "{host: closed.test}"])
            .upstream_settings(&format!(
                "  proxy: {{address: \"{}\", user: gateway, password: {{file: proxy.password}}}}",
                proxy.at
            ))
            .file("proxy.password", "s3cret\n")
            .file("through.pem", authority.pem())
            .root("through.pem")
            .start()
            .await;
    let reply = world.sandbox.get(&format!("https://through.test:{port}/a")).await;
    reply.assert_relayed(200);
    assert_eq!(reply.text(), format!("GET /a at through.test:{port}, 0 bytes"));
    let asked: Vec<Received> = proxy.requests();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].method, "CONNECT");
    assert_eq!(asked[0].target, format!("through.test:{port}"));
    assert_eq!(asked[0].header("proxy-authorization"), Some("Basic Z2F0ZXdheTpzM2NyZXQ="));
    assert_eq!(upstream.seen()[0].server_name().as_deref(), Some("through.test"));
    assert!(!upstream.received().contains("s3cret"));
    assert!(!upstream.received().to_lowercase().contains("proxy-"));

    let reply = world.sandbox.get("https://closed.test/").await;
    reply.assert_refused(502, "upstream_proxy_failed");
    assert!(!reply.text().contains("127.0.0.1"), "{}", reply.text());
    world.resolver.assert_never_asked();
    world.end().await;
}

/// A kept connection that has ended meanwhile is noticed before it is used: what
/// must not be sent twice is sent on a new one.
#[tokio::test]
async fn an_upstream_that_hangs_up_between_requests_is_dialled_again() {
    let hung_up = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&hung_up);
    let plan = Plan::scripted(move |mut peer: Peer| {
        let counted = Arc::clone(&counted);
        async move {
            let Some(asked) = peer.request().await else { return };
            let body = format!("{} {}", peer.index, asked.target);
            let length = body.len();
            peer.line
                .send(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"))
                .await;
            peer.line.finish().await;
            counted.fetch_add(1, Ordering::SeqCst);
            peer.line.rest().await;
        }
    });
    let world = World::allowing(&["{host: once.test, methods: [POST, GET]}"])
        .upstream("once.test", plan)
        .start()
        .await;
    let mut line = world.sandbox.tls(Way::Proxy, "once.test", &["http/1.1"]).await.unwrap();
    for index in 0..4 {
        line.send("POST /x HTTP/1.1\r\nHost: once.test\r\nContent-Length: 2\r\n\r\nhi").await;
        assert_eq!(line.reply().await.text(), format!("{index} /x"));
        let ended = || (hung_up.load(Ordering::SeqCst) == index + 1).then_some(());
        until("the upstream to hang up", ended).await;
    }
    drop(line);
    world.end().await;
}
