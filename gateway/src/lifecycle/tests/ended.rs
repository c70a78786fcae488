//! How a connection ends, and whether it does: after a refusal, in the middle of an
//! answer, when its client is gone.

use std::io;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::world::{World, ask, read_head, read_rest, send};
use crate::listen::ListenerKind;

const ANY: &str = "allowed.test, {host: plain.test, protocol: http, methods: [GET, POST]}";

#[tokio::test]
async fn the_body_of_a_refused_request_is_not_the_next_request() {
    let world = World::new(ANY).await;
    let mut stream = world.tunnel("plain.test:80").await;
    let body = "GET / HTTP/1.1\r\nHost: plain.test\r\n\r\n";
    let length = body.len();
    let refused =
        format!("POST /../ HTTP/1.1\r\nHost: plain.test\r\nContent-Length: {length}\r\n\r\n{body}");
    let answer = ask(&mut stream, &refused).await;
    assert_eq!(answer.refusal(), "400 ambiguous");
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(read_rest(&mut stream).await, "");
    drop(stream);
    assert_eq!(world.dialled(), 0);
    assert_eq!(world.requests().await.len(), 1);
}

#[tokio::test]
async fn a_refused_client_that_wants_to_close_may() {
    let world = World::new(ANY).await;
    let mut stream = world.tunnel("plain.test:80").await;
    let refused = "GET /../ HTTP/1.1\r\nHost: plain.test\r\nConnection: close\r\n\r\n";
    let answer = ask(&mut stream, refused).await;
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(read_rest(&mut stream).await, "");
}

#[tokio::test]
async fn the_end_of_a_connection_can_be_told_from_an_attack() {
    let world = World::new(ANY).await;
    let mut stream = world.secure().await;
    let last = "GET / HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n";
    assert_eq!(ask(&mut stream, last).await.status(), 200);
    let mut rest = Vec::new();
    // Without a goodbye of TLS this is an error.
    assert_eq!(stream.read_to_end(&mut rest).await.unwrap(), 0);
}

/// How a client learns of the end of an answer that breaks off.
async fn broken_off(version: &str, answer: &'static str) -> io::Result<usize> {
    let serve = move |mut stream: TcpStream| async move {
        read_head(&mut stream).await;
        send(&mut stream, answer).await;
    };
    let world = World::with_upstream(ANY, Default::default(), serve).await;
    let mut stream = world.tunnel("plain.test:80").await;
    send(&mut stream, &format!("GET / HTTP/{version}\r\nHost: plain.test\r\n\r\n")).await;
    stream.read_to_end(&mut Vec::new()).await
}

#[tokio::test]
async fn where_an_end_would_look_like_the_end_of_the_answer_there_is_a_reset() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello";
    let counted = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello";
    let reset = broken_off("1.0", chunked).await.unwrap_err();
    assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
    // These are seen to be too short.
    for (version, answer) in [("1.0", counted), ("1.1", counted), ("1.1", chunked)] {
        broken_off(version, answer).await.unwrap();
    }
}

#[tokio::test]
async fn an_upstream_that_did_not_hear_a_whole_request_hears_no_other() {
    let script = |_: &str| &b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno"[..];
    let world = World::answering(ANY, script).await;
    let mut first = world.tunnel("plain.test:80").await;
    let part = "POST / HTTP/1.1\r\nHost: plain.test\r\nContent-Length: 90\r\n\r\nabc";
    assert_eq!(ask(&mut first, part).await.status(), 413);
    // On the same connection this would be the rest of that body.
    let mut second = world.tunnel("plain.test:80").await;
    let get = "GET / HTTP/1.1\r\nHost: plain.test\r\n\r\n";
    assert_eq!(ask(&mut second, get).await.status(), 413);
    assert_eq!(world.plain.accepted(), 2);
}

#[tokio::test]
async fn nothing_is_fetched_for_a_client_that_is_gone() {
    let world = World::answering(ANY, |_| b"").await;
    let (mut stream, serving) = world.connect_task(ListenerKind::Proxy).await;
    send(&mut stream, "GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\n\r\n").await;
    while world.heard().is_empty() {
        tokio::task::yield_now().await;
    }
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    // The upstream never answers; only the client's end can end this.
    serving.await.unwrap();
    assert_eq!(world.requests().await[0].verdict(), "failed allow allowed");
    assert_eq!(world.requests().await[0].get("error.type"), "client_gone");
}
