//! Bodies in chunks: what is around them is counted, and what follows them is looked at.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::world::{World, ask, read_answer, read_head, read_rest, send};

const ANY: &str = "{host: plain.test, protocol: http, methods: [GET, POST]}";
const POST: &str = "POST / HTTP/1.1\r\nHost: plain.test\r\nTransfer-Encoding: chunked\r\n\r\n";

/// What a client gets of an answer that is this, and what is recorded as received.
async fn answered_with(answer: &'static str) -> (String, String) {
    let serve = move |mut stream: TcpStream| async move {
        read_head(&mut stream).await;
        send(&mut stream, answer).await;
    };
    let world = World::with_upstream(ANY, Default::default(), serve).await;
    let mut stream = world.tunnel("plain.test:80").await;
    let get = "GET / HTTP/1.1\r\nHost: plain.test\r\nConnection: close\r\n\r\n";
    send(&mut stream, get).await;
    let got = read_rest(&mut stream).await;
    (got, world.requests().await[0].get("sluice.bytes.received"))
}

#[tokio::test]
async fn every_byte_of_an_answer_in_chunks_is_counted_as_it_came() {
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                  005;with=more\r\nhello\r\n1\r\n!\r\n0\r\nX-Sum: 6\r\n\r\n";
    let (got, received) = answered_with(answer).await;
    assert!(got.ends_with("hello\r\n1\r\n!\r\n0\r\nX-Sum: 6\r\n\r\n"), "{got}");
    assert_eq!(received, answer.len().to_string());
}

#[tokio::test]
async fn what_belongs_into_the_head_of_an_answer_does_not_follow_it() {
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                  5\r\nhello\r\n0\r\nHost: evil.test\r\nX-Sum: 5\r\n\r\n";
    let (got, received) = answered_with(answer).await;
    assert!(got.ends_with("5\r\nhello\r\n0\r\nX-Sum: 5\r\n\r\n"), "{got}");
    assert_eq!(received, answer.len().to_string());
}

/// A world whose upstream keeps all it hears, and answers what ends as it should.
async fn listening() -> (World, Arc<Mutex<Vec<u8>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&heard);
    let serve = move |mut stream: TcpStream| {
        let all = Arc::clone(&all);
        async move {
            while let Ok(byte) = stream.read_u8().await {
                all.lock().push(byte);
                if all.lock().ends_with(b"0\r\nX-Sum: 6\r\n\r\n") {
                    send(&mut stream, "HTTP/1.1 204 No Content\r\n\r\n").await;
                }
            }
        }
    };
    (World::with_upstream(ANY, Default::default(), serve).await, heard)
}

#[tokio::test]
async fn every_byte_of_a_request_in_chunks_is_counted_as_it_leaves() {
    let (world, heard) = listening().await;
    let mut stream = world.tunnel("plain.test:80").await;
    let body = "005;with=more\r\nhello\r\n1\r\n!\r\n0\r\nX-Sum: 6\r\n\r\n";
    assert_eq!(ask(&mut stream, &format!("{POST}{body}")).await.status(), 204);
    drop(stream);
    let sent = world.requests().await[0].get("sluice.bytes.sent");
    assert_eq!(sent, heard.lock().len().to_string());
}

#[tokio::test]
async fn what_belongs_into_the_head_of_a_request_may_not_follow_it() {
    let (world, heard) = listening().await;
    let mut stream = world.tunnel("plain.test:80").await;
    send(&mut stream, &format!("{POST}5\r\nhello\r\n0\r\nHost: evil.test\r\nX-Sum: 6\r\n\r\n"))
        .await;
    assert_eq!(read_answer(&mut stream).await.refusal(), "400 malformed");
    drop(stream);
    assert_eq!(world.requests().await[0].verdict(), "refused deny malformed");
    let heard = String::from_utf8_lossy(&heard.lock()).into_owned();
    assert!(!heard.contains("evil.test") && !heard.contains("\r\n0\r\n"), "{heard}");
}
