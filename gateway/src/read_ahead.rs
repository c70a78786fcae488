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
    hot: bool,
}

impl<S> ReadAhead<S> {
    pub(crate) fn new(socket: S) -> Self {
        Self { socket, buffer: Vec::new(), at: 0, hot: false }
    }

    fn hand_out(&mut self, out: &mut ReadBuf<'_>) {
        let ahead = self.buffer.get(self.at..).unwrap_or_default();
        let part = ahead.get(..out.remaining()).unwrap_or(ahead);
        out.put_slice(part);
        self.at += part.len();
        if self.at == self.buffer.len() && !self.hot {
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
        if !this.hot {
            let (before, room) = (out.filled().len(), out.remaining());
            ready!(Pin::new(&mut this.socket).poll_read(cx, out))?;
            this.hot = room >= WORTH_IT && out.filled().len() - before == room;
            return Poll::Ready(Ok(()));
        }
        this.at = 0;
        this.buffer.clear();
        this.buffer.reserve_exact(AHEAD);
        // Into memory that nobody has to clear first.
        let read = pin!(this.socket.read_buf(&mut this.buffer)).poll(cx);
        if read.is_pending() {
            this.buffer = Vec::new();
        }
        this.hot = ready!(read)? >= WORTH_IT;
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
const AHEAD: usize = 4 * ((16 << 10) + 256);
/// A read that brings less is not followed by more soon enough to be worth a
/// buffer.
const WORTH_IT: usize = 4096;

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
}
