//! Bytes that were read and not yet sent on.

use std::io;
use std::pin::pin;
use std::task::Poll;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Holds no memory while a connection is idle: see [`PendingBytes::release`].
#[derive(Default)]
pub(crate) struct PendingBytes {
    bytes: Vec<u8>,
    sent: usize,
}

impl PendingBytes {
    pub(crate) fn get(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    /// The first of them, at most so many.
    pub(crate) fn first(&self, count: u64) -> &[u8] {
        let all = self.get();
        all.get(..usize::try_from(count).unwrap_or(usize::MAX)).unwrap_or(all)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.get().is_empty()
    }

    pub(crate) fn sent(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        }
    }

    pub(crate) fn release(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    /// Reads some more; 0 is the end.
    pub(crate) async fn fill<R: AsyncRead + Unpin>(
        &mut self,
        from: &mut R,
        room: usize,
    ) -> io::Result<usize> {
        if self.bytes.capacity() - self.bytes.len() < room / 2 {
            self.bytes.reserve(room);
        }
        from.read_buf(&mut self.bytes).await
    }

    /// Reads what is there already, so that several records leave in one write.
    pub(crate) async fn fill_at_once<R: AsyncRead + Unpin>(&mut self, from: &mut R, up_to: usize) {
        while self.bytes.len() < up_to {
            self.bytes.reserve(up_to - self.bytes.len());
            match at_once(from.read_buf(&mut self.bytes)).await {
                Some(Ok(1..)) => {}
                _ => return,
            }
        }
    }
}

/// What a future gives if it need not wait.
pub(crate) async fn at_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
