//! Answers as servers and proxies frame them.

use super::*;
use tokio::io::duplex;

/// The answer that `bytes` are, and its body; they arrive in pieces of that size.
async fn received(bytes: &str, piece: usize) -> Result<(ReceivedAnswer, String)> {
    let (client, mut server) = duplex(1 << 16);
    let bytes = bytes.to_owned();
    tokio::spawn(async move {
        for piece in bytes.as_bytes().chunks(piece) {
            server.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    let mut body = Vec::new();
    let received = HttpConnection::new(client).receive(|piece| body.extend(piece)).await?;
    Ok((received, String::from_utf8(body).unwrap()))
}

#[tokio::test]
async fn a_body_is_the_same_in_whatever_pieces_it_arrives() {
    let answers = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", true),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
            true,
        ),
        ("HTTP/1.1 200 OK\r\n\r\nhello", false),
        ("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello", false),
        ("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", true),
    ];
    for (bytes, reusable) in answers {
        for piece in [1, 3, 4096] {
            let (received, body) = received(bytes, piece).await.unwrap();
            assert_eq!(
                received,
                ReceivedAnswer { status: 200, body_bytes: 5, reusable },
                "{bytes}"
            );
            assert_eq!(body, "hello", "{bytes}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error() {
    let answers = [
        ("HTTP/1.1 200 OK\r\nContent-Le", "connection closed before the response"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
            "closed with 2 bytes of the body missing",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n",
            "closed inside a chunked body",
        ),
    ];
    for (bytes, why) in answers {
        assert_eq!(received(bytes, 4096).await.unwrap_err().to_string(), why);
    }
}

#[test]
fn only_a_200_with_every_byte_counts() {
    let received = ReceivedAnswer { status: 200, body_bytes: 5, reusable: true };
    received.expect_bytes(5).unwrap();
    received.expect_bytes(6).unwrap_err();
    ReceivedAnswer { status: 403, ..received }.expect_bytes(5).unwrap_err();
}
