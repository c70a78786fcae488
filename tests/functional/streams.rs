//! What lasts: events, conversations, long answers. Nothing waits for the end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use tests::websocket::{BINARY, CLOSE, CONTINUATION, Frame};
use tests::{Http2Request, Peer, Plan, Way, World, speaking_http2, within};
use tokio::sync::{Notify, mpsc};

/// Each event arrives before the next one is sent.
#[tokio::test]
async fn events_arrive_as_they_are_sent() {
    for framing in ["Transfer-Encoding: chunked", "X-Until: close"] {
        let (arrived, told) = mpsc::channel::<()>(1);
        let told = std::sync::Arc::new(tokio::sync::Mutex::new(told));
        let chunked = framing.starts_with("Transfer");
        let plan = Plan::scripted(move |mut peer: Peer| {
            let told = told.clone();
            async move {
                peer.request().await;
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
                peer.line.send(format!("{head}{framing}\r\n\r\n")).await;
                for number in 0..5 {
                    let event = format!("data: {number}\n\n");
                    let length = event.len();
                    let event = if chunked { format!("{length:x}\r\n{event}\r\n") } else { event };
                    peer.line.send(event).await;
                    // Not before this one has arrived.
                    within("the client to have it", told.lock().await.recv()).await;
                }
                if chunked {
                    peer.line.send("0\r\n\r\n").await;
                }
                peer.line.finish().await;
            }
        });
        let world = World::new().upstream("allowed.test", plan).start().await;
        let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
        line.send("GET /events HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
        within("the head", line.head()).await.unwrap();
        for number in 0..5 {
            let read = line.read_through(b"\n\n").await;
            assert!(read.ends_with(format!("data: {number}\n\n").as_bytes()));
            arrived.send(()).await.unwrap();
        }
        drop(line);
        world.end().await;
    }
}

/// The record knows when the answer began, which is not when it ended.
#[tokio::test]
async fn the_first_byte_is_timed_when_it_comes() {
    let heard = Arc::new(Notify::new());
    let go_on = Arc::clone(&heard);
    let plan = Plan::scripted(move |mut peer: Peer| {
        let go_on = Arc::clone(&go_on);
        async move {
            peer.request().await;
            peer.line.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst").await;
            go_on.notified().await;
            peer.line.send("-last").await;
            peer.request().await;
        }
    });
    let world = World::new().upstream("allowed.test", plan).start().await;
    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    line.send("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    line.read_through(b"first").await;
    let between = Instant::now();
    tokio::time::sleep(Duration::from_millis(50)).await;
    // By our own clock, so that it holds on a machine of any speed.
    let between = between.elapsed().as_secs_f64() * 1000.0;
    heard.notify_one();
    line.read_through(b"-last").await;
    drop(line);
    let record = world.audit.find("the record", |event| event["kind"] == "request").await;
    let at = |name: &str| record[name].as_f64().unwrap();
    let (first, total) = (at("sluice.timing.first_byte_ms"), at("sluice.timing.total_ms"));
    assert!(total - first >= between, "the first byte after {first} ms of {total}");
    world.end().await;
}

fn upgrade(host: &str) -> String {
    format!(
        "GET /chat?room=1 HTTP/1.1\r\nHost: {host}\r\nConnection: keep-alive, Upgrade\r\n\
         Upgrade: WebSocket\r\nOrigin: https://{host}\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

#[tokio::test]
async fn a_websocket_carries_messages_both_ways() {
    let world = World::allowing(&[
        "{host: allowed.test, websocket: true}",
        "{host: allowed.test, protocol: http, websocket: true}",
    ])
    .upstream("allowed.test", Plan::websocket_echo())
    .start()
    .await;
    for way in Way::ALL {
        for port in [443, 80] {
            let mut line = match port {
                443 => world.sandbox.tls(way, "allowed.test", &["http/1.1"]).await.unwrap(),
                _ if way == Way::Proxy => continue,
                _ => world.sandbox.tunnel(way, "allowed.test", port).await.unwrap(),
            };
            line.send(upgrade("allowed.test")).await;
            let reply = line.reply().await;
            assert_eq!(reply.status, 101, "{way:?} {port}: {}", reply.text());
            let accept = reply.header("sec-websocket-accept");
            assert_eq!(accept, Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));

            let long = Frame { last: true, opcode: CONTINUATION, payload: vec![7; 100_000] };
            let first = Frame { last: false, opcode: BINARY, payload: vec![1] };
            for frame in [Frame::text("hello"), first, long] {
                line.send(frame.bytes(true)).await;
                let back = within("an echo", line.frame()).await.unwrap();
                assert_eq!(back, frame);
            }
            line.send(Frame { last: true, opcode: CLOSE, payload: vec![3, 232] }.bytes(true)).await;
            assert_eq!(within("a close", line.frame()).await.unwrap().opcode, CLOSE);
            line.assert_ends().await;
        }
    }
    let asked = world.upstream("allowed.test").requests().pop().unwrap();
    assert_eq!(asked.header("sec-websocket-protocol"), Some("chat"));
    assert_eq!(asked.target, "/chat?room=1");
    let record = world
        .audit
        .find("the record", |event| {
            event["kind"] == "request" && event["network.protocol.name"] == "websocket"
        })
        .await;
    assert_eq!(record["http.response.status_code"], 101);
    assert!(record["sluice.bytes.sent"].as_u64().unwrap() > 100_000, "{record}");
    assert!(record["sluice.bytes.received"].as_u64().unwrap() > 100_000, "{record}");
    world.end().await;
}

#[tokio::test]
async fn a_websocket_that_the_upstream_declines_is_an_answer() {
    let plan = Plan::sending("HTTP/1.1 426 No\r\nContent-Length: 2\r\n\r\nno");
    let world = World::allowing(&["{host: allowed.test, websocket: true}"])
        .upstream("allowed.test", plan)
        .start()
        .await;
    let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
    line.send(upgrade("allowed.test")).await;
    let reply = line.reply().await;
    reply.assert_relayed(426);
    assert_eq!(reply.text(), "no");
    drop(line);
    world.end().await;
}

/// WebSocket over HTTP/2 (RFC 8441), where the upstream has it.
#[tokio::test]
async fn a_websocket_is_a_stream_where_the_upstream_says_so() {
    for extended in [true, false] {
        let plan = speaking_http2(extended, |mut asked: Http2Request| async move {
            let response = Response::builder().status(200).body(()).unwrap();
            let mut back = asked.respond.send_response(response, false).unwrap();
            let body = asked.request.body_mut();
            while let Some(Ok(piece)) = body.data().await {
                body.flow_control().release_capacity(piece.len()).ok();
                // A server's frames are not masked.
                if let Some(frame) = Frame::read(&mut &*piece).await {
                    back.send_data(frame.bytes(false).into(), false).ok();
                }
            }
            back.send_data(Bytes::new(), true).ok();
        });
        let world = World::allowing(&[
            "{host: allowed.test}",
            "{host: ws.test, paths: [/plain]}",
            "{host: ws.test, websocket: true}",
        ])
        .upstream("ws.test", plan)
        .start()
        .await;
        let mut session = world.sandbox.http2(Way::Proxy, "ws.test").await;
        // The offer is made once the upstream's is known, which may be after the
        // first answer.
        for _ in 0..50 {
            session.get("https://ws.test/plain").await.assert_relayed(200);
            if session.sender.is_extended_connect_protocol_enabled() {
                break;
            }
        }
        assert_eq!(session.sender.is_extended_connect_protocol_enabled(), extended);
        let mut sender = session.sender.clone();
        if extended {
            let mut request = Request::builder()
                .method("CONNECT")
                .uri("https://ws.test/chat")
                .header("sec-websocket-version", "13")
                .body(())
                .unwrap();
            request.extensions_mut().insert(h2::ext::Protocol::from("websocket"));
            let (response, mut stream) = sender.send_request(request, false).unwrap();
            let response = within("an answer", response).await.unwrap();
            assert_eq!(response.status(), 200);
            let mut body = response.into_body();
            let frame = Frame::text("hello");
            stream.send_data(frame.bytes(true).into(), false).unwrap();
            let back = within("an echo", body.data()).await.unwrap().unwrap();
            assert_eq!(back, frame.bytes(false));
            stream.send_data(Bytes::new(), true).unwrap();
            while within("the end", body.data()).await.is_some() {}
            let asked = world.upstream("ws.test").requests().pop().unwrap();
            assert_eq!(asked.method, "CONNECT");
            let fits = |event: &serde_json::Value| event["network.protocol.name"] == "websocket";
            world.audit.find("the record", fits).await;
        }
        // A rule for WebSockets is no rule for requests, here neither.
        session.get("https://ws.test/chat").await.assert_refused(403, "no_rule");
        drop(session);
        world.end().await;
    }
}

/// What is relayed unseen keeps its two halves apart.
#[tokio::test]
async fn a_tcp_tunnel_can_be_closed_on_one_side() {
    let plan = Plan::scripted(|mut peer: Peer| async move {
        let all = peer.line.rest().await;
        peer.line.send(format!("{} bytes", all.len())).await;
        peer.line.finish().await;
    });
    let world =
        World::allowing(&["{host: allowed.test}", "{host: raw.test, protocol: tcp, port: 5432}"])
            .upstream("raw.test", plan)
            .start()
            .await;
    let mut line = world.sandbox.connect("raw.test:5432").await.unwrap();
    line.send(vec![b'x'; 100_000]).await;
    line.finish().await;
    assert_eq!(line.rest().await, b"100000 bytes");
    let record = world
        .audit
        .find("the record", |event| {
            event["kind"] == "connection" && event["server.address"] == "raw.test"
        })
        .await;
    assert_eq!(record["sluice.handling"], "tcp");
    assert_eq!(record["sluice.outcome"], "relayed");
    // The name is paid for beside the bytes.
    let sent = record["sluice.bytes.sent"].as_u64().unwrap();
    assert!((100_000..100_100).contains(&sent), "{record}");
    assert_eq!(record["sluice.bytes.received"], 12);
    world.end().await;
}
