//! A connection of which only frames are read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::{FrameChecker, WebSocketFault};
use crate::inbox::Inbox;

/// Reads what one side sends and fails at the first fault. What is written to
/// that side passes as it is.
#[derive(Debug)]
pub(crate) struct FrameCheckedIo<'a, T> {
    io: &'a mut T,
    checker: FrameChecker,
}

impl<'a, T> FrameCheckedIo<'a, T> {
    /// `inbox` holds what was read of it already. If that has a fault, it is
    /// thrown away, and the next read fails.
    pub(crate) fn new(io: &'a mut T, checker: FrameChecker, inbox: &mut Inbox) -> Self {
        let mut checked = Self { io, checker };
        if checked.checker.feed(inbox.filled()).is_err() {
            inbox.clear();
        }
        checked
    }

    /// What was wrong with what it sent, if that is why reading failed.
    pub(crate) fn fault(&self) -> Option<WebSocketFault> {
        self.checker.fault()
    }

    /// Whether a close frame may follow what was read from it.
    pub(crate) fn can_close(&self) -> bool {
        self.checker.can_close()
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for FrameCheckedIo<'_, T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { io, checker } = self.get_mut();
        let before = buf.filled().len();
        if checker.fault().is_none() {
            ready!(Pin::new(&mut **io).poll_read(cx, buf))?;
        }
        let piece = buf.filled().get(before..).unwrap_or_default();
        if let Err(fault) = checker.feed(piece) {
            buf.set_filled(before);
            return Poll::Ready(Err(io::Error::other(fault)));
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for FrameCheckedIo<'_, T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.get_mut().io).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
