//! Reads more than was asked for, while a peer sends at full speed.
//!
//! TLS reads four kibibytes at a time, which is a system call for every quarter
//! of a record. Under it, this reads sixty-four, but only while reads come back
//! full: a connection that is idle, or says little, holds no buffer.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// A socket with a buffer that comes and goes.
#[derive(Debug)]
pub(crate) struct ReadAhead<S> {
    socket: S,
    /// What was read ahead; up to `at` it is handed out.
    buffer: Vec<u8>,
    at: usize,
    /// The last read was full, so there is probably more.
    reading_fast: bool,
}

impl<S> ReadAhead<S> {
    pub(crate) fn new(socket: S) -> Self {
        Self { socket, buffer: Vec::new(), at: 0, reading_fast: false }
    }

    pub(crate) fn socket(&self) -> &S {
        &self.socket
    }

    fn hand_out(&mut self, out: &mut ReadBuf<'_>) {
        let ahead = self.buffer.get(self.at..).unwrap_or_default();
        let part = ahead.get(..out.remaining()).unwrap_or(ahead);
        out.put_slice(part);
        self.at += part.len();
        if self.at == self.buffer.len() && !self.reading_fast {
            (self.buffer, self.at) = (Vec::new(), 0);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.at < this.buffer.len() {
            this.hand_out(out);
            return Poll::Ready(Ok(()));
        }
        if !this.reading_fast {
            let (before, room) = (out.filled().len(), out.remaining());
            ready!(Pin::new(&mut this.socket).poll_read(cx, out))?;
            this.reading_fast = room >= MIN_FULL_READ_BYTES && out.filled().len() - before == room;
            return Poll::Ready(Ok(()));
        }
        this.at = 0;
        this.buffer.clear();
        this.buffer.reserve_exact(READ_AHEAD_BYTES);
        // `read_buf` reads into memory that need not be zeroed first.
        let read = pin!(this.socket.read_buf(&mut this.buffer)).poll(cx);
        if read.is_pending() {
            this.buffer = Vec::new();
        }
        this.reading_fast = ready!(read)? >= MIN_FULL_READ_BYTES;
        this.hand_out(out);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadAhead<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}

/// Four TLS records.
const READ_AHEAD_BYTES: usize = 4 * ((16 << 10) + 256);
/// A read that brings less is not followed by more soon enough to be worth a
/// buffer.
const MIN_FULL_READ_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt as _;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Whatever sizes are written and asked for, the bytes come out whole and
        /// in order, and then the end.
        #[test]
        fn what_went_in_comes_out(
            writes in prop::collection::vec(1..40_000usize, 1..12),
            asks in prop::collection::vec(1..9_000usize, 1..6),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let sent: Vec<u8> = (0..writes.iter().sum::<usize>()).map(|n| (n % 251) as u8).collect();
            let received = runtime.block_on(async {
                let (mut near, far) = tokio::io::duplex(30_000);
                let all = sent.clone();
                let writing = tokio::spawn(async move {
                    let mut rest = all.as_slice();
                    for size in writes {
                        let (now, later) = rest.split_at(size);
                        near.write_all(now).await.unwrap();
                        rest = later;
                    }
                });
                let mut ahead = ReadAhead::new(far);
                let mut received = Vec::new();
                let mut asks = asks.into_iter().cycle();
                loop {
                    let mut part = vec![0; asks.next().unwrap()];
                    match ahead.read(&mut part).await.unwrap() {
                        0 => break,
                        n => received.extend_from_slice(&part[..n]),
                    }
                }
                writing.await.unwrap();
                received
            });
            prop_assert_eq!(received, sent);
        }
    }

    #[tokio::test]
    async fn a_connection_that_says_little_holds_no_buffer() {
        let (mut near, far) = tokio::io::duplex(1 << 20);
        let mut ahead = ReadAhead::new(far);
        let mut part = [0; 4096];
        near.write_all(&[1; 100]).await.unwrap();
        assert_eq!(ahead.read(&mut part).await.unwrap(), 100);
        assert_eq!(ahead.buffer.capacity(), 0);

        near.write_all(&[2; 50_000]).await.unwrap();
        let mut left = 50_000;
        while left > 0 {
            left -= ahead.read(&mut part).await.unwrap();
        }
        near.write_all(&[3; 1]).await.unwrap();
        assert_eq!(ahead.read(&mut part).await.unwrap(), 1);
        assert_eq!(ahead.buffer.capacity(), 0);
    }

    /// Reads once, after `before` bytes that are there already, with so much room.
    async fn read_with_room(
        ahead: &mut ReadAhead<tokio::io::DuplexStream>,
        before: usize,
        room: usize,
    ) -> usize {
        let mut bytes = vec![0; before + room];
        let mut out = ReadBuf::new(&mut bytes);
        out.put_slice(&vec![0; before]);
        std::future::poll_fn(|cx| Pin::new(&mut *ahead).poll_read(cx, &mut out)).await.unwrap();
        out.filled().len() - before
    }

    #[tokio::test]
    async fn only_a_large_read_that_came_back_full_is_read_ahead_of() {
        for (sent, before, room, reading_fast) in [
            (100_000, 0, MIN_FULL_READ_BYTES, true),
            (100_000, 10, MIN_FULL_READ_BYTES, true),
            (100_000, 0, MIN_FULL_READ_BYTES - 1, false),
            (MIN_FULL_READ_BYTES, 0, MIN_FULL_READ_BYTES, true),
            (MIN_FULL_READ_BYTES, 0, MIN_FULL_READ_BYTES + 1, false),
            (10, 0, MIN_FULL_READ_BYTES, false),
            (10, 0, 10, false),
        ] {
            let (mut near, far) = tokio::io::duplex(1 << 20);
            let mut ahead = ReadAhead::new(far);
            near.write_all(&vec![1; sent]).await.unwrap();
            assert_eq!(read_with_room(&mut ahead, before, room).await, sent.min(room));
            assert_eq!(ahead.reading_fast, reading_fast, "{sent} bytes, room for {room}");
        }
    }

    #[tokio::test]
    async fn it_reads_ahead_as_long_as_much_comes() {
        let (mut near, far) = tokio::io::duplex(1 << 20);
        let mut ahead = ReadAhead::new(far);
        near.write_all(&vec![1; MIN_FULL_READ_BYTES + 2 * MIN_FULL_READ_BYTES]).await.unwrap();
        read_with_room(&mut ahead, 0, MIN_FULL_READ_BYTES).await;
        // All of the rest at once, of which a part is handed out.
        assert_eq!(read_with_room(&mut ahead, 0, 100).await, 100);
        assert_eq!((ahead.buffer.len(), ahead.reading_fast), (2 * MIN_FULL_READ_BYTES, true));
        assert_eq!(
            read_with_room(&mut ahead, 0, 2 * MIN_FULL_READ_BYTES).await,
            2 * MIN_FULL_READ_BYTES - 100
        );
        near.write_all(&[2; 10]).await.unwrap();
        assert_eq!(read_with_room(&mut ahead, 0, MIN_FULL_READ_BYTES).await, 10);
        assert_eq!((ahead.buffer.capacity(), ahead.reading_fast), (0, false), "little has come");
    }

    #[tokio::test]
    async fn what_is_written_passes_is_flushed_and_ends() {
        let (near, mut far) = tokio::io::duplex(1000);
        // What is written waits here until it is flushed.
        let mut ahead = ReadAhead::new(tokio::io::BufWriter::new(near));
        assert!(ahead.is_write_vectored());
        ahead.write_all(b"one").await.unwrap();
        assert_eq!(
            ahead.write_vectored(&[IoSlice::new(b"t"), IoSlice::new(b"wo")]).await.unwrap(),
            3
        );
        ahead.flush().await.unwrap();
        let mut heard = [0; 6];
        far.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"onetwo");
        ahead.shutdown().await.unwrap();
        assert_eq!(far.read(&mut heard).await.unwrap(), 0);
        let plain = ReadAhead::new(tokio::io::join(tokio::io::empty(), Plain));
        assert!(!plain.is_write_vectored());
    }

    /// Takes one piece at a time.
    struct Plain;

    impl AsyncWrite for Plain {
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

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }
}
