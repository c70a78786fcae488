use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::websocket::AgreedExtensions;
use crate::websocket::frames::FrameSender;

const PING: &[u8] = &[0x89, 0x00];
/// A server's frames are never masked.
const MASKED: &[u8] = &[0x89, 0x80, 0, 0, 0, 0];

fn checker() -> FrameChecker {
    FrameChecker::new(FrameSender::Server, AgreedExtensions { deflate: false })
}

#[tokio::test]
async fn frames_pass_and_a_fault_is_told() {
    let (mut ours, mut theirs) = tokio::io::duplex(1000);
    let mut checked = FrameCheckedIo::new(&mut ours, checker(), &mut Inbox::new());
    theirs.write_all(PING).await.unwrap();
    let mut read = [0; 2];
    checked.read_exact(&mut read).await.unwrap();
    assert_eq!((read.as_slice(), checked.fault(), checked.can_close()), (PING, None, true));

    // Half a frame: nothing may come between it and its other half.
    theirs.write_all(&PING[..1]).await.unwrap();
    checked.read_exact(&mut read[..1]).await.unwrap();
    assert!(!checked.can_close());
    theirs.write_all(&PING[1..]).await.unwrap();
    checked.read_exact(&mut read[..1]).await.unwrap();

    theirs.write_all(MASKED).await.unwrap();
    let err = checked.read(&mut read).await.unwrap_err();
    assert_eq!(err.to_string(), WebSocketFault::Masked.to_string());
    assert_eq!((checked.fault(), checked.can_close()), (Some(WebSocketFault::Masked), true));
    checked.read(&mut read).await.unwrap_err();
}

#[tokio::test]
async fn what_was_read_before_is_checked_too_and_thrown_away_if_it_is_wrong() {
    let (mut ours, mut theirs) = tokio::io::duplex(1000);
    let mut inbox = Inbox::new();
    theirs.write_all(PING).await.unwrap();
    std::future::poll_fn(|cx| inbox.poll_fill(cx, &mut ours)).await.unwrap();
    let checked = FrameCheckedIo::new(&mut ours, checker(), &mut inbox);
    assert_eq!((checked.fault(), inbox.filled()), (None, PING));

    theirs.write_all(MASKED).await.unwrap();
    std::future::poll_fn(|cx| inbox.poll_fill(cx, &mut ours)).await.unwrap();
    let checked = FrameCheckedIo::new(&mut ours, checker(), &mut inbox);
    assert_eq!((checked.fault(), inbox.filled()), (Some(WebSocketFault::Masked), &b""[..]));
}

#[tokio::test]
async fn what_is_written_is_flushed_and_passes_as_it_is() {
    let (ours, mut theirs) = tokio::io::duplex(1000);
    // What is written waits here until it is flushed.
    let mut held = tokio::io::BufWriter::new(ours);
    let mut checked = FrameCheckedIo::new(&mut held, checker(), &mut Inbox::new());
    checked.write_all(b"not a frame").await.unwrap();
    checked.flush().await.unwrap();
    let mut heard = [0; 11];
    theirs.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"not a frame");
    checked.shutdown().await.unwrap();
    assert_eq!(theirs.read(&mut heard).await.unwrap(), 0);
}
