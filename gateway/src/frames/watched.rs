//! A stream whose frames are looked at as they go by.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::limit::{FrameFault, FrameLimit, StreamOpener, UnreadStream};
use super::reader::{FrameReader, HEADERS};

/// What the library reads from and writes to.
#[derive(Debug)]
pub(crate) struct WatchedStream<S> {
    stream: S,
    watch: Arc<FrameWatch>,
    /// Others are to have a turn before more is read.
    pause: bool,
}

/// What is known of the frames of one connection.
#[derive(Debug)]
pub(crate) struct FrameWatch(Mutex<WatchState>);

#[derive(Debug)]
struct WatchState {
    read: FrameReader,
    wrote: FrameReader,
    limit: FrameLimit,
    /// Bytes that were read, carry no content, and are not counted yet.
    overhead: u64,
    fault: Option<FrameFault>,
}

/// Watches `stream`, on which one stream of the peer has `window` bytes.
pub(crate) fn watched<S>(
    stream: S,
    opener: StreamOpener,
    window: u32,
) -> (WatchedStream<S>, Arc<FrameWatch>) {
    let (read, wrote) = match opener {
        StreamOpener::Peer => (PREFACE_BYTES, 0),
        StreamOpener::We => (0, PREFACE_BYTES),
    };
    let watch = Arc::new(FrameWatch(Mutex::new(WatchState {
        read: FrameReader::after(read),
        wrote: FrameReader::after(wrote),
        limit: FrameLimit::new(opener, window, Instant::now()),
        overhead: 0,
        fault: None,
    })));
    (WatchedStream { stream, watch: Arc::clone(&watch), pause: false }, watch)
}

impl FrameWatch {
    /// Why the connection had to end, if it had to.
    pub(crate) fn fault(&self) -> Option<FrameFault> {
        self.0.lock().fault
    }

    /// Bytes that carried nothing since this was last asked.
    pub(crate) fn take_overhead(&self) -> u64 {
        std::mem::take(&mut self.0.lock().overhead)
    }

    /// The request on a stream was taken.
    pub(crate) fn taken(&self, id: u32) {
        self.0.lock().limit.taken(id);
    }

    /// Streams that were answered without their requests being taken.
    pub(crate) fn unread(&self, at_the_end: bool) -> Vec<UnreadStream> {
        self.0.lock().limit.unread(at_the_end)
    }

    /// Looks at what was read; says how many heads there were.
    fn read(&self, bytes: &[u8]) -> Result<usize, FrameFault> {
        let WatchState { read, limit, overhead, fault, .. } = &mut *self.0.lock();
        let (mut heads, now) = (0, Instant::now());
        read.feed(bytes, |frame| {
            if fault.is_some() {
                return;
            }
            heads += usize::from(frame.kind == HEADERS);
            match limit.read(&frame, now) {
                Ok(bytes) => *overhead += bytes,
                Err(err) => *fault = Some(err),
            }
        });
        fault.map_or(Ok(heads), Err)
    }

    fn wrote<'b>(&self, parts: impl Iterator<Item = &'b [u8]>, mut written: usize) {
        let WatchState { wrote, limit, .. } = &mut *self.0.lock();
        for part in parts {
            let part = part.get(..written).unwrap_or(part);
            wrote.feed(part, |frame| limit.wrote(&frame));
            written -= part.len();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if std::mem::take(&mut this.pause) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = out.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, out))?;
        let new = out.filled().get(before..).unwrap_or_default();
        match this.watch.read(new) {
            Ok(heads) => {
                this.pause = heads > MAX_HEADS_PER_READ;
                Poll::Ready(Ok(()))
            }
            Err(fault) => Poll::Ready(Err(io::Error::other(fault))),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, bytes))?;
        this.watch.wrote(std::iter::once(bytes), written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(cx, parts))?;
        this.watch.wrote(parts.iter().map(|part| &**part), written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// What a client says before its first frame.
const PREFACE_BYTES: usize = 24;
/// Heads have no window: the library queues them for whoever relays them. After
/// so many in one read these have a turn.
const MAX_HEADS_PER_READ: usize = 8;

#[cfg(test)]
mod tests;
