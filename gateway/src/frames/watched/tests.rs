//! What goes by on a watched stream, as the library would read and write it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::*;

const WINDOW: u32 = 1 << 20;
const PRI: &[u8; PREFACE_BYTES] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn ping() -> Vec<u8> {
    frame(6, 0, 0, &[0; 8])
}

fn head(stream: u32) -> Vec<u8> {
    frame(HEADERS, 0, stream, b"x")
}

/// Our side of a connection, and what the peer writes to.
fn connection(
    opener: StreamOpener,
) -> (WatchedStream<DuplexStream>, Arc<FrameWatch>, DuplexStream) {
    let (ours, theirs) = tokio::io::duplex(4 << 20);
    let (watched, watch) = watched(ours, opener, WINDOW);
    (watched, watch, theirs)
}

/// Reads what there is, with one poll.
fn poll_read(
    stream: &mut WatchedStream<DuplexStream>,
    woken: &Arc<Woken>,
) -> Poll<io::Result<usize>> {
    let waker = Waker::from(Arc::clone(woken));
    let mut bytes = vec![0; 1 << 20];
    let mut out = ReadBuf::new(&mut bytes);
    let polled = Pin::new(stream).poll_read(&mut Context::from_waker(&waker), &mut out);
    polled.map_ok(|()| out.filled().len())
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn bytes_that_carry_nothing_are_told_once() {
    let (mut watched, watch, mut peer) = connection(StreamOpener::Peer);
    peer.write_all(PRI).await.unwrap();
    peer.write_all(&ping()).await.unwrap();
    peer.write_all(&ping()).await.unwrap();
    let mut read = vec![0; PREFACE_BYTES + 2 * 17];
    watched.read_exact(&mut read).await.unwrap();
    assert_eq!(watch.take_overhead(), 34);
    assert_eq!(watch.take_overhead(), 0);
    assert_eq!(watch.fault(), None);
}

#[tokio::test]
async fn a_flood_ends_the_connection_and_says_why() {
    let (mut watched, watch, mut peer) = connection(StreamOpener::Peer);
    peer.write_all(PRI).await.unwrap();
    peer.write_all(&ping().repeat(20_000)).await.unwrap();
    let mut read = vec![0; 64 << 10];
    let err = loop {
        match watched.read(&mut read).await {
            Ok(count) => assert!(count > 0, "it ends with an error"),
            Err(err) => break err,
        }
    };
    let Some(FrameFault::Empty { count, last }) = watch.fault() else { panic!("{err}") };
    assert_eq!(last, "PING");
    assert_eq!(err.to_string(), FrameFault::Empty { count, last }.to_string());
}

#[tokio::test]
async fn after_many_heads_in_one_read_others_have_a_turn() {
    for (heads, pauses) in [(MAX_HEADS_PER_READ, false), (MAX_HEADS_PER_READ + 1, true)] {
        let (mut watched, _watch, mut peer) = connection(StreamOpener::Peer);
        let opened: Vec<u8> = (0..heads).flat_map(|n| head(2 * n as u32 + 1)).collect();
        peer.write_all(&[PRI, opened.as_slice(), &ping(), &ping()].concat()).await.unwrap();
        let woken = Arc::new(Woken::default());
        assert!(poll_read(&mut watched, &woken).is_ready());
        assert_eq!(woken.0.load(Ordering::SeqCst), 0);
        peer.write_all(&ping()).await.unwrap();
        assert_eq!(poll_read(&mut watched, &woken).is_pending(), pauses, "{heads} heads");
        assert_eq!(woken.0.load(Ordering::SeqCst), usize::from(pauses), "it is asked again");
        if pauses {
            assert!(poll_read(&mut watched, &woken).is_ready(), "once is enough");
        }
    }
}

/// Takes so many bytes of each write, and counts the rest of what is asked of it.
#[derive(Debug, Default)]
struct Socket {
    takes: usize,
    vectored: bool,
    flushed: usize,
    shut: usize,
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(self.takes.min(bytes.len())))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(self.takes.min(parts.iter().map(|part| part.len()).sum())))
    }

    fn is_write_vectored(&self) -> bool {
        self.vectored
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.flushed += 1;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shut += 1;
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn what_was_not_written_was_not_said() {
    // Two streams are opened in two parts, and the socket takes only some of it.
    let parts = [[PRI.as_slice(), &head(1)].concat(), head(3), head(5)];
    let lengths = parts.each_ref().map(Vec::len);
    for (takes, opened) in [
        (lengths[0] - 2, [false, false, false]),
        (lengths[0], [true, false, false]),
        (lengths[0] + 4, [true, false, false]),
        (lengths[0] + lengths[1], [true, true, false]),
        (1000, [true, true, true]),
    ] {
        let (mut watched, watch) =
            watched(Socket { takes, ..Socket::default() }, StreamOpener::We, WINDOW);
        let slices = parts.each_ref().map(|part| IoSlice::new(part));
        let written = watched.write_vectored(&slices).await.unwrap();
        assert_eq!(written, takes.min(lengths.iter().sum()));
        let answered = [1, 3, 5].map(|stream| {
            let answer = watch.read(&head(stream)).is_ok();
            // One that was never asked is a fault, and a fault stays.
            watch.0.lock().fault = None;
            answer
        });
        assert_eq!(answered, opened, "{takes} bytes were written");
    }
}

#[tokio::test]
async fn one_write_is_looked_at_as_far_as_it_went() {
    let wire = [PRI.as_slice(), &head(1), &head(3)].concat();
    let takes = wire.len() - head(3).len();
    let (mut watched, watch) =
        watched(Socket { takes, ..Socket::default() }, StreamOpener::We, WINDOW);
    assert_eq!(watched.write(&wire).await.unwrap(), takes);
    assert_eq!(watch.read(&head(1)), Ok(1));
    assert!(watch.read(&head(3)).is_err());
}

#[tokio::test]
async fn the_socket_beneath_is_flushed_and_shut() {
    for vectored in [false, true] {
        let socket = Socket { vectored, takes: 1000, ..Socket::default() };
        let (mut watched, _watch) = watched(socket, StreamOpener::We, WINDOW);
        assert_eq!(watched.is_write_vectored(), vectored);
        watched.flush().await.unwrap();
        assert_eq!((watched.stream.flushed, watched.stream.shut), (1, 0));
        watched.shutdown().await.unwrap();
        assert_eq!((watched.stream.flushed, watched.stream.shut), (1, 1));
    }
}
