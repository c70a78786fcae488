//! Between two requests, and after the last. Time passes only where a test lets it.

use std::pin::Pin;

use audit::{ClientRecord, WayIn};
use tokio::io::{DuplexStream, ReadBuf, duplex};
use tokio::time::timeout;

use super::*;
use crate::http1::ClearDoor;
use crate::limits::Bounds;
use crate::record::ConnectionRecord;
use crate::testing::{ALLOWED_TEST, Stage};

const SECOND: Duration = Duration::from_secs(1);

/// Waits for a head, as a connection in the clear does.
async fn wait_for_head(stage: &Stage, io: &mut DuplexStream) -> Result<bool, Refusal> {
    let gateway = &stage.gateway;
    let client = ClientRecord::new(([127, 0, 0, 1], 9).into(), WayIn::Proxy);
    let mut record = ConnectionRecord::begin(gateway, client).unwrap();
    let source = Destinations::per_request(gateway, &mut record, ClearDoor::Proxy);
    let (mut deadlines, mut head) = (ExchangeDeadlines::new(gateway), RequestHead::default());
    let (mut inbox, mut buffers) = (Inbox::new(), ExchangeBuffers::new(0));
    next_head(io, &mut inbox, &mut head, &mut deadlines, &source, &mut buffers).await
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_may_stay_for_its_time_and_ends_without_a_word() {
    for idle in [SHRINK_AFTER / 2, SHRINK_AFTER, SHRINK_AFTER * 5] {
        let stage = Stage::with_bounds(ALLOWED_TEST, Bounds { idle, ..Bounds::default() });
        let (mut io, _client) = duplex(64);
        let mut waiting = Box::pin(wait_for_head(&stage, &mut io));
        assert!(timeout(idle - SECOND / 2, &mut waiting).await.is_err(), "its time is not up");
        let ended = timeout(SECOND, waiting).await;
        assert!(matches!(ended, Ok(Ok(false))), "{idle:?}: {ended:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_a_silent_connection_and_lets_a_head_arrive() {
    let stage = Stage::new(ALLOWED_TEST);
    let (mut io, mut client) = duplex(64);
    let (mut silent_io, _silent) = duplex(64);
    let mut begun = Box::pin(wait_for_head(&stage, &mut io));
    let mut silent = Box::pin(wait_for_head(&stage, &mut silent_io));
    client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    assert!(timeout(SECOND, &mut begun).await.is_err());
    assert!(timeout(SECOND, &mut silent).await.is_err());

    stage.gateway.drain();
    assert!(matches!(timeout(SECOND, silent).await, Ok(Ok(false))));
    assert!(timeout(SECOND, &mut begun).await.is_err(), "it is in the middle of its request");
    client.write_all(b"\r\n").await.unwrap();
    assert!(matches!(timeout(SECOND, begun).await, Ok(Ok(true))));
}

#[tokio::test]
async fn a_client_that_leaves_between_two_requests_is_not_told_off() {
    let stage = Stage::new(ALLOWED_TEST);
    let (mut io, client) = duplex(64);
    drop(client);
    assert!(matches!(wait_for_head(&stage, &mut io).await, Ok(false)));
}

#[tokio::test]
async fn a_head_may_be_as_long_as_the_limit_and_no_longer() {
    let head = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
    for (longest, fits) in [(head.len(), true), (head.len() - 1, false)] {
        let (mut inbox, mut io) = (Inbox::new(), tokio::io::empty());
        // Whole at once, as it comes from a client with a fast wire.
        inbox.fill(&mut &head[..]).await.unwrap();
        let mut reading =
            HeadWait { io: &mut io, inbox: &mut inbox, search: HeadSearch::new(longest) };
        let read = std::future::poll_fn(|cx| reading.poll_head(cx)).await;
        match fits {
            true => assert!(matches!(read, Ok(HeadProgress::Head(end)) if end == head.len())),
            false => {
                assert!(matches!(read, Err(Refusal::HeadTooLarge { limit }) if limit == longest))
            }
        }
    }
}

/// A client that sends without end. What was read of it is counted.
#[derive(Default)]
struct Endless {
    read: usize,
    was_told_the_end: bool,
}

const LINGERED: usize = 8 * 1024 * 1024;

impl AsyncRead for Endless {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        assert!(self.was_told_the_end, "a client that is not told waits for its answer");
        assert!(self.read <= LINGERED, "nobody listens for ever");
        out.put_slice(&vec![b'x'; out.remaining()]);
        self.read += out.filled().len();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Endless {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.was_told_the_end = true;
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn what_a_refused_client_still_sends_is_read_up_to_a_limit() {
    let mut client = Endless::default();
    linger(&mut client).await;
    assert_eq!(client.read, LINGERED);
}

#[tokio::test]
async fn a_connection_that_ends_well_says_so() {
    let mut client = Endless::default();
    close(&mut client).await;
    assert!(client.was_told_the_end);
}
