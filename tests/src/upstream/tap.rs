//! Remembers what a connection brought.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::http1::Received;

/// What one connection brought. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ReceivedBytes(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    bytes: Vec<u8>,
    total: u64,
    tls: bool,
    server_name: Option<String>,
    requests: Vec<Received>,
    ended: bool,
}

impl ReceivedBytes {
    /// The first of the bytes, after TLS.
    pub fn bytes(&self) -> Vec<u8> {
        self.inner().bytes.clone()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.inner().bytes).into_owned()
    }

    /// How many there were in all.
    pub fn total(&self) -> u64 {
        self.inner().total
    }

    /// Whether TLS was spoken to the end of its handshake.
    pub fn tls(&self) -> bool {
        self.inner().tls
    }

    pub fn server_name(&self) -> Option<String> {
        self.inner().server_name.clone()
    }

    pub fn requests(&self) -> Vec<Received> {
        self.inner().requests.clone()
    }

    /// Whether the other side has closed.
    pub fn ended(&self) -> bool {
        self.inner().ended
    }

    pub(super) fn opened_tls(&self, name: Option<&str>) {
        let mut inner = self.inner();
        inner.tls = true;
        inner.server_name = name.map(str::to_owned);
    }

    pub(super) fn remember(&self, request: Received) {
        self.inner().requests.push(request);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream whose bytes are remembered as they are read.
pub(super) struct Tap<S> {
    stream: S,
    seen: ReceivedBytes,
}

impl<S> Tap<S> {
    pub(super) fn new(stream: S, seen: ReceivedBytes) -> Self {
        Self { stream, seen }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Tap<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, into);
        let mut inner = self.seen.inner();
        let read = into.filled().get(before..).unwrap_or_default();
        inner.total += read.len() as u64;
        let room = MOST_KEPT.saturating_sub(inner.bytes.len());
        inner.bytes.extend(read.iter().take(room));
        match &polled {
            Poll::Ready(Ok(())) if read.is_empty() && into.remaining() > 0 => inner.ended = true,
            Poll::Ready(Err(_)) => inner.ended = true,
            _ => {}
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tap<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Err(_)) = &polled {
            self.seen.inner().ended = true;
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A test that uploads much counts it; none looks at more than this.
const MOST_KEPT: usize = 256 * 1024;
