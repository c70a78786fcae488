//! B14: every request is judged, under the policy of its moment.

use tests::world::policy;
use tests::{
    Answer, Http2Request, Plan, Way, World, code, own_address, speaking_http2, until, within,
};

/// B14.
#[tokio::test]
async fn every_pipelined_request_is_judged() {
    let world = World::allowing(&["{host: allowed.test, paths: [/ok, /still-here]}"]).start().await;
    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    line.send(
        "GET /ok HTTP/1.1\r\nHost: allowed.test\r\n\r\n\
         GET /secret HTTP/1.1\r\nHost: allowed.test\r\n\r\n\
         GET /ok HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
    )
    .await;
    line.reply().await.assert_relayed(200);
    line.reply().await.assert_refused(403, "no_rule");
    line.reply().await.assert_relayed(200);
    assert!(!world.upstream("allowed.test").received().contains("/secret"));
    let record = world.assert_denied("allowed.test", "no_rule").await;
    assert_eq!(record["url.path"], "/secret");
    world.end().await;
}

/// B14: the policy of that moment, also for a connection that was there before.
#[tokio::test]
async fn a_reload_reaches_connections_that_are_open() {
    let world = World::allowing(&["{host: allowed.test, paths: [\"/**\"]}", "{host: gone.test}"])
        .upstream("gone.test", Plan::echoing())
        .start()
        .await;
    let mut kept = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    kept.send("GET /a HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    kept.reply().await.assert_relayed(200);
    let mut idle = world.sandbox.tls(Way::Proxy, "gone.test", &["http/1.1"]).await.unwrap();
    idle.send("GET /a HTTP/1.1\r\nHost: gone.test\r\n\r\n").await;
    idle.reply().await.assert_relayed(200);

    let narrower = policy(&["{host: allowed.test, paths: [/b, /still-here]}"]);
    assert_eq!(world.reload(&narrower).await.status, 200);

    kept.send("GET /a HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    kept.reply().await.assert_refused(403, "no_rule");
    kept.send("GET /b HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    kept.reply().await.assert_relayed(200);
    // What the policy no longer admits is closed without being asked.
    idle.assert_ends().await;
    let refused = world.sandbox.connect("gone.test:443").await.unwrap_err();
    refused.assert_refused(403, "no_rule");
    assert_eq!(world.upstream("gone.test").requests().len(), 1);
    let gone = world.upstream("gone.test").seen();
    until("its upstream connection to close", || gone[0].ended().then_some(())).await;
    world.end().await;
}

/// B14: a stream that began under the old policy does not outlive it.
#[tokio::test]
async fn a_reload_ends_what_is_under_way_and_no_longer_allowed() {
    let endless = Plan::scripted(|mut peer| async move {
        peer.request().await;
        peer.line.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        while peer.line.try_send(b"4\r\ntick\r\n").await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    let world = World::allowing(&["{host: allowed.test}", "{host: ticks.test}"])
        .upstream("ticks.test", endless)
        .start()
        .await;
    let mut line = world.sandbox.tls(Way::Proxy, "ticks.test", &["http/1.1"]).await.unwrap();
    line.send("GET / HTTP/1.1\r\nHost: ticks.test\r\n\r\n").await;
    line.read_through(b"tick").await;

    assert_eq!(world.reload(&policy(&["{host: allowed.test}"])).await.status, 200);

    let rest = line.rest().await;
    assert!(!rest.ends_with(b"0\r\n\r\n"), "it did not look complete");
    let record = world.audit.refused("ticks.test", "no_rule").await;
    assert_eq!(record["http.response.status_code"], 200, "it had begun");
    world.assert_still_serves().await;
    world.end().await;
}

/// B14: a tunnel that nobody looks into ends with its rule.
#[tokio::test]
async fn a_reload_ends_tunnels_that_are_no_longer_allowed() {
    let echo = || {
        Plan::scripted(|mut peer| async move {
            loop {
                let some = peer.line.some().await;
                if some.is_empty() {
                    return;
                }
                peer.line.send(some).await;
            }
        })
    };
    let world = World::allowing(&[
        "{host: allowed.test}",
        "{host: kept.test, protocol: tcp, port: 7000}",
        "{host: gone.test, protocol: tcp, port: 7000}",
    ])
    .upstream("kept.test", echo())
    .upstream("gone.test", echo())
    .start()
    .await;
    let mut kept = world.sandbox.connect("kept.test:7000").await.unwrap();
    let mut gone = world.sandbox.connect("gone.test:7000").await.unwrap();
    for line in [&mut kept, &mut gone] {
        line.send("ping").await;
        assert_eq!(line.take(4).await, b"ping");
    }
    let narrower =
        policy(&["{host: allowed.test}", "{host: kept.test, protocol: tcp, port: 7000}"]);
    assert_eq!(world.reload(&narrower).await.status, 200);

    gone.assert_ends().await;
    kept.send("pong").await;
    assert_eq!(kept.take(4).await, b"pong");
    let record = world.audit.find("the record", |event| {
        event["kind"] == "connection" && event["server.address"] == "gone.test"
    });
    assert_eq!(code(&record.await), "no_rule");
    drop((kept, gone));
    world.assert_still_serves().await;
    world.end().await;
}

/// B14, in HTTP/2: open streams are judged again, and the connection follows.
#[tokio::test]
async fn a_reload_reaches_streams_that_are_open() {
    let endless = speaking_http2(false, |mut asked: Http2Request| async move {
        let response = http::Response::builder().status(200).body(()).unwrap();
        let mut back = asked.respond.send_response(response, false).unwrap();
        while back.send_data("tick".into(), false).is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    let world = World::allowing(&["{host: allowed.test}", "{host: ticks.test, paths: [/a, /b]}"])
        .upstream("ticks.test", endless)
        .start()
        .await;
    let mut session = world.sandbox.http2(Way::Proxy, "ticks.test").await;
    let mut bodies = Vec::new();
    for path in ["/a", "/b"] {
        let request = http::Request::get(format!("https://ticks.test{path}")).body(()).unwrap();
        let (response, _) = session.begin(request, true).await;
        let mut body = within("an answer", response).await.unwrap().into_body();
        within("a tick", body.data()).await.unwrap().unwrap();
        bodies.push(body);
    }
    // One of the paths is gone: its stream ends, the other goes on.
    let narrower = policy(&["{host: allowed.test}", "{host: ticks.test, paths: [/b]}"]);
    assert_eq!(world.reload(&narrower).await.status, 200);
    let [mut gone, mut kept] = <[_; 2]>::try_from(bodies).unwrap();
    let ended = loop {
        match within("the end of a stream", gone.data()).await {
            Some(Ok(piece)) => drop(gone.flow_control().release_capacity(piece.len())),
            Some(Err(err)) => break err,
            None => panic!("it looked complete"),
        }
    };
    assert!(ended.is_reset(), "{ended}");
    world.audit.refused("ticks.test", "no_rule").await;
    for _ in 0..3 {
        let piece = within("a tick", kept.data()).await.unwrap().unwrap();
        kept.flow_control().release_capacity(piece.len()).unwrap();
    }
    // Now the host is gone, and everything with it.
    assert_eq!(world.reload(&policy(&["{host: allowed.test}"])).await.status, 200);
    while let Some(Ok(piece)) = within("the end of a stream", kept.data()).await {
        kept.flow_control().release_capacity(piece.len()).ok();
    }
    world.audit.refused("ticks.test", "no_rule").await;
    drop((gone, kept));
    until("the connection to end", || session.ended().then_some(())).await;
    world.assert_still_serves().await;
    world.end().await;
}

/// B14: a connection that was dialled under one rule is not used under another
/// that would not have dialled it.
#[tokio::test]
async fn a_kept_connection_does_not_outlive_the_range_it_was_dialled_in() {
    let Some(own) = own_address() else { return };
    let authority = tests::authority::Authority::new();
    let inside = Plan::echoing().start_at((own, 0).into(), "inside.test", &authority).await;
    let port = inside.at.port();
    let rule = |addresses: &str| {
        policy(&[
            "{host: allowed.test}",
            &format!("{{host: inside.test, protocol: http, port: {port}{addresses}}}"),
        ])
    };
    let world = World::new().policy(&rule(&format!(", addresses: [{own}/32]"))).start().await;
    world.resolver.answer("inside.test", &[&own.to_string()]);
    let url = format!("http://inside.test:{port}/");
    // An answer may be at home before its connection is.
    let kept = async {
        loop {
            let dialled = inside.connections();
            world.sandbox.get(&url).await.assert_relayed(200);
            if inside.connections() == dialled {
                return;
            }
        }
    };
    within("a connection to be kept", kept).await;
    let before = inside.requests().len();

    assert_eq!(world.reload(&rule("")).await.status, 200);
    world.sandbox.get(&url).await.assert_refused(403, "destination_forbidden");
    world.audit.refused("inside.test", "destination_forbidden").await;
    assert_eq!(inside.requests().len(), before);
    world.assert_still_serves().await;
    world.end().await;
}

/// B14: what is sent after a request for a WebSocket is a request, unless it
/// became one.
#[tokio::test]
async fn what_follows_a_declined_upgrade_is_judged() {
    let plan = Plan::answering(|asked| match asked.target.as_str() {
        "/chat" => Answer::new(426, "no"),
        _ => Answer::new(200, "served"),
    });
    let world = World::allowing(&[
        "{host: allowed.test, paths: [/still-here]}",
        "{host: allowed.test, websocket: true, paths: [/chat]}",
    ])
    .upstream("allowed.test", plan)
    .start()
    .await;
    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    line.send(
        "GET /chat HTTP/1.1\r\nHost: allowed.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\
         GET /secret HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
    )
    .await;
    line.reply().await.assert_relayed(426);
    if let Some(reply) = line.reply_or_end().await {
        reply.assert_refused(403, "no_rule");
    }
    drop(line);
    assert!(!world.upstream("allowed.test").received().contains("/secret"));
    world.assert_still_serves().await;
    world.end().await;
}
