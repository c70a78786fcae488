//! One exchange, step by step, with its two wires in the test's hands.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Waker;

use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::http1_codec::framing::Framing;
use crate::limits::HostCount;
use crate::record::ConnectionTotals;
use crate::testing::{ALLOWED_TEST, Stage};

/// What an exchange borrows. Its request is sent, and nothing was answered.
struct Scene {
    client: DuplexStream,
    _client: DuplexStream,
    client_in: Inbox,
    upstream: UpstreamStream,
    upstream_in: Inbox,
    record: RequestRecord,
}

impl Scene {
    /// With the upstream's end of its wire.
    async fn new(stage: &Stage) -> (Self, TcpStream) {
        let (ours, theirs) = wire().await;
        let facts = audit::RequestFacts::default();
        let record = RequestRecord::begin(
            &stage.gateway,
            facts,
            Arc::new(ConnectionTotals::default()),
            HostCount::default(),
        )
        .unwrap();
        let (client, _client) = duplex(64);
        let scene = Self {
            client,
            _client,
            client_in: Inbox::new(),
            upstream: UpstreamStream::Plain(ours),
            upstream_in: Inbox::new(),
            record,
        };
        (scene, theirs)
    }

    fn io(&mut self, longest_head: usize) -> ExchangeIo<'_, DuplexStream> {
        let Self { client, client_in, upstream, upstream_in, record, .. } = self;
        ExchangeIo {
            client,
            client_in,
            upstream,
            upstream_in,
            up: BodyPump::new(Framing::Empty, false, Vec::new()),
            sending: SendState::Done,
            down: BodyPump::new(Framing::Empty, false, Vec::new()),
            client_ended: false,
            record,
            record_sent: false,
            search: HeadSearch::new(longest_head),
        }
    }
}

async fn wire() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    #[expect(clippy::disallowed_methods, reason = "the other end of a wire on loopback")]
    let (one, other) = tokio::join!(TcpStream::connect(at), listener.accept());
    (one.unwrap(), other.unwrap().0)
}

#[tokio::test]
async fn what_moves_on_either_side_counts() {
    let stage = Stage::new(ALLOWED_TEST);
    let (mut scene, _upstream) = Scene::new(&stage).await;
    let mut io = scene.io(1000);
    (io.up.moved, io.down.moved) = (2, 3);
    assert_eq!(io.moved(), 5);
}

#[tokio::test]
async fn an_answer_that_dribbles_in_is_not_silence() {
    let stage = Stage::new(ALLOWED_TEST);
    let (mut scene, mut upstream) = Scene::new(&stage).await;
    let mut io = scene.io(1000);
    for (count, piece) in (1..).zip(["HTTP/1.1 200 OK\r\n", "Content-Length: 0\r\n"]) {
        upstream.write_all(piece.as_bytes()).await.unwrap();
        poll_fn(|cx| {
            assert!(io.poll_head(cx).is_pending(), "the head has not ended");
            if io.moved() < count { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        assert_eq!(io.moved(), count);
    }
}

/// What becomes of these bytes of an answer, when so many may be a head.
async fn read_at_once(bytes: &[u8], longest_head: usize) -> Poll<Result<usize, Refusal>> {
    let stage = Stage::new(ALLOWED_TEST);
    let (mut scene, _upstream) = Scene::new(&stage).await;
    scene.upstream_in.fill(&mut &bytes[..]).await.unwrap();
    let mut io = scene.io(longest_head);
    io.poll_head(&mut Context::from_waker(Waker::noop()))
}

fn is_refused(read: &Poll<Result<usize, Refusal>>) -> bool {
    matches!(read, Poll::Ready(Err(Refusal::UpstreamMalformed(_))))
}

#[tokio::test]
async fn the_head_of_an_answer_may_be_as_long_as_the_limit_and_no_longer() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let read = read_at_once(head, head.len()).await;
    assert!(matches!(read, Poll::Ready(Ok(end)) if end == head.len()), "{read:?}");
    let read = read_at_once(head, head.len() - 1).await;
    assert!(is_refused(&read), "{read:?}");

    let begun = &head[..head.len() - 1];
    let read = read_at_once(begun, head.len()).await;
    assert!(read.is_pending(), "one more byte may come: {read:?}");
    let read = read_at_once(begun, begun.len()).await;
    assert!(is_refused(&read), "its end would be beyond the limit: {read:?}");
}

#[tokio::test]
async fn an_answer_whose_line_is_written_waits_for_nobody() {
    let stage = Stage::new(ALLOWED_TEST);
    let (mut scene, _upstream) = Scene::new(&stage).await;
    scene.record.queue_opened();
    poll_fn(|cx| scene.record.poll_recorded(cx)).await.unwrap();
    // Others would gather their lines.
    stage.gateway.in_flight.here().up();
    let mut io = scene.io(1000);
    let recorded = io.poll_recorded(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(recorded, Poll::Ready(Ok(()))), "{recorded:?}");
}
