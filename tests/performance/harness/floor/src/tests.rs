//! Bodies pass unchanged, whatever their framing and in whatever pieces they arrive.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

use super::FloorArgs;
use crate::body::{self, BodyFraming};
use crate::buffer::PendingBytes;

/// What is sent on of `bytes`, and what copying says of it.
async fn copied(framing: BodyFraming, bytes: &str, piece: usize) -> (anyhow::Result<u64>, String) {
    let (mut from, mut sender) = duplex(1 << 12);
    let (mut to, mut receiver) = duplex(1 << 12);
    let bytes = bytes.to_owned();
    let sending = async move {
        for piece in bytes.as_bytes().chunks(piece) {
            // What no longer belongs to the body is not read.
            sender.write_all(piece).await.ok();
            tokio::task::yield_now().await;
        }
    };
    let copying =
        async move { body::copy(framing, &mut PendingBytes::default(), &mut from, &mut to).await };
    let mut received = String::new();
    let (_, copied, read) = tokio::join!(sending, copying, receiver.read_to_string(&mut received));
    read.unwrap();
    (copied, received)
}

#[tokio::test]
async fn a_body_passes_as_it_is() {
    let chunked = "5\r\nhello\r\n3\r\nyou\r\n0\r\n\r\n";
    let bodies = [
        (BodyFraming::Length(5), "hello", "hello"),
        (BodyFraming::Length(5), "hello, you", "hello"),
        (BodyFraming::UntilClose, "hello", "hello"),
        (BodyFraming::Chunked, chunked, chunked),
        (BodyFraming::Absent, "hello", ""),
    ];
    for (framing, sent, expected) in bodies {
        for piece in [1, 4, 1000] {
            let (copied, received) = copied(framing, sent, piece).await;
            assert_eq!((copied.unwrap(), &*received), (expected.len() as u64, expected));
        }
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error() {
    for (framing, sent) in [(BodyFraming::Length(9), "hello"), (BodyFraming::Chunked, "5\r\nhel")] {
        let (copied, _) = copied(framing, sent, 1000).await;
        assert_eq!(copied.unwrap_err().to_string(), "a body breaks off");
    }
}

#[test]
fn what_came_with_a_head_belongs_to_its_body_or_to_the_next_request() {
    let split = |framing: BodyFraming, available| {
        let (part, rest) = framing.split(available);
        (part, rest == BodyFraming::Length(2))
    };
    assert_eq!(split(BodyFraming::Length(5), 3), (3, true));
    assert_eq!(split(BodyFraming::Length(5), 9), (5, false));
    assert_eq!(split(BodyFraming::Absent, 9), (0, false));
}

#[test]
fn a_missing_argument_is_named() {
    let words = ["13113", "ca.pem", "ca.key"].map(str::to_owned);
    let why = FloorArgs::parse(words.into_iter()).err().unwrap().to_string();
    assert_eq!(why, "ORIGIN_CA.pem is missing");
}
