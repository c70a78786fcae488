//! A socket that is read in large steps while its peer sends at full speed, and that
//! holds no buffer otherwise.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

pub(crate) struct LargeReads {
    socket: TcpStream,
    ahead: Vec<u8>,
    handed_out: usize,
    /// The last read was full: more is probably there.
    is_fast: bool,
}

impl LargeReads {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self { socket, ahead: Vec::new(), handed_out: 0, is_fast: false }
    }

    fn hand_out(&mut self, out: &mut ReadBuf<'_>) {
        let rest = self.ahead.get(self.handed_out..).unwrap_or_default();
        let part = rest.get(..out.remaining()).unwrap_or(rest);
        out.put_slice(part);
        self.handed_out += part.len();
        if self.handed_out == self.ahead.len() && !self.is_fast {
            self.ahead = Vec::new();
            self.handed_out = 0;
        }
    }
}

impl AsyncRead for LargeReads {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.handed_out < this.ahead.len() {
            this.hand_out(out);
            return Poll::Ready(Ok(()));
        }
        if !this.is_fast {
            let (before, room) = (out.filled().len(), out.remaining());
            ready!(Pin::new(&mut this.socket).poll_read(cx, out))?;
            this.is_fast = room >= MIN_FAST_ROOM && out.filled().len() - before == room;
            return Poll::Ready(Ok(()));
        }
        this.ahead.clear();
        this.handed_out = 0;
        this.ahead.reserve(AHEAD_BYTES);
        let read = match pin!(this.socket.read_buf(&mut this.ahead)).poll(cx) {
            Poll::Ready(Ok(read)) => read,
            other => {
                this.ahead = Vec::new();
                this.is_fast = false;
                return other.map_ok(|_| ());
            }
        };
        this.is_fast = read >= MIN_FAST_READ;
        this.hand_out(out);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for LargeReads {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

pub(crate) const AHEAD_BYTES: usize = 64 << 10;
const MIN_FAST_READ: usize = 4096;
const MIN_FAST_ROOM: usize = 2048;
