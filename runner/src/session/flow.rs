//! A descriptor as a stream of bytes, and nothing more than that.
//!
//! One that came out of a sandbox is read and written here and has no other use:
//! it is not asked what it is, and nothing about it is changed but that it never
//! blocks us.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use crate::launch::waiting;

/// One end of a pipe or a terminal.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    descriptor: Arc<AsyncFd<OwnedFd>>,
    is_terminal: bool,
}

impl Flow {
    pub(super) fn new(descriptor: OwnedFd, is_terminal: bool) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&descriptor, true)?;
        let both = Interest::READABLE | Interest::WRITABLE;
        Ok(Self { descriptor: Arc::new(waiting::on(descriptor, both)?), is_terminal })
    }

    /// The same again, if it is a terminal. A pipe ends with its last owner.
    pub(super) fn terminal(&self) -> Option<Self> {
        self.is_terminal.then(|| self.clone())
    }
}

impl AsyncRead for Flow {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.descriptor.poll_read_ready(context))?;
            let read = ready.try_io(|descriptor| {
                Ok(rustix::io::read(descriptor.get_ref(), buffer.initialize_unfilled())?)
            });
            match read {
                Ok(Ok(length)) => {
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
                // How a terminal says that nobody has it any more.
                Ok(Err(err)) if err.raw_os_error() == Some(Errno::IO.raw_os_error()) => {
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(err)) if err.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(err)) => return Poll::Ready(Err(err)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for Flow {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.descriptor.poll_write_ready(context))?;
            let written =
                ready.try_io(|descriptor| Ok(rustix::io::write(descriptor.get_ref(), bytes)?));
            match written {
                Ok(Err(err)) if err.kind() == io::ErrorKind::Interrupted => {}
                Ok(result) => return Poll::Ready(result),
                Err(_would_block) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// A pipe ends when it is dropped. A terminal has only one end for both
    /// directions; what a person would type is what tells it.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_terminal {
            return Poll::Ready(Ok(()));
        }
        self.poll_write(context, &[CONTROL_D]).map(|written| written.map(drop))
    }
}

const CONTROL_D: u8 = 4;
