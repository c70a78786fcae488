//! Bytes that were read and not yet used.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use crate::http1_codec::head::{HeadFault, HeadSearch};

/// A buffer between a socket and the parser of its bytes.
///
/// It starts small, because most connections are idle most of the time, and
/// grows only while a reader fills it to the brim, up to a bound.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Always initialized, so that reading into it needs no zeroing.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    most: usize,
    /// What ended a reading that had brought something first.
    failed: Option<io::Error>,
}

/// Why no head was read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeadError {
    /// The peer closed before the head was whole.
    #[error("the head ended too early")]
    Closed,
    #[error(transparent)]
    Fault(#[from] HeadFault),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Room for most heads, and for all that an idle connection needs.
const INITIAL_BYTES: usize = 4 * 1024;
/// Room of a busy one, unless it is told otherwise: four TLS records.
pub(crate) const DEFAULT_MAX_BYTES: usize = 64 * 1024;
/// A read that brings less has probably brought all there is.
const FULL_READ_BYTES: usize = 4 * 1024;

impl Inbox {
    pub(crate) fn new() -> Self {
        Self::up_to(DEFAULT_MAX_BYTES)
    }

    /// A buffer that holds at most `most` bytes.
    pub(crate) fn up_to(most: usize) -> Self {
        Self { bytes: Vec::new(), start: 0, end: 0, most: most.max(INITIAL_BYTES), failed: None }
    }

    /// What was read and not yet used.
    pub(crate) fn filled(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether nothing more can be read before something is used.
    pub(crate) fn is_full(&self) -> bool {
        self.end - self.start >= self.most
    }

    /// Marks the first `count` bytes as used.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = self.end.min(self.start + count);
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Gives its memory back, if nothing is in it.
    pub(crate) fn shrink(&mut self) {
        if self.is_empty() {
            self.bytes = Vec::new();
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
        self.failed = None;
    }

    /// Reads once. Zero means the end, or that the buffer [is full](Self::is_full).
    pub(crate) fn poll_fill<R: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
    ) -> Poll<io::Result<usize>> {
        if let Some(err) = self.failed.take() {
            return Poll::Ready(Err(err));
        }
        self.make_room();
        let mut space = ReadBuf::new(self.bytes.get_mut(self.end..).unwrap_or_default());
        if space.capacity() == 0 {
            return Poll::Ready(Ok(0));
        }
        ready!(Pin::new(from).poll_read(cx, &mut space))?;
        let count = space.filled().len();
        self.end += count;
        Poll::Ready(Ok(count))
    }

    /// Reads as long as much comes at once and there is room: whoever writes it
    /// on pays by the write, not by the byte. Otherwise like [`Self::poll_fill`].
    pub(crate) fn poll_fill_up<R: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
    ) -> Poll<io::Result<usize>> {
        let first = ready!(self.poll_fill(cx, from))?;
        let mut last = first;
        while last >= FULL_READ_BYTES && !self.is_full() {
            last = match self.poll_fill(cx, from) {
                Poll::Ready(Ok(count)) => count,
                Poll::Ready(Err(err)) => {
                    // For the next time: what came before it comes first.
                    self.failed = Some(err);
                    break;
                }
                Poll::Pending => break,
            };
        }
        Poll::Ready(Ok(first))
    }

    /// Reads until a whole head is there, and gives its length.
    pub(crate) fn poll_head<R: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        search: &mut HeadSearch,
    ) -> Poll<Result<usize, HeadError>> {
        loop {
            if let Some(end) = search.end(self.filled())? {
                return Poll::Ready(Ok(end));
            }
            if ready!(self.poll_fill(cx, from))? == 0 {
                return Poll::Ready(Err(HeadError::Closed));
            }
        }
    }

    /// [`Self::poll_fill`], awaited.
    pub(crate) async fn fill<R: AsyncRead + Unpin>(&mut self, from: &mut R) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_fill(cx, from)).await
    }

    /// Makes sure that there is room behind what is there, if there may be.
    fn make_room(&mut self) {
        if self.end < self.bytes.len() {
            return;
        }
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.bytes.len() {
            let larger = (self.bytes.len() * 2).clamp(INITIAL_BYTES, self.most);
            self.bytes.resize(larger.max(self.bytes.len()), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_grows_with_what_comes_and_no_further_than_told() {
        let mut inbox = Inbox::up_to(20_000);
        let mut endless = tokio::io::repeat(7);
        while !inbox.is_full() {
            assert!(inbox.fill(&mut endless).await.unwrap() > 0);
        }
        assert_eq!(inbox.filled().len(), 20_000);
        assert_eq!(inbox.fill(&mut endless).await.unwrap(), 0, "full means no more");
    }

    #[tokio::test]
    async fn what_is_used_makes_room_and_what_is_not_stays_in_order() {
        let mut inbox = Inbox::up_to(INITIAL_BYTES);
        let source: Vec<u8> = (0..50_000u32).map(|n| (n % 251) as u8).collect();
        let mut reader = source.as_slice();
        let mut seen = Vec::new();
        loop {
            let count = inbox.fill(&mut reader).await.unwrap();
            let take = inbox.filled().len().div_ceil(3);
            seen.extend_from_slice(&inbox.filled()[..take]);
            inbox.consume(take);
            if count == 0 && inbox.is_empty() {
                break;
            }
        }
        assert_eq!(seen, source);
    }

    #[tokio::test]
    async fn what_comes_before_an_error_comes_first_and_the_error_is_not_lost() {
        /// Fills every read, three times; then breaks, once.
        struct Breaking(u32);
        impl AsyncRead for Breaking {
            fn poll_read(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
                out: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                self.0 += 1;
                match self.0 {
                    1..=3 => out.put_slice(&vec![7; out.remaining()]),
                    4 => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                    _ => {}
                }
                Poll::Ready(Ok(()))
            }
        }
        let (mut inbox, mut breaking) = (Inbox::new(), Breaking(0));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(matches!(inbox.poll_fill_up(&mut cx, &mut breaking), Poll::Ready(Ok(1..))));
        assert_eq!(inbox.filled().len(), 4 * INITIAL_BYTES, "read together");
        inbox.consume(4 * INITIAL_BYTES);
        let then = inbox.poll_fill_up(&mut cx, &mut breaking);
        assert!(matches!(then, Poll::Ready(Err(_))), "an end would look like a whole body");
    }

    #[tokio::test]
    async fn an_idle_buffer_gives_its_memory_back() {
        let mut inbox = Inbox::new();
        let mut endless = tokio::io::repeat(7);
        while !inbox.is_full() {
            inbox.fill(&mut endless).await.unwrap();
        }
        inbox.shrink();
        assert_eq!(inbox.filled().len(), DEFAULT_MAX_BYTES, "not while something is in it");
        inbox.consume(DEFAULT_MAX_BYTES);
        inbox.shrink();
        assert_eq!(inbox.bytes.capacity(), 0);
    }
}
