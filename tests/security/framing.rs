//! C: requests and answers that two readers would read differently.
//!
//! The scripted upstream reads naively, as the servers do that such bytes are
//! made for: [`the_naive_upstream_is_fooled`] shows that they work on it.

mod paths;

use tests::{Plan, Received, Reply, Way, World, answering_http2, until};

/// Requests that end in two places. Each hides a second one, for `/smuggled`.
const SMUGGLING: [(&str, &str); 18] = [
    (
        "a length and chunks",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 45\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    ),
    (
        "chunks and a length",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    ),
    (
        "two lengths",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 0\r\nContent-Length: 41\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    ),
    (
        "two equal lengths",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    ),
    (
        "a list of lengths",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 0, 41\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    ),
    (
        "a length with a sign",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: +0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    ),
    (
        "a space before the colon",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    ),
    (
        "a coding that is almost chunked",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    ),
    (
        "chunked twice",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    ),
    (
        "chunked and then something",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    ),
    (
        "a folded line",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    ),
    (
        "a folded line after a value",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nX: y\r\n\tTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    ),
    (
        "a bare line feed between headers",
        "POST / HTTP/1.1\r\nHost: allowed.test\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    ),
    (
        "bare line feeds at the end of the head",
        "GET / HTTP/1.1\nHost: allowed.test\n\nGET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    ),
    (
        "a bare carriage return in a value",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nX: y\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    ),
    (
        "a NUL in a value",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nX: y\0\r\nContent-Length: 0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    ),
    (
        "a NUL in a name",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nContent\0-Length: 41\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    ),
    (
        "chunks in HTTP/1.0",
        "POST / HTTP/1.0\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    ),
];

/// C1 to C4, without the gateway: some reader takes these for two requests.
#[tokio::test]
async fn the_naive_upstream_is_fooled() {
    let naive = Plan::echoing().start("allowed.test", &tests::authority::Authority::new()).await;
    let mut line = tests::sandbox::open(naive.at).await;
    line.send(SMUGGLING[0].1).await;
    line.reply().await.assert_relayed(200);
    line.reply().await.assert_relayed(200);
    let targets: Vec<String> = naive.requests().iter().map(|asked| asked.target.clone()).collect();
    assert_eq!(targets, ["/", "/smuggled"]);
}

/// C1 to C4, from the sandbox.
#[tokio::test]
async fn a_request_that_ends_in_two_places_is_refused_and_the_connection_closed() {
    let world = World::new().start().await;
    for (how, bytes) in SMUGGLING {
        let mut inside =
            world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
        inside.send(bytes).await;
        let reply = inside.reply().await;
        assert_eq!(reply.status, 400, "{how}: {}", reply.text());
        assert!(["malformed", "ambiguous"].contains(&reply.code().as_str()), "{how}");
        inside.assert_ends().await;
        world.audit.refused("allowed.test", &reply.code()).await;

        let mut captured = world.sandbox.captured_http().await;
        captured.send(bytes).await;
        let reply = captured.reply().await;
        assert_eq!(reply.status, 400, "{how}: {}", reply.text());
        captured.assert_ends().await;
        // What cannot be read names nobody, unless it broke after its Host.
        let code = reply.code();
        until("the record", || {
            let records = world.audit.of_kind("connection").into_iter();
            let all = records.chain(world.audit.of_kind("request"));
            all.into_iter().find(|record| tests::code(record) == code)
        })
        .await;
    }
    world.upstream("allowed.test").assert_never_contacted();
    world.assert_nobody_was_contacted();
    world.assert_still_serves().await;
    assert!(!world.upstream("allowed.test").received().contains("smuggled"));
    world.end().await;
}

/// C1 to C4, in a body that began well.
#[tokio::test]
async fn chunks_that_two_readers_would_cut_differently_end_the_request() {
    let world = World::new().start().await;
    let head = "POST /chunks HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n";
    for chunks in [
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-1\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "ffffffffffffffff1\r\nhello\r\n0\r\n\r\n",
        "5;\u{0}\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "0\r\nBroken trailer\r\n\r\n",
        "0\r\nX: y\n\r\n",
        "0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "0\r\nContent-Length: 3\r\n\r\n",
        "0\r\nHost: evil.test\r\n\r\n",
    ] {
        let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
        line.send(format!("{head}{chunks}GET /smuggled HTTP/1.1\r\nHost: allowed.test\r\n\r\n"))
            .await;
        let reply = line.reply_or_end().await;
        let status = reply.as_ref().map_or(0, |reply| reply.status);
        assert!(reply.is_none() || status == 400, "{chunks:?}: {reply:?}");
        line.assert_ends().await;
    }
    // Whatever had been passed on was cut off there: no request was complete.
    assert!(world.upstream("allowed.test").requests().is_empty());
    assert!(!world.upstream("allowed.test").received().contains("smuggled"));
    world.assert_still_serves().await;
    world.end().await;
}

/// C1 to C4, from the upstream: an answer that ends in two places would put the
/// rest of it in front of the next client.
#[tokio::test]
async fn an_answer_that_ends_in_two_places_is_not_passed_on() {
    for (how, answer) in [
        (
            "a length and chunks",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
        ),
        (
            "two lengths",
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 44\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
        ),
        ("a list of lengths", "HTTP/1.1 200 OK\r\nContent-Length: 0, 6\r\n\r\nforged"),
        (
            "a space before the colon",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\nforged",
        ),
        (
            "an unknown coding",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        ),
        ("a folded line", "HTTP/1.1 200 OK\r\nX: y\r\n Content-Length: 6\r\n\r\nforged"),
        ("a bare line feed", "HTTP/1.1 200 OK\nContent-Length: 6\n\nforged"),
        ("a bare carriage return", "HTTP/1.1 200 OK\r\nX: y\rz\r\nContent-Length: 6\r\n\r\nforged"),
        ("a NUL", "HTTP/1.1 200 OK\r\nX: y\0\r\nContent-Length: 6\r\n\r\nforged"),
        ("no status", "HTTP/1.1 OK\r\nContent-Length: 6\r\n\r\nforged"),
        ("a status of four digits", "HTTP/1.1 2000 OK\r\nContent-Length: 6\r\n\r\nforged"),
        ("not HTTP", "SSH-2.0-OpenSSH_9.2\r\n\r\n"),
        ("HTTP/2 in the clear", "HTTP/2 200\r\nContent-Length: 6\r\n\r\nforged"),
    ] {
        let world = World::allowing(&["{host: allowed.test}", "{host: liar.test}"])
            .upstream("liar.test", Plan::sending(answer))
            .start()
            .await;
        let mut line = world.sandbox.tls(Way::Proxy, "liar.test", &["http/1.1"]).await.unwrap();
        line.send("GET /1 HTTP/1.1\r\nHost: liar.test\r\n\r\n").await;
        let reply = line.reply().await;
        assert_eq!(reply.status, 502, "{how}: {}", reply.text());
        reply.assert_refused(502, "upstream_malformed");
        world.audit.refused("liar.test", "upstream_malformed").await;
        let seen = world.upstream("liar.test").seen();
        until("the connection to the liar to be dropped", || seen[0].ended().then_some(())).await;
        world.assert_still_serves().await;
        world.end().await;
    }
}

/// C1 to C4: what an upstream sends beyond its answer is not the next answer.
#[tokio::test]
async fn an_answer_nobody_asked_for_is_not_given_to_the_next_client() {
    let forged = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirstHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
    let world = World::allowing(&["{host: allowed.test}", "{host: liar.test}"])
        .upstream("liar.test", Plan::sending(forged))
        .start()
        .await;
    for index in 0..4 {
        let reply = world.sandbox.get(&format!("https://liar.test/{index}")).await;
        reply.assert_relayed(200);
        assert_eq!(reply.text(), "first", "request {index}");
    }
    let mut line = world.sandbox.tls(Way::Proxy, "liar.test", &["http/1.1"]).await.unwrap();
    for _ in 0..3 {
        line.send("GET / HTTP/1.1\r\nHost: liar.test\r\n\r\n").await;
        assert_eq!(line.reply().await.text(), "first");
    }
    world.end().await;
}

/// C1 to C4: HTTP/2 has its own framing, which its headers must not contradict.
#[tokio::test]
async fn http2_headers_that_frame_are_refused() {
    let world = World::new().upstream(
        "allowed.test",
        answering_http2(|asked: &Received| Reply {
            status: 200,
            body: format!("{:?}", asked.headers).into(),
            ..Reply::default()
        }),
    );
    let world = world.start().await;
    for (name, value) in [
        ("transfer-encoding", "chunked"),
        ("connection", "close"),
        ("upgrade", "websocket"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("te", "gzip"),
    ] {
        let session = world.sandbox.http2(Way::Proxy, "allowed.test").await;
        let request =
            http::Request::get("https://allowed.test/").header(name, value).body(()).unwrap();
        let sender = session.sender.clone();
        let mut sender = sender.ready().await.unwrap();
        // The client's own library refuses some of them.
        if let Ok((response, _)) = sender.send_request(request, true)
            && let Ok(reply) = tests::sandbox::read_http2(response).await
        {
            assert!(
                reply.status == 400 || !reply.text().contains(&format!("(\"{name}\"")),
                "{name} went through: {}",
                reply.text()
            );
        }
        drop(session);
    }
    // A length that the frames do not add up to.
    let mut session = world.sandbox.http2(Way::Proxy, "allowed.test").await;
    let headers = [("content-length".to_owned(), "3".to_owned())];
    let request = http::Request::post("https://allowed.test/").header("content-length", "3");
    let (response, mut stream) = session.begin(request.body(()).unwrap(), false).await;
    stream.send_data("hello".into(), true).ok();
    let read = tests::sandbox::read_http2(response).await;
    assert!(
        read.as_ref().is_err() || read.as_ref().is_ok_and(|reply| reply.status == 400),
        "{read:?}"
    );
    let mut session = world.sandbox.http2(Way::Proxy, "allowed.test").await;
    let reply = session.ask("POST", "https://allowed.test/", &headers, b"abc".to_vec()).await;
    reply.assert_relayed(200);
    world.end().await;
}

/// C1 to C4: what a client lists in `Connection` is for us alone, but what frames
/// the message is not for it to take away.
#[tokio::test]
async fn listing_a_header_as_ours_does_not_unframe_the_message() {
    let world = World::new().start().await;
    for listed in ["content-length", "host", "transfer-encoding", "close, content-length", "x-kept"]
    {
        let mut line = world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap();
        line.send(format!(
            "POST /listed HTTP/1.1\r\nHost: allowed.test\r\nConnection: {listed}\r\n\
             Content-Length: 44\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: allowed.test\r\n\r\n"
        ))
        .await;
        let reply = line.reply().await;
        assert!([200, 400].contains(&reply.status), "{listed}: {}", reply.text());
    }
    for received in world.upstream("allowed.test").requests() {
        assert_eq!(received.target, "/listed", "{received:?}");
        assert_eq!(received.body.len(), 44, "{received:?}");
        assert_eq!(received.values("host"), ["allowed.test"], "{received:?}");
    }
    world.assert_still_serves().await;
    world.end().await;
}

/// C1 to C4: hint after hint and never an answer.
#[tokio::test]
async fn an_upstream_that_only_hints_is_given_up() {
    let plan = Plan::scripted(|mut peer| async move {
        peer.request().await;
        while peer.line.try_send(b"HTTP/1.1 102 Processing\r\n\r\n").await.is_ok() {}
    });
    let world = World::allowing(&["{host: allowed.test}", "{host: hints.test}"])
        .upstream("hints.test", plan)
        .start()
        .await;
    let mut line = world.sandbox.tls(Way::Proxy, "hints.test", &["http/1.1"]).await.unwrap();
    line.send("GET / HTTP/1.1\r\nHost: hints.test\r\n\r\n").await;
    let reply = line.reply_or_end().await;
    assert!(reply.is_none_or(|reply| reply.status == 502));
    drop(line);
    world.audit.refused("hints.test", "upstream_malformed").await;
    world.assert_still_serves().await;
    world.end().await;
}
