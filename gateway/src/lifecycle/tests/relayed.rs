//! What gets across: bodies of every kind, interim answers, connections kept and
//! connections lost.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::world::{OK, World, ask, read_answer, read_head, read_rest, send};

const ANY: &str = "{host: plain.test, protocol: http, methods: [GET, HEAD, POST, PUT]}, \
                   {host: plain.test, protocol: http, websocket: true}";

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: plain.test\r\n\r\n")
}

/// A world whose upstream is `serve`, and a connection to it.
async fn connected<S, F>(serve: S) -> (World, TcpStream)
where
    S: Fn(TcpStream) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let world = World::with_upstream(ANY, Default::default(), serve).await;
    let stream = world.tunnel("plain.test:80").await;
    (world, stream)
}

/// The same with an upstream that gives one answer to one head, then closes.
async fn answered(answer: &'static str) -> (World, TcpStream) {
    connected(move |mut stream| async move {
        read_head(&mut stream).await;
        send(&mut stream, answer).await;
    })
    .await
}

#[tokio::test]
async fn a_body_with_a_length_arrives_whole() {
    let (_world, mut stream) = connected(|mut stream| async move {
        let head = read_head(&mut stream).await;
        assert!(head.contains("content-length: 100000\r\n"), "{head}");
        let mut body = vec![0; 100_000];
        stream.read_exact(&mut body).await.unwrap();
        let sum: u64 = body.iter().map(|b| u64::from(*b)).sum();
        let sum = format!("{sum:09}");
        send(&mut stream, &format!("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{sum}")).await;
    })
    .await;
    let body: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
    send(&mut stream, "POST / HTTP/1.1\r\nHost: plain.test\r\ncontent-length: 100000\r\n\r\n")
        .await;
    stream.write_all(&body).await.unwrap();
    let sum: u64 = body.iter().map(|b| u64::from(*b)).sum();
    assert_eq!(read_answer(&mut stream).await.body, format!("{sum:09}"));
}

#[tokio::test]
async fn a_chunked_body_is_taken_apart_and_put_together_again() {
    let (_world, mut stream) = connected(|mut stream| async move {
        let head = read_head(&mut stream).await;
        assert!(head.contains("Transfer-Encoding: chunked\r\n"), "{head}");
        let mut body = [0; 37];
        stream.read_exact(&mut body).await.unwrap();
        assert_eq!(
            String::from_utf8_lossy(&body),
            "5\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 11\r\n\r\n"
        );
        stream.write_all(OK).await.unwrap();
    })
    .await;
    let request = "POST / HTTP/1.1\r\nHost: plain.test\r\nTransfer-Encoding: chunked\r\n\r\n\
                   005;ext=1\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 11\r\n\r\n";
    assert_eq!(ask(&mut stream, request).await.status(), 200);
}

#[tokio::test]
async fn a_chunked_answer_keeps_its_trailers_and_the_connection() {
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
                  5\r\nhello\r\n0\r\nX-Sum: 5\r\n\r\n";
    let (_world, mut stream) = answered(answer).await;
    send(&mut stream, &get("/")).await;
    let head = read_head(&mut stream).await;
    assert!(head.contains("Transfer-Encoding: chunked\r\n"), "{head}");
    assert!(!head.contains("Connection: close"), "{head}");
    let mut body = [0; 25];
    stream.read_exact(&mut body).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&body), "5\r\nhello\r\n0\r\nX-Sum: 5\r\n\r\n");
}

#[tokio::test]
async fn an_answer_without_an_end_gets_one() {
    let (_world, mut stream) = answered("HTTP/1.1 200 OK\r\n\r\nhello").await;
    send(&mut stream, &get("/")).await;
    let head = read_head(&mut stream).await;
    assert!(head.contains("Transfer-Encoding: chunked\r\n"), "{head}");
    let mut body = [0; 15];
    stream.read_exact(&mut body).await.unwrap();
    assert_eq!(&body, b"5\r\nhello\r\n0\r\n\r\n");
}

#[tokio::test]
async fn an_old_client_gets_what_it_can_read() {
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let (_world, mut stream) = answered(answer).await;
    send(&mut stream, "GET / HTTP/1.0\r\n\r\n").await;
    let head = read_head(&mut stream).await;
    assert!(!head.contains("chunked") && head.contains("Connection: close"), "{head}");
    assert_eq!(read_rest(&mut stream).await, "hello");
}

#[tokio::test]
async fn an_answer_that_breaks_off_does_not_look_complete() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello",
    ] {
        let (world, mut stream) = answered(answer).await;
        send(&mut stream, &get("/")).await;
        let got = read_rest(&mut stream).await;
        assert!(!got.ends_with("\r\n\r\n"), "{got}");
        drop(stream);
        assert_eq!(world.requests().await[0].verdict(), "failed allow allowed");
        assert_eq!(world.requests().await[0].get("error.type"), "upstream_unreachable");
    }
}

#[tokio::test]
async fn an_answer_to_head_has_a_length_and_no_body() {
    let script = |_: &str| &b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"[..];
    let world = World::answering(ANY, script).await;
    let mut stream = world.tunnel("plain.test:80").await;
    for _ in 0..2 {
        send(&mut stream, "HEAD / HTTP/1.1\r\nHost: plain.test\r\n\r\n").await;
        let head = read_head(&mut stream).await;
        assert!(head.contains("Content-Length: 5000\r\n"), "{head}");
    }
    assert_eq!(world.plain.accepted(), 1);
}

#[tokio::test]
async fn a_refused_head_has_no_body_either() {
    let world = World::new(ANY).await;
    let mut stream = world.tunnel("plain.test:80").await;
    for _ in 0..2 {
        send(&mut stream, "HEAD /../x HTTP/1.1\r\nHost: plain.test\r\n\r\n").await;
        assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 400 "));
    }
}

#[tokio::test]
async fn answers_without_bodies_end_at_their_heads() {
    let script = |head: &str| match head.contains("/304") {
        true => &b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\nETag: x\r\n\r\n"[..],
        false => b"HTTP/1.1 204 No Content\r\n\r\n",
    };
    let world = World::answering(ANY, script).await;
    let mut stream = world.tunnel("plain.test:80").await;
    for path in ["/304", "/204", "/304"] {
        send(&mut stream, &get(path)).await;
        let head = read_head(&mut stream).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {} ", &path[1..])), "{head}");
    }
    assert_eq!(world.plain.accepted(), 1);
}

#[tokio::test]
async fn a_body_waits_for_the_upstreams_permission() {
    let (_world, mut stream) = connected(|mut stream| async move {
        let head = read_head(&mut stream).await;
        assert!(head.contains("Expect: 100-continue\r\n"), "{head}");
        send(&mut stream, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n").await;
        send(&mut stream, "HTTP/1.1 100 Continue\r\n\r\n").await;
        let mut body = [0; 5];
        stream.read_exact(&mut body).await.unwrap();
        stream.write_all(OK).await.unwrap();
    })
    .await;
    let head =
        "POST / HTTP/1.1\r\nHost: plain.test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    send(&mut stream, head).await;
    let hints = read_head(&mut stream).await;
    assert_eq!(hints, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n");
    assert_eq!(read_head(&mut stream).await, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(ask(&mut stream, "12345").await.body, "hello");
}

#[tokio::test]
async fn an_upstream_may_answer_before_it_has_heard_everything() {
    let (world, mut stream) = connected(|mut stream| async move {
        read_head(&mut stream).await;
        send(&mut stream, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno").await;
        let mut rest = Vec::new();
        drop(stream.read_to_end(&mut rest).await);
    })
    .await;
    send(&mut stream, "POST / HTTP/1.1\r\nHost: plain.test\r\nContent-Length: 9\r\n\r\nabc").await;
    let answer = read_answer(&mut stream).await;
    assert_eq!((answer.status(), answer.body.as_str()), (413, "no"));
    assert_eq!(answer.header("connection"), Some("close"));
    drop(stream);
    assert_eq!(world.requests().await[0].get("http.response.status_code"), "413");
}

#[tokio::test]
async fn pieces_arrive_as_they_are_sent() {
    let (_world, mut stream) = connected(|mut stream| async move {
        read_head(&mut stream).await;
        send(&mut stream, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n").await;
        // Each event waits for the word that the one before it has arrived.
        for event in 0..3 {
            send(&mut stream, &format!("data: {event}\n\n")).await;
            let mut heard = [0; 1];
            if stream.read_exact(&mut heard).await.is_err() {
                return;
            }
        }
    })
    .await;
    let head = "POST / HTTP/1.1\r\nHost: plain.test\r\nContent-Length: 3\r\n\r\n";
    send(&mut stream, head).await;
    read_head(&mut stream).await;
    for event in 0..3 {
        let mut chunk = [0; 14];
        stream.read_exact(&mut chunk).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&chunk), format!("9\r\ndata: {event}\n\n\r\n"));
        send(&mut stream, "+").await;
    }
}

#[tokio::test]
async fn a_client_that_has_said_everything_can_still_listen() {
    let (_world, mut stream) = connected(|mut stream| async move {
        read_head(&mut stream).await;
        tokio::task::yield_now().await;
        stream.write_all(OK).await.unwrap();
    })
    .await;
    send(&mut stream, &get("/")).await;
    stream.shutdown().await.unwrap();
    assert_eq!(read_answer(&mut stream).await.body, "hello");
    assert_eq!(read_rest(&mut stream).await, "");
}

#[tokio::test]
async fn a_websocket_is_relayed_both_ways_and_counted() {
    let (world, mut stream) = connected(|mut stream| async move {
        let head = read_head(&mut stream).await;
        assert!(head.contains("Connection: Upgrade\r\nupgrade: websocket\r\n"), "{head}");
        send(
            &mut stream,
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n\u{2}\u{1}+",
        )
        .await;
        // The mask is all zeroes, so the payload is the text.
        let mut frame = [0; 8];
        stream.read_exact(&mut frame).await.unwrap();
        assert_eq!(&frame, b"\x82\x82\0\0\0\0ab");
        stream.write_all(b"\x80\x02ba").await.unwrap();
    })
    .await;
    let request = "GET /ws HTTP/1.1\r\nHost: plain.test\r\nConnection: keep-alive, Upgrade\r\n\
                   upgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    send(&mut stream, request).await;
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("Connection: Upgrade\r\nUpgrade: websocket\r\n"), "{head}");
    stream.write_all(b"\x82\x82\0\0\0\0ab").await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"\x02\x01+\x80\x02ba");
    drop(stream);
    let requests = world.requests().await;
    assert_eq!(requests[0].verdict(), "relayed allow allowed");
    assert_eq!(requests[0].get("network.protocol.name"), "websocket");
}

#[tokio::test]
async fn a_websocket_needs_a_rule_of_its_own() {
    let world = World::new("{host: plain.test, protocol: http}").await;
    let mut stream = world.tunnel("plain.test:80").await;
    let request =
        "GET / HTTP/1.1\r\nHost: plain.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let answer = ask(&mut stream, request).await;
    assert_eq!(answer.refusal(), "403 no_rule");
    assert!(answer.body.contains("websocket: true"), "{}", answer.body);
    assert_eq!(world.dialled(), 0);
}

/// What a client gets when its upstream answers with `answer`.
async fn answer_to(answer: &'static str) -> (String, String) {
    let (world, mut stream) = answered(answer).await;
    let refusal = ask(&mut stream, &get("/")).await.refusal();
    drop(stream);
    (refusal, world.requests().await[0].verdict())
}

#[tokio::test]
async fn an_upstream_that_smuggles_is_cut_off() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        "HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
    ] {
        let (refusal, verdict) = answer_to(answer).await;
        assert_eq!(
            (refusal.as_str(), verdict.as_str()),
            ("502 upstream_malformed", "failed allow allowed")
        );
    }
}

#[tokio::test]
async fn an_upstream_that_says_nothing_is_an_upstream_that_failed() {
    let (refusal, _) = answer_to("").await;
    assert_eq!(refusal, "502 upstream_unreachable");
}

#[tokio::test]
async fn a_connection_with_bytes_left_over_is_not_used_again() {
    let script =
        |_: &str| &b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n"[..];
    let world = World::answering(ANY, script).await;
    let mut stream = world.tunnel("plain.test:80").await;
    for _ in 0..2 {
        assert_eq!(ask(&mut stream, &get("/")).await.body, "ok");
    }
    assert_eq!(world.plain.accepted(), 2);
}

#[tokio::test]
async fn a_kept_connection_that_died_is_replaced_once_for_what_changes_nothing() {
    // Each connection answers once, says it will stay, and does not.
    let (world, mut stream) = connected(|mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(OK).await.unwrap();
        read_head(&mut stream).await;
    })
    .await;
    for _ in 0..3 {
        assert_eq!(ask(&mut stream, &get("/")).await.body, "hello");
    }
    let post = "POST / HTTP/1.1\r\nHost: plain.test\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(ask(&mut stream, post).await.refusal(), "502 upstream_unreachable");
    assert_eq!(world.plain.accepted(), 3);
}

#[tokio::test]
async fn a_way_around_the_gateway_is_not_passed_on() {
    let answer = "HTTP/1.1 200 OK\r\nAlt-Svc: h3=\":443\"\r\nConnection: x-a\r\nX-A: 1\r\n\
                  Keep-Alive: timeout=5\r\nContent-Length: 0\r\nX-B: 2\r\n\r\n";
    let (_world, mut stream) = answered(answer).await;
    let answer = ask(&mut stream, &get("/")).await;
    assert_eq!(answer.head, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-B: 2\r\n\r\n");
}
