#![expect(clippy::disallowed_methods, reason = "a test is on the sandbox's side of the gateway")]

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use super::*;

const MAX_BYTES: usize = 100;

/// What is made of these bytes, after which the client says nothing more and waits.
async fn read(sent: &[u8]) -> Result<usize, Refusal> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    client.write_all(sent).await.unwrap();
    let mut inbox = Inbox::up_to(MAX_BYTES);
    let reading = read_head(&mut stream, &mut inbox, MAX_BYTES);
    tokio::time::timeout(Duration::from_secs(20), reading).await.expect("it is not waited for")
}

/// A head of so many bytes.
fn head(length: usize) -> Vec<u8> {
    let (start, end) = ("GET / HTTP/1.1\r\nx: ", "\r\n\r\n");
    format!("{start}{}{end}", "a".repeat(length - start.len() - end.len())).into_bytes()
}

#[tokio::test]
async fn a_head_may_be_as_long_as_it_may_be_and_no_longer() {
    assert_eq!(read(&head(MAX_BYTES)).await.unwrap(), MAX_BYTES);
    let followed = [head(MAX_BYTES), b"a body".repeat(100)].concat();
    assert_eq!(read(&followed).await.unwrap(), MAX_BYTES);
    for length in [MAX_BYTES + 1, MAX_BYTES * 3] {
        let refusal = read(&head(length)).await.unwrap_err();
        assert!(matches!(refusal, Refusal::HeadTooLarge { limit: MAX_BYTES }), "{refusal}");
    }
}

#[tokio::test]
async fn a_head_that_cannot_end_in_time_is_not_waited_for() {
    for length in [MAX_BYTES, MAX_BYTES + 1] {
        let unended = vec![b'a'; length];
        let refusal = read(&unended).await.unwrap_err();
        assert!(matches!(refusal, Refusal::HeadTooLarge { limit: MAX_BYTES }), "{refusal}");
    }
}
