//! What keeps a connection from becoming a WebSocket, or from staying one.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::world::{World, ask, read_head, read_rest, send};

const ANY: &str = "{host: plain.test, protocol: http, websocket: true}";
const ASK: &str = "GET / HTTP/1.1\r\nHost: plain.test\r\nConnection: Upgrade\r\n\
                   Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const AGREE: &str = "HTTP/1.1 101 Go\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// An upstream that agrees, says `first` and listens.
async fn agreeing(first: &'static [u8]) -> (World, TcpStream) {
    let world = World::with_upstream(ANY, Default::default(), move |mut stream| async move {
        read_head(&mut stream).await;
        send(&mut stream, AGREE).await;
        stream.write_all(first).await.unwrap();
        read_rest(&mut stream).await;
    })
    .await;
    let stream = world.tunnel("plain.test:80").await;
    (world, stream)
}

#[tokio::test]
async fn a_wish_for_a_websocket_has_no_body() {
    for body in ["Content-Length: 1\r\n\r\nx", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"] {
        let (world, mut stream) = agreeing(b"").await;
        let answer = ask(&mut stream, &format!("{ASK}{body}")).await;
        assert_eq!(answer.refusal(), "400 malformed");
        assert!(answer.body.contains("cannot have a body"), "{}", answer.body);
        assert_eq!(world.dialled(), 0);
    }
}

#[tokio::test]
async fn nothing_is_said_before_a_websocket_is_agreed_on() {
    let (world, mut stream) = agreeing(b"").await;
    let answer = ask(&mut stream, &format!("{ASK}\r\n\u{1}")).await;
    assert_eq!(answer.refusal(), "400 malformed");
    assert!(answer.body.contains("wait for the 101"), "{}", answer.body);
    drop(stream);
    assert_eq!(world.requests().await[0].verdict(), "refused deny malformed");
}

const UNMASKED: &[u8] = b"\x81\x02hi";

#[tokio::test]
async fn a_client_that_breaks_the_rules_is_told_in_a_frame() {
    let (world, mut stream) = agreeing(b"\x81\x02hi").await;
    send(&mut stream, &format!("{ASK}\r\n")).await;
    read_head(&mut stream).await;
    let mut frame = [0; 4];
    stream.read_exact(&mut frame).await.unwrap();
    stream.write_all(UNMASKED).await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, crate::websocket::PROTOCOL_ERROR_CLOSE);
    drop(stream);
    assert_eq!(world.requests().await[0].get("sluice.outcome"), "refused");
}

#[tokio::test]
async fn no_frame_is_put_into_the_middle_of_another() {
    // Five bytes were announced, and two have come.
    let (_world, mut stream) = agreeing(b"\x81\x05he").await;
    send(&mut stream, &format!("{ASK}\r\n")).await;
    read_head(&mut stream).await;
    let mut begun = [0; 4];
    stream.read_exact(&mut begun).await.unwrap();
    stream.write_all(UNMASKED).await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"", "it would be read as what was announced");
}
