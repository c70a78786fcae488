//! Gathers what is written in one turn of a task, and sends it at its end.
//!
//! HTTP/2 flushes after nearly every frame of data. On TLS that is a record and
//! a system call each, when sixty-four streams may each have a frame to send.
//! So a flush only notes that there is something to send, and [`in_turns`]
//! sends it when the task has nothing more to do for the moment.
//!
//! **Invariant:** no turn ends with something held that the socket would have
//! taken. A socket that takes nothing more stops the writer once [`MAX_HELD_BYTES`]
//! is held.

use std::fmt;
use std::future::{self, Future};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream whose writes are sent by [`in_turns`].
#[derive(Debug)]
pub(crate) struct Batched<S>(Arc<Mutex<Batch<S>>>);

/// What sends them.
#[derive(Debug)]
pub(crate) struct BatchSender<S>(Arc<Mutex<Batch<S>>>);

/// What has to be ready before anything is sent.
pub(crate) type Gate = Box<dyn FnMut(&mut Context<'_>) -> Poll<io::Result<()>> + Send>;

struct Batch<S> {
    stream: S,
    gate: Option<Gate>,
    /// What was written and not sent yet, from `sent` on.
    held: Vec<u8>,
    sent: usize,
    /// An error that the writer is told of at its next call.
    failed: Option<io::Error>,
}

pub(crate) fn batched<S>(stream: S) -> (Batched<S>, BatchSender<S>) {
    batched_if(None, stream)
}

/// The same, where nothing is sent that was written before `gate` was ready.
pub(crate) fn batched_behind<S>(gate: Gate, stream: S) -> (Batched<S>, BatchSender<S>) {
    batched_if(Some(gate), stream)
}

fn batched_if<S>(gate: Option<Gate>, stream: S) -> (Batched<S>, BatchSender<S>) {
    let batch = Batch { stream, gate, held: Vec::new(), sent: 0, failed: None };
    let batch = Arc::new(Mutex::new(batch));
    (Batched(Arc::clone(&batch)), BatchSender(batch))
}

/// Runs `task`, whose stream is the other half of `sender`, and sends what it
/// has written whenever it pauses.
pub(crate) fn in_turns<S, F>(sender: BatchSender<S>, task: F) -> impl Future<Output = F::Output>
where
    S: AsyncWrite + Unpin,
    F: Future,
{
    // Boxed: pinned in here it would have room twice, as an argument and in its place.
    let mut task = Box::pin(task);
    future::poll_fn(move |cx| {
        let turn = task.as_mut().poll(cx);
        sender.0.lock().send(cx);
        turn
    })
}

impl<S: fmt::Debug> fmt::Debug for Batch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl<S: AsyncWrite + Unpin> Batch<S> {
    /// Sends what it can. A failure is told to the writer, who is the one that
    /// can do something about it.
    fn send(&mut self, cx: &mut Context<'_>) {
        if let Poll::Ready(Err(err)) = self.poll_send(cx) {
            self.failed = Some(err);
            cx.waker().wake_by_ref();
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.held.is_empty() {
            return Poll::Ready(Ok(()));
        }
        if let Some(gate) = &mut self.gate {
            ready!(gate(cx))?;
        }
        while let Some(rest) = self.held.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(sent) => self.sent += sent,
                Err(err) => return Poll::Ready(Err(err)),
            }
        }
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.sent = 0;
        self.held.clear();
        // An idle connection holds next to nothing.
        self.held.shrink_to(IDLE_HELD_BYTES);
        Poll::Ready(Ok(()))
    }

    /// Takes the failure, or makes room.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(err) = self.failed.take() {
            return Poll::Ready(Err(err));
        }
        if self.held.len() < MAX_HELD_BYTES { Poll::Ready(Ok(())) } else { self.poll_send(cx) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Batched<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut batch = self.0.lock();
        if let Some(err) = batch.failed.take() {
            return Poll::Ready(Err(err));
        }
        Pin::new(&mut batch.stream).poll_read(cx, out)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Batched<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut batch = self.0.lock();
        ready!(batch.poll_room(cx))?;
        let before = batch.held.len();
        for part in bytes {
            batch.held.extend_from_slice(part);
        }
        Poll::Ready(Ok(batch.held.len() - before))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().poll_room(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut batch = self.0.lock();
        if let Some(err) = batch.failed.take() {
            return Poll::Ready(Err(err));
        }
        ready!(batch.poll_send(cx))?;
        Pin::new(&mut batch.stream).poll_shutdown(cx)
    }
}

/// Four TLS records. A writer that has as much waiting is a bulk transfer, and
/// gains nothing from more.
const MAX_HELD_BYTES: usize = 64 << 10;
const IDLE_HELD_BYTES: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// Counts the writes that reach it.
    struct Counting<S>(S, Arc<AtomicUsize>);

    impl<S: AsyncWrite + Unpin> AsyncWrite for Counting<S> {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.1.fetch_add(1, Ordering::SeqCst);
            Pin::new(&mut self.0).poll_write(cx, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }

    #[tokio::test]
    async fn what_is_written_in_one_turn_leaves_in_one_write() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let writes = Arc::new(AtomicUsize::new(0));
        let (mut stream, sender) = batched(Counting(near, Arc::clone(&writes)));
        let mut heard = [0; 640];
        in_turns(sender, async {
            for _ in 0..64 {
                stream.write_all(b"0123456789").await.unwrap();
                stream.flush().await.unwrap();
            }
            // Not before the turn ends, and then without being asked again.
            assert_eq!(writes.load(Ordering::SeqCst), 0);
            far.read_exact(&mut heard).await.unwrap();
        })
        .await;
        assert_eq!(writes.load(Ordering::SeqCst), 1);
        assert!(heard.chunks(10).all(|part| part == b"0123456789"));
    }

    #[tokio::test]
    async fn a_peer_that_does_not_read_stops_the_writer() {
        let (near, far) = tokio::io::duplex(1024);
        let (mut stream, sender) = batched(near);
        let mut written = 0usize;
        let writing = in_turns(sender, async {
            while stream.write_all(&[0; 1024]).await.is_ok() {
                written += 1024;
            }
        });
        // Ends in a failure once the other end is dropped; until then it waits.
        let (_, ()) = tokio::join!(writing, async {
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            drop(far);
        });
        assert!(written <= MAX_HELD_BYTES + 2048, "{written}");
    }

    #[tokio::test]
    async fn what_is_held_is_sent_before_the_end() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let (mut stream, sender) = batched(near);
        let mut heard = Vec::new();
        in_turns(sender, async {
            stream.write_all(b"last words").await.unwrap();
            stream.shutdown().await.unwrap();
        })
        .await;
        drop(stream);
        far.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"last words");
    }

    #[tokio::test]
    async fn the_end_is_passed_on_and_so_is_a_failure() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let (mut stream, sender) = batched(near);
        assert!(stream.is_write_vectored());
        in_turns(sender, async {
            stream.shutdown().await.unwrap();
        })
        .await;
        let mut heard = [0];
        assert_eq!(
            far.read(&mut heard).await.unwrap(),
            0,
            "the stream is still held, and has ended"
        );

        let (near, far) = tokio::io::duplex(16);
        drop(far);
        let (mut stream, sender) = batched(near);
        in_turns(sender, async {
            stream.write_all(b"lost").await.unwrap();
            // The turn ends here, and what was held cannot be sent.
            tokio::task::yield_now().await;
            let err = stream.flush().await.unwrap_err();
            assert_eq!(err.kind(), io::ErrorKind::BrokenPipe);
        })
        .await;
    }
}
