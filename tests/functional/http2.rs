//! HTTP/2, a stream at a time.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use tests::sandbox::read_http2;
use tests::{Http2Request, Plan, Reply, Way, World, answering_http2, speaking_http2, within};

#[tokio::test]
async fn the_client_speaks_what_its_upstream_speaks() {
    let h2 = answering_http2(|_| Reply { status: 200, ..Reply::default() });
    let world = World::allowing(&["{host: allowed.test}", "{host: two.test}"])
        .upstream("two.test", h2)
        .start()
        .await;
    let both = ["h2", "http/1.1"];
    let line = world.sandbox.tls(Way::Proxy, "two.test", &both).await.unwrap();
    assert_eq!(line.alpn.as_deref(), Some(&b"h2"[..]));
    drop(line);
    let line = world.sandbox.tls(Way::Proxy, "allowed.test", &both).await.unwrap();
    assert_eq!(line.alpn.as_deref(), Some(&b"http/1.1"[..]));
    drop(line);
    // The connection that found it out is the one that is used.
    world.sandbox.ask("GET", "https://two.test/").over_http2().send().await.assert_relayed(200);
    world.upstream("two.test").assert_not_contacted_beyond(1);
    world.end().await;
}

#[tokio::test]
async fn streams_run_beside_each_other() {
    // The first stream is answered only after the second has been.
    let gate = std::sync::Arc::new(tokio::sync::Notify::new());
    let plan = speaking_http2(false, move |mut asked: Http2Request| {
        let gate = gate.clone();
        async move {
            match asked.request.uri().path() {
                "/slow" => gate.notified().await,
                _ => gate.notify_one(),
            }
            let response = Response::builder().status(200).body(()).unwrap();
            asked.respond.send_response(response, true).ok();
        }
    });
    let world = World::new().upstream("allowed.test", plan).start().await;
    let mut session = world.sandbox.http2(Way::Proxy, "allowed.test").await;
    let slow = Request::get("https://allowed.test/slow").body(()).unwrap();
    let (slow, _) = session.begin(slow, true).await;
    session.get("https://allowed.test/fast").await.assert_relayed(200);
    read_http2(slow).await.unwrap().assert_relayed(200);
    world.upstream("allowed.test").assert_not_contacted_beyond(1);
    world.end().await;
}

#[tokio::test]
async fn trailers_and_repeated_headers_survive() {
    let plan = answering_http2(|asked| {
        assert_eq!(asked.trailers, [("x-end".to_owned(), "1".to_owned())]);
        Reply {
            status: 200,
            headers: vec![("set-cookie".into(), "a=1".into()), ("set-cookie".into(), "b=2".into())],
            body: asked.body.clone(),
            trailers: vec![("grpc-status".into(), "0".into())],
            ..Reply::default()
        }
    });
    let world = World::new().upstream("allowed.test", plan).start().await;
    let mut session = world.sandbox.http2(Way::Proxy, "allowed.test").await;
    let request = Request::post("https://allowed.test/").body(()).unwrap();
    let (response, mut stream) = session.begin(request, false).await;
    stream.send_data(Bytes::from_static(b"hello"), false).unwrap();
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-end", "1".parse().unwrap());
    stream.send_trailers(trailers).unwrap();
    let reply = read_http2(response).await.unwrap();
    reply.assert_relayed(200);
    assert_eq!(reply.text(), "hello");
    assert_eq!(reply.trailer("grpc-status"), Some("0"));
    let cookies = reply.headers.iter().filter(|(name, _)| name == "set-cookie").count();
    assert_eq!(cookies, 2);
    world.end().await;
}

/// Each direction flows while the other does: a conversation in one stream.
#[tokio::test]
async fn both_directions_of_a_stream_flow_at_once() {
    let plan = speaking_http2(false, |mut asked: Http2Request| async move {
        let response = Response::builder().status(200).body(()).unwrap();
        let mut back = asked.respond.send_response(response, false).unwrap();
        let body = asked.request.body_mut();
        while let Some(Ok(piece)) = body.data().await {
            body.flow_control().release_capacity(piece.len()).ok();
            back.send_data(piece, false).ok();
        }
        back.send_data(Bytes::new(), true).ok();
    });
    let world = World::new().upstream("allowed.test", plan).start().await;
    let mut session = world.sandbox.http2(Way::Proxy, "allowed.test").await;
    let request = Request::post("https://allowed.test/").body(()).unwrap();
    let (response, mut stream) = session.begin(request, false).await;
    let response = within("the head of the answer", response).await.unwrap();
    let mut body = response.into_body();
    for word in ["one", "two", "three"] {
        stream.send_data(word.into(), false).unwrap();
        let piece = within("an echo", body.data()).await.unwrap().unwrap();
        assert_eq!(piece, word);
        body.flow_control().release_capacity(piece.len()).unwrap();
    }
    stream.send_data(Bytes::new(), true).unwrap();
    while let Some(piece) = within("the end", body.data()).await {
        assert!(piece.unwrap().is_empty());
    }
    world.end().await;
}

#[tokio::test]
async fn a_stream_that_is_given_up_is_given_up_upstream() {
    let (ended, mut told) = tokio::sync::mpsc::unbounded_channel();
    let plan = speaking_http2(false, move |mut asked: Http2Request| {
        let ended = ended.clone();
        async move {
            let response = Response::builder().status(200).body(()).unwrap();
            let mut back = asked.respond.send_response(response, false).unwrap();
            back.send_data(Bytes::from_static(b"begun"), false).ok();
            let reason = std::future::poll_fn(|cx| back.poll_reset(cx)).await;
            ended.send(reason.is_ok()).ok();
        }
    });
    let world = World::new().upstream("allowed.test", plan).start().await;
    let mut session = world.sandbox.http2(Way::Proxy, "allowed.test").await;
    let request = Request::get("https://allowed.test/").body(()).unwrap();
    let (response, stream) = session.begin(request, true).await;
    let mut body = within("an answer", response).await.unwrap().into_body();
    within("its body", body.data()).await.unwrap().unwrap();
    drop((body, stream));
    assert!(within("the upstream to hear of it", told.recv()).await.unwrap());
    // The connection is as good as before.
    let request = Request::get("https://allowed.test/again").body(()).unwrap();
    let (response, _) = session.begin(request, true).await;
    assert_eq!(within("an answer", response).await.unwrap().status(), 200);
    drop(session);
    world.end().await;
}

#[tokio::test]
async fn an_upstream_that_resets_a_stream_resets_only_that() {
    let plan = speaking_http2(false, |mut asked: Http2Request| async move {
        if asked.request.uri().path() == "/broken" {
            asked.respond.send_reset(h2::Reason::INTERNAL_ERROR);
        } else {
            let response = Response::builder().status(200).body(()).unwrap();
            asked.respond.send_response(response, true).ok();
        }
    });
    let world = World::new().upstream("allowed.test", plan).start().await;
    let mut session = world.sandbox.http2(Way::Proxy, "allowed.test").await;
    let broken = Request::get("https://allowed.test/broken").body(()).unwrap();
    let (response, _) = session.begin(broken, true).await;
    match read_http2(response).await {
        Ok(reply) => assert_eq!(reply.status, 502, "{}", reply.text()),
        Err(err) => assert!(err.is_reset(), "{err}"),
    }
    session.get("https://allowed.test/").await.assert_relayed(200);
    world.end().await;
}

/// A slow reader holds up its own stream, and no more is read for it than fits.
#[tokio::test]
async fn a_reader_that_does_not_read_is_not_read_for() {
    let plan = speaking_http2(false, |mut asked: Http2Request| async move {
        let response = Response::builder().status(200).body(()).unwrap();
        if asked.request.uri().path() != "/flood" {
            asked.respond.send_response(response, true).ok();
            return;
        }
        let mut back = asked.respond.send_response(response, false).unwrap();
        let mut sent = 0usize;
        while sent < 64 << 20 {
            back.reserve_capacity(16 * 1024);
            match std::future::poll_fn(|cx| back.poll_capacity(cx)).await {
                Some(Ok(room)) => {
                    let piece = Bytes::from(vec![b'x'; room]);
                    sent += room;
                    if back.send_data(piece, false).is_err() {
                        return;
                    }
                }
                _ => return,
            }
        }
    });
    let world = World::new().upstream("allowed.test", plan).start().await;
    let mut session = world.sandbox.http2(Way::Proxy, "allowed.test").await;
    let flood = Request::get("https://allowed.test/flood").body(()).unwrap();
    let (response, _) = session.begin(flood, true).await;
    let unread = within("an answer", response).await.unwrap().into_body();
    for _ in 0..5 {
        session.get("https://allowed.test/").await.assert_relayed(200);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(unread);
    drop(session);
    let record = world
        .audit
        .find("the record of it", |event| {
            event["kind"] == "request" && event["url.path"] == "/flood"
        })
        .await;
    let received = record["sluice.bytes.received"].as_u64().unwrap();
    assert!(received < 8 << 20, "{received} bytes were taken for a client that reads nothing");
    world.end().await;
}

#[tokio::test]
async fn a_refusal_of_a_grpc_call_is_a_grpc_status() {
    let world = World::new()
        .upstream("allowed.test", answering_http2(|_| Reply { status: 200, ..Reply::default() }))
        .policy(&tests::world::policy(&["{host: allowed.test, methods: [POST], paths: [/ok]}"]))
        .start()
        .await;
    let mut session = world.sandbox.http2(Way::Proxy, "allowed.test").await;
    let headers = [
        ("content-type".to_owned(), "application/grpc".to_owned()),
        ("te".to_owned(), "trailers".to_owned()),
    ];
    let url = "https://allowed.test/package.Service/Method";
    let reply = session.ask("POST", url, &headers, b"\0\0\0\0\0".to_vec()).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("application/grpc"));
    assert_eq!(reply.header("grpc-status"), Some("7"), "PERMISSION_DENIED");
    let message = reply.header("grpc-message").unwrap();
    assert!(message.contains("no_rule"), "{message}");
    assert_eq!(reply.header("x-sluice-code"), Some("no_rule"));
    world.audit.refused("allowed.test", "no_rule").await;
    assert!(world.upstream("allowed.test").requests().is_empty());
    world.end().await;
}

#[tokio::test]
async fn an_http1_upstream_is_not_spoken_to_in_http2() {
    let world = World::new().upstream("allowed.test", Plan::echoing()).start().await;
    let line = world.sandbox.connect("allowed.test:443").await.unwrap();
    let failed = world.sandbox.handshake(line, "allowed.test", &["h2"]).await.unwrap_err();
    assert!(failed.to_string().contains("NoApplicationProtocol"), "{failed}");
    world.audit.refused("allowed.test", "handshake_failed").await;
    world.end().await;
}
