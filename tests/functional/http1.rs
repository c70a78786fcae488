//! HTTP/1.1, as servers and clients really speak it.

use std::sync::Arc;

use tests::{Answer, Line, Peer, Plan, Way, World};
use tokio::sync::Notify;

async fn inside(world: &World) -> Line {
    world.sandbox.tls(Way::Proxy, "allowed.test", &["http/1.1"]).await.unwrap()
}

#[tokio::test]
async fn a_connection_is_kept_and_so_is_the_one_behind_it() {
    let world = World::new().start().await;
    let mut line = inside(&world).await;
    for index in 0..5 {
        line.send(format!("GET /{index} HTTP/1.1\r\nHost: allowed.test\r\n\r\n")).await;
        let reply = line.reply().await;
        assert_eq!(reply.text(), format!("GET /{index} at allowed.test, 0 bytes"));
    }
    // A second client finds the upstream connection free.
    world.sandbox.get("https://allowed.test/other").await.assert_relayed(200);
    world.upstream("allowed.test").assert_not_contacted_beyond(1);
    line.send("GET /last HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n").await;
    line.reply().await.assert_relayed(200);
    line.assert_ends().await;
    world.end().await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let world = World::new().start().await;
    let mut line = inside(&world).await;
    let mut all = String::new();
    for index in 0..20 {
        all.push_str(&format!(
            "POST /{index} HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 5\r\n\r\nhello"
        ));
    }
    line.send(all).await;
    for index in 0..20 {
        let reply = line.reply().await;
        assert_eq!(reply.text(), format!("POST /{index} at allowed.test, 5 bytes"));
    }
    world.end().await;
}

#[tokio::test]
async fn chunks_and_trailers_travel_both_ways() {
    let plan = Plan::scripted(|mut peer: Peer| async move {
        let asked = peer.request().await.unwrap();
        assert_eq!(asked.body, b"hello world");
        assert_eq!(asked.trailers, [("x-checksum".to_owned(), "abc".to_owned())]);
        peer.line
            .send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
                 5\r\nfirst\r\n7;ignored=1\r\n second\r\n0\r\nX-Sum: 42\r\n\r\n",
            )
            .await;
        peer.request().await;
    });
    let world = World::new().upstream("allowed.test", plan).start().await;
    let mut line = inside(&world).await;
    line.send(
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\
         TE: trailers\r\nTrailer: X-Checksum\r\n\r\n\
         5\r\nhello\r\n6\r\n world\r\n0\r\nX-Checksum: abc\r\n\r\n",
    )
    .await;
    let reply = line.reply().await;
    reply.assert_relayed(200);
    assert_eq!(reply.text(), "first second");
    assert_eq!(reply.trailer("x-sum"), Some("42"));
    world.end().await;
}

#[tokio::test]
async fn answers_without_a_body_have_none() {
    let plan = Plan::answering(|asked| match asked.target.as_str() {
        "/204" => Answer::new(204, ""),
        "/304" => Answer::new(304, "").header("ETag", "\"x\""),
        _ => Answer::new(200, "a body").header("X-Kept", "yes"),
    });
    let world = World::new().upstream("allowed.test", plan).start().await;
    let mut line = inside(&world).await;
    for (method, path, status, body) in [
        ("HEAD", "/", 200, ""),
        ("GET", "/204", 204, ""),
        ("GET", "/304", 304, ""),
        ("GET", "/", 200, "a body"),
        ("HEAD", "/204", 204, ""),
        ("GET", "/", 200, "a body"),
    ] {
        line.send(format!("{method} {path} HTTP/1.1\r\nHost: allowed.test\r\n\r\n")).await;
        let reply = line.reply_to(method).await;
        reply.assert_relayed(status);
        assert_eq!(reply.text(), body, "{method} {path}");
        if method == "HEAD" && path == "/" {
            assert_eq!(reply.header("content-length"), Some("6"));
        }
    }
    world.upstream("allowed.test").assert_not_contacted_beyond(1);
    world.end().await;
}

#[tokio::test]
async fn an_answer_that_ends_with_its_connection_ends_visibly() {
    let plan = Plan::scripted(|mut peer: Peer| async move {
        peer.request().await;
        peer.line.send("HTTP/1.1 200 OK\r\n\r\nuntil the end").await;
        peer.line.finish().await;
    });
    let world = World::new().upstream("allowed.test", plan).start().await;
    let mut line = inside(&world).await;
    line.send("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    let reply = line.reply().await;
    reply.assert_relayed(200);
    assert_eq!(reply.text(), "until the end");
    world.end().await;
}

#[tokio::test]
async fn hints_come_before_the_answer() {
    let plan = Plan::scripted(|mut peer: Peer| async move {
        peer.request().await;
        peer.line.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n").await;
        peer.line.send("HTTP/1.1 102 Processing\r\n\r\n").await;
        peer.line.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").await;
        peer.request().await;
    });
    let world = World::new().upstream("allowed.test", plan).start().await;
    let mut line = inside(&world).await;
    line.send("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    let reply = line.reply().await;
    reply.assert_relayed(200);
    assert_eq!(reply.interim, [103, 102]);
    world.end().await;
}

#[tokio::test]
async fn a_client_that_waits_for_100_gets_the_upstreams() {
    let world = World::new().start().await;
    let mut line = inside(&world).await;
    line.send(
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    )
    .await;
    let head = tests::within("a hint", line.head()).await.unwrap();
    assert!(head.first_line.starts_with("HTTP/1.1 100"), "{}", head.first_line);
    line.send("hello").await;
    let reply = line.reply().await;
    assert_eq!(reply.text(), "POST / at allowed.test, 5 bytes");
    world.end().await;
}

#[tokio::test]
async fn a_client_that_waits_for_100_may_get_a_no_instead() {
    let plan = Plan::scripted(|mut peer: Peer| async move {
        drop(peer.line.head().await);
        peer.line.send("HTTP/1.1 417 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno").await;
        peer.line.finish().await;
    });
    let world = World::new().upstream("allowed.test", plan).start().await;
    let mut line = inside(&world).await;
    line.send(
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    )
    .await;
    let reply = line.reply().await;
    reply.assert_relayed(417);
    assert!(reply.interim.is_empty());
    drop(line);
    world.end().await;
}

#[tokio::test]
async fn an_early_answer_reaches_a_client_that_is_still_sending() {
    let plan = Plan::scripted(|mut peer: Peer| async move {
        drop(peer.line.head().await);
        peer.line.take(1000).await;
        peer.line
            .send("HTTP/1.1 413 Enough\r\nContent-Length: 6\r\nConnection: close\r\n\r\nenough")
            .await;
        peer.line.rest().await;
    });
    let world = World::new().upstream("allowed.test", plan).start().await;
    let mut line = inside(&world).await;
    line.send("POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 100000000\r\n\r\n").await;
    line.send(vec![b'x'; 2000]).await;
    let reply = line.reply().await;
    reply.assert_relayed(413);
    assert_eq!(reply.text(), "enough");
    drop(line);
    world.end().await;
}

#[tokio::test]
async fn headers_keep_their_order_and_spelling_and_lose_what_is_ours() {
    let world = World::new().start().await;
    let mut line = inside(&world).await;
    line.send(
        "GET / HTTP/1.1\r\nX-Zebra: 1\r\nHOST: allowed.test\r\nAccept-Language: de\r\n\
         X-zebra: 2\r\nConnection: keep-alive, X-Hop\r\nX-Hop: secret\r\nKeep-Alive: 5\r\n\
         Proxy-Authorization: Basic eHg6eXk=\r\nProxy-Connection: keep-alive\r\n\
         TE: trailers\r\nUser-Agent: \tspaced \r\n\r\n",
    )
    .await;
    line.reply().await.assert_relayed(200);
    let received = world.upstream("allowed.test").requests().pop().unwrap();
    let head = String::from_utf8(received.head.clone()).unwrap();
    let place = |text: &str| head.find(text).unwrap_or_else(|| panic!("{text} in {head}"));
    assert!(place("X-Zebra: 1") < place("Accept-Language: de"));
    assert!(place("Accept-Language: de") < place("X-zebra: 2"));
    for gone in ["x-hop", "keep-alive", "proxy-authorization", "proxy-connection"] {
        assert_eq!(received.header(gone), None, "{gone} went through");
    }
    assert_eq!(received.values("host"), ["allowed.test"]);
    for added in ["via", "x-forwarded-for", "forwarded", "x-real-ip"] {
        assert_eq!(received.header(added), None, "{added} tells who we are");
    }
    world.end().await;
}

#[tokio::test]
async fn large_headers_pass_within_the_limit_and_are_refused_beyond() {
    let world = World::new().limits("header_bytes: 32KiB, headers: 50").start().await;
    let mut line = inside(&world).await;
    let fits = "a".repeat(30 * 1024);
    line.send(format!("GET / HTTP/1.1\r\nHost: allowed.test\r\nCookie: {fits}\r\n\r\n")).await;
    line.reply().await.assert_relayed(200);
    let received = world.upstream("allowed.test").requests().pop().unwrap();
    assert_eq!(received.header("cookie").map(str::len), Some(fits.len()));

    let beyond = "a".repeat(40 * 1024);
    line.send(format!("GET / HTTP/1.1\r\nHost: allowed.test\r\nCookie: {beyond}\r\n\r\n")).await;
    line.reply().await.assert_refused(431, "head_too_large");
    world.audit.refused("allowed.test", "head_too_large").await;
    drop(line);
    world.end().await;
}

#[tokio::test]
async fn an_upstreams_headers_have_limits_too() {
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 0\r\n\r\n", "a".repeat(40_000));
    let endless = format!("HTTP/1.1 200 OK\r\n{}", "X-More: and more\r\n".repeat(100_000));
    for answer in [long, endless] {
        let world = World::new()
            .limits("header_bytes: 32KiB")
            .upstream("allowed.test", Plan::sending(answer))
            .start()
            .await;
        let reply = world.sandbox.get("https://allowed.test/").await;
        reply.assert_refused(502, "upstream_malformed");
        world.audit.refused("allowed.test", "upstream_malformed").await;
        world.end().await;
    }
}

/// A client that has said all it wants to say may close its side and still get
/// its answer.
#[tokio::test]
async fn a_half_closed_client_gets_its_answer() {
    let closed = Arc::new(Notify::new());
    let go_on = Arc::clone(&closed);
    let plan = Plan::scripted(move |mut peer: Peer| {
        let go_on = Arc::clone(&go_on);
        async move {
            peer.request().await;
            go_on.notified().await;
            peer.line.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate").await;
            peer.request().await;
        }
    });
    let world = World::new().upstream("allowed.test", plan).start().await;
    let mut line = world.sandbox.captured_http().await;
    line.send("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    line.finish().await;
    closed.notify_one();
    let reply = line.reply().await;
    assert_eq!(reply.text(), "late");
    line.assert_ends().await;
    world.end().await;
}

#[tokio::test]
async fn http_1_0_is_served_and_closed() {
    let world = World::new().start().await;
    let mut line = inside(&world).await;
    line.send("GET / HTTP/1.0\r\nHost: allowed.test\r\n\r\n").await;
    line.reply().await.assert_relayed(200);
    line.assert_ends().await;
    world.end().await;
}

/// A kept upstream connection that has died meanwhile costs nobody a request
/// that can be repeated.
#[tokio::test]
async fn a_stale_connection_is_replaced_once() {
    let plan = Plan::scripted(|mut peer: Peer| async move {
        if let Some(asked) = peer.request().await {
            let body = asked.target.clone();
            let length = body.len();
            peer.line
                .send(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"))
                .await;
        }
        if peer.index == 0 {
            // It hangs up just when the next request arrives.
            drop(peer.line.head().await);
            return;
        }
        while let Some(asked) = peer.request().await {
            let length = asked.target.len();
            let body = asked.target;
            peer.line
                .send(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"))
                .await;
        }
    });
    let world = World::new().upstream("allowed.test", plan).start().await;
    let mut line = inside(&world).await;
    for path in ["/one", "/two", "/three"] {
        line.send(format!("GET {path} HTTP/1.1\r\nHost: allowed.test\r\n\r\n")).await;
        let reply = line.reply().await;
        assert_eq!(reply.text(), path);
    }
    world.upstream("allowed.test").assert_not_contacted_beyond(2);
    world.end().await;
}
