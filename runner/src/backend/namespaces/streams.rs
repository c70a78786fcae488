//! What flows in and out of a sandbox.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt as _, AsyncWrite, Interest};
use tokio::net::unix::pipe::{Receiver, Sender};

use super::broken;
use crate::backend::{BackendError, Chunk, Side, Step, Streams, TerminalSize};
use crate::launch::waiting;

/// The sandbox's terminal, seen from the side of whoever types.
#[derive(Clone, Debug)]
pub(super) struct Terminal(Arc<AsyncFd<OwnedFd>>);

/// Streams out of what the launcher sent: a terminal, or three pipes.
pub(super) fn streams(fds: Vec<OwnedFd>) -> io::Result<(Streams, Option<Terminal>)> {
    let mut fds = fds.into_iter();
    match (fds.next(), fds.next(), fds.next(), fds.next()) {
        (Some(terminal), None, None, None) => {
            let terminal = Terminal::new(terminal)?;
            let streams =
                Streams { input: Box::pin(terminal.clone()), output: terminal.clone().output() };
            Ok((streams, Some(terminal)))
        }
        (Some(input), Some(output), Some(error), None) => {
            let output = pieces(Receiver::from_owned_fd(output)?, Side::Out);
            let error = pieces(Receiver::from_owned_fd(error)?, Side::Err);
            let input = Sender::from_owned_fd(input)?;
            let output = stream::select(output, error).boxed();
            Ok((Streams { input: Box::pin(input), output }, None))
        }
        _ => Err(io::Error::other("neither a terminal nor three pipes")),
    }
}

fn pieces(from: Receiver, to: Side) -> BoxStream<'static, Result<Chunk, BackendError>> {
    let read = async |(mut from, mut buffer, to): (Receiver, Vec<u8>, Side)| {
        let read = from.read(&mut buffer).await;
        let piece = piece(read, &buffer, to)?;
        Some((piece, (from, buffer, to)))
    };
    stream::unfold((from, vec![0; PIECE], to), read).boxed()
}

fn piece(read: io::Result<usize>, buffer: &[u8], to: Side) -> Option<Result<Chunk, BackendError>> {
    match read {
        Ok(0) => None,
        Ok(length) => {
            let bytes = Bytes::copy_from_slice(buffer.get(..length).unwrap_or_default());
            Some(Ok(Chunk { to, bytes }))
        }
        Err(err) => Some(Err(broken(Step::Attach, err))),
    }
}

impl Terminal {
    fn new(fd: OwnedFd) -> io::Result<Self> {
        fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
        Ok(Self(Arc::new(waiting::on(fd, Interest::READABLE | Interest::WRITABLE)?)))
    }

    pub(super) fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let TerminalSize { columns, rows } = size;
        let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(self.0.get_ref(), size).map_err(Into::into)
    }

    fn output(self) -> BoxStream<'static, Result<Chunk, BackendError>> {
        let read = async |(terminal, mut buffer): (Self, Vec<u8>)| {
            let read = terminal.0.async_io(Interest::READABLE, |fd| {
                match rustix::io::read(fd.as_fd(), &mut buffer) {
                    // Nobody has the other side open any more.
                    Err(rustix::io::Errno::IO) => Ok(0),
                    read => read.map_err(Into::into),
                }
            });
            let read = read.await;
            let piece = piece(read, &buffer, Side::Out)?;
            Some((piece, (terminal, buffer)))
        };
        stream::unfold((self, vec![0; PIECE]), read).boxed()
    }
}

impl AsyncWrite for Terminal {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(context))?;
            let written =
                ready.try_io(|fd| rustix::io::write(fd.as_fd(), bytes).map_err(Into::into));
            if let Ok(written) = written {
                return Poll::Ready(written);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// A terminal's two directions are one thing: only the other side ends it.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

const PIECE: usize = 64 * 1024;
