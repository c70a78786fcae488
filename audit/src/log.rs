//! The log: every record is written once, or its caller gets an error.
//!
//! [`Log::open`] starts one thread that looks after the file. A [`Log`] is a
//! handle to it, cheap to clone. [`Log::begin`] gives an [`Entry`], and an entry
//! reserves its places in the queue when it begins. So closing an entry, or dropping
//! it in a panic, always succeeds. When no place is left, or the disk failed,
//! `begin` fails, and without an entry nothing may be relayed: a log that cannot be
//! written stops traffic instead of losing records.
//!
//! [`SyncPolicy`] says which failures a queued record survives. [`Log::written`]
//! waits until the kernel has it, so that it survives the end of this process.

mod entry;
mod folder;
mod options;
mod queue;
mod sink;
mod state;
mod unavailable;
mod writer;
mod writer_message;
mod writer_thread;

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use uuid::Uuid;

use crate::chain::ChainHead;
use crate::event::{EntryFacts, EventBody, Note, Recovered, RunName};
use crate::line::LineFields;
use crate::record_id;
pub use entry::Entry;
pub use folder::{Folder, OpenError};
pub use options::{LogNotice, Options, SyncPolicy};
pub use queue::Ticket;
pub use sink::{Durable, Sink};
pub use state::Health;
use state::LogState;
use unavailable::WriteFailure;
pub use unavailable::{Unavailable, WriterStep};
use writer::LogWriter;
use writer_message::{QueuedRecord, SyncReply, WriterMessage};
use writer_thread::{SLOW_WRITE_TIME, WriterThread};

/// Places an entry takes: one for its `opened` line, one for its closing line.
const PLACES_PER_ENTRY: u32 = 2;

/// Room for most lines, so that they are made without moving them.
const USUAL_LINE_BYTES: usize = 1536;

/// A handle to the one writer of a log, under the name of one run.
#[derive(Clone, Debug)]
pub struct Log {
    inner: Arc<LogHandle>,
    run: RunName,
}

struct LogHandle {
    shared: Arc<LogState>,
    writer: Arc<Mutex<LogWriter>>,
    /// Taken when the last handle goes.
    thread: Option<JoinHandle<()>>,
}

/// What was found when a log was opened.
#[derive(Clone, Debug)]
pub struct FoundLog {
    /// The last line of an earlier writer.
    pub previous: Option<PreviousWriter>,
    /// A torn last line was cut off, and the log says so.
    pub recovered: Option<Recovered>,
}

/// Where an earlier writer left the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PreviousWriter {
    pub head: ChainHead,
    /// It ended with `log_closed`; otherwise it crashed or was killed.
    pub closed: bool,
}

impl Log {
    /// Opens the log in `dir`, making both if they do not exist.
    ///
    /// Fails when another writer has it, when others could read it, or when what
    /// is there is not a log. The first lines are in the file on return, so a
    /// disk that cannot be written is found here and not by the first request.
    pub fn open(dir: &Path, options: Options) -> Result<(Self, FoundLog), OpenError> {
        Self::open_through(dir, options, |folder| folder)
    }

    /// Like [`Log::open`], writing through whatever `wrap` makes of the folder.
    /// This is how a test fills the disk.
    pub fn open_through<S: Sink + 'static>(
        dir: &Path,
        options: Options,
        wrap: impl FnOnce(Folder) -> S,
    ) -> Result<(Self, FoundLog), OpenError> {
        let (folder, found) = Folder::open(dir)?;
        let opening = FoundLog { previous: found.previous, recovered: found.recovered.clone() };

        let run = options.run.clone();
        let shared = Arc::new(LogState::new(dir.to_owned(), &options));
        let sink = Box::new(wrap(folder));
        let mut writer = LogWriter::new(sink, Arc::clone(&shared), &options, &found);
        writer.start(&options, found).map_err(OpenError::Write)?;
        let writer = Arc::new(Mutex::new(writer));
        let thread = WriterThread {
            writer: Arc::clone(&writer),
            shared: Arc::clone(&shared),
            sync: options.sync,
        };
        let thread = std::thread::Builder::new()
            .name("audit-writer".to_owned())
            .spawn(move || thread.run())
            .map_err(OpenError::Thread)?;

        let inner = LogHandle { shared, writer, thread: Some(thread) };
        Ok((Self { inner: Arc::new(inner), run }, opening))
    }

    /// The same log under another run's name.
    #[must_use]
    pub fn of_run(&self, run: impl Into<RunName>) -> Self {
        Self { inner: Arc::clone(&self.inner), run: run.into() }
    }

    /// The run whose name records bear.
    pub fn run(&self) -> &RunName {
        &self.run
    }

    /// Begins an entry, or says why nothing may be relayed. Never waits.
    pub fn begin<F: EntryFacts>(&self, facts: F) -> Result<Entry<F>, Unavailable> {
        self.inner.shared.take_places(PLACES_PER_ENTRY)?;
        Ok(Entry::new(self.clone(), facts))
    }

    /// Like [`Log::begin`], but waits for a place if there is none, up to `limit`.
    ///
    /// Needs a tokio runtime with its timer. Dropping the future takes no place.
    pub async fn begin_within<F: EntryFacts>(
        &self,
        facts: F,
        limit: Duration,
    ) -> Result<Entry<F>, Unavailable> {
        let shared = &self.inner.shared;
        match tokio::time::timeout(limit, shared.wait_for_places(PLACES_PER_ENTRY)).await {
            Ok(taken) => taken?,
            Err(_elapsed) => return Err(shared.full()),
        }
        Ok(Entry::new(self.clone(), facts))
    }

    /// Records something that is a single line, and returns the line's id.
    /// Does not wait for the disk.
    pub fn record(&self, note: impl Into<Note>) -> Result<Uuid, Unavailable> {
        self.inner.shared.take_places(1)?;
        let id = record_id::new();
        self.submit(id, note.into().into_what(), 1, None);
        Ok(id)
    }

    /// Like [`Log::record`], but resolves when the line is as safe as the
    /// [`SyncPolicy`] makes it: for what must not happen unrecorded.
    pub async fn record_safely(&self, note: impl Into<Note>) -> Result<Uuid, Unavailable> {
        self.inner.shared.take_places(1)?;
        let id = record_id::new();
        let (written, answer) = oneshot::channel();
        self.submit(id, note.into().into_what(), 1, Some(written));
        self.answered(answer.await)?;
        Ok(id)
    }

    /// Resolves when the record with this ticket, and every one before it, was
    /// written to the kernel: it survives us, if not the machine.
    ///
    /// While the disk has no room this waits. It fails when the record will never
    /// be written.
    pub async fn written(&self, ticket: Ticket) -> Result<(), Unavailable> {
        poll_fn(|cx| self.poll_written(ticket, cx)).await
    }

    /// [`Log::written`], polled. The first poll usually writes the record itself,
    /// and all that others have handed over: to wake the writer's thread and wait
    /// for it takes longer than to write.
    pub fn poll_written(
        &self,
        ticket: Ticket,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Unavailable>> {
        let LogHandle { shared, .. } = &*self.inner;
        if !shared.queue.is_written(ticket)
            && !self.inner.write_queued()
            && shared.queue.poll_written(ticket, cx).is_pending()
            // The task that was writing may have finished before it could see us
            // wait. Then we write; if it is still writing, it will see us.
            && !self.inner.write_queued()
        {
            return Poll::Pending;
        }
        if shared.queue.is_written(ticket) {
            return Poll::Ready(Ok(()));
        }
        // Not written yet: it waits for room on the disk, or the log has failed.
        ready!(shared.queue.poll_written(ticket, cx));
        Poll::Ready(if shared.queue.is_written(ticket) { Ok(()) } else { Err(shared.why()) })
    }

    /// Whether the log can be written, and what is at stake if not.
    pub fn health(&self) -> Health {
        self.inner.shared.health()
    }

    /// Ends the log: no new entries from now on, the open ones may finish, then
    /// `log_closed` is written as the last line. Resolves to that line.
    ///
    /// Waits for every open entry; whoever drains bounds it with a deadline of
    /// their own. A log that was never closed says so to whoever opens it next.
    pub async fn close(&self) -> Result<ChainHead, Unavailable> {
        let (done, answer) = oneshot::channel();
        self.send_close(done);
        self.answered(answer.await)
    }

    /// [`Log::close`] for threads that have no runtime. It blocks.
    pub fn close_blocking(&self) -> Result<ChainHead, Unavailable> {
        let (done, answer) = oneshot::channel();
        self.send_close(done);
        self.answered(answer.blocking_recv())
    }

    fn send_close(&self, done: oneshot::Sender<Result<ChainHead, Unavailable>>) {
        self.inner.shared.take_no_more();
        self.hand_over(WriterMessage::Close(done), &[]);
        self.inner.hurry();
    }

    /// Hands a record to the writer. The caller has its places.
    fn submit(&self, id: Uuid, what: EventBody, places: u32, written: Option<SyncReply>) -> Ticket {
        let time = self.inner.shared.now();
        let waits = written.is_some();
        let mut fields = Vec::with_capacity(USUAL_LINE_BYTES);
        LineFields { time, id, run: &self.run, what: &what }.write(&mut fields);
        let record = QueuedRecord { length: fields.len(), places, written };
        let ticket = self.hand_over(WriterMessage::Record(record), &fields);
        if waits {
            self.inner.hurry();
        }
        ticket
    }

    fn hand_over(&self, message: WriterMessage, fields: &[u8]) -> Ticket {
        let shared = &self.inner.shared;
        let ticket = shared.queue.push(message, fields);
        if shared.is_thread_asleep.swap(false, Ordering::SeqCst) {
            self.inner.wake();
        }
        ticket
    }

    /// A writer that has ended sends no reply; then the log's state has the reason.
    fn answered<T>(
        &self,
        answer: Result<Result<T, Unavailable>, oneshot::error::RecvError>,
    ) -> Result<T, Unavailable> {
        answer.unwrap_or_else(|_gone| Err(self.inner.shared.why()))
    }
}

impl LogHandle {
    /// Writes what is queued, unless another task is writing or the write may take
    /// long. Returns whether it wrote, or tried and failed.
    ///
    /// Tasks that found the writer locked meanwhile wait for us, so it goes on while
    /// there are any.
    fn write_queued(&self) -> bool {
        let wrote = self.try_to_write();
        while wrote && self.shared.queue.is_waited_for() && self.try_to_write() {}
        wrote
    }

    fn try_to_write(&self) -> bool {
        let shared = &self.shared;
        if shared.is_paused() || shared.is_disk_slow.load(Ordering::Relaxed) {
            self.hurry();
            return false;
        }
        let Ok(mut writer) = self.writer.try_lock() else { return false };
        let panicking = EndOnPanic(self);
        let was_due = writer.sync_due();
        let began = Instant::now();
        let wrote = writer.write_queued();
        if began.elapsed() > SLOW_WRITE_TIME {
            shared.is_disk_slow.store(true, Ordering::Relaxed);
        }
        let needs_thread = writer.needs_thread();
        let newly_due = was_due.is_none() && writer.sync_due().is_some();
        drop(writer);
        mem::forget(panicking);
        match wrote {
            Ok(()) if needs_thread => self.hurry(),
            Ok(()) if newly_due => self.wake(),
            Ok(()) => {}
            Err(WriteFailure::Failed(why)) => {
                shared.end(why);
                shared.queue.shut();
                self.hurry();
            }
            Err(WriteFailure::NoRoom(why)) => {
                shared.begin_pause(why);
                self.hurry();
            }
        }
        true
    }

    /// Makes the writer thread write at once instead of gathering more records.
    fn hurry(&self) {
        self.shared.is_thread_hurried.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

/// Ends the log when a caller panics while it writes.
struct EndOnPanic<'a>(&'a LogHandle);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        self.0.shared.end(Unavailable::writer_stopped());
        self.0.shared.queue.shut();
        self.0.hurry();
    }
}

impl fmt::Debug for LogHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogHandle").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Drop for LogHandle {
    /// Waits for what is queued to be written: a program that ends right after
    /// its last request must not lose that request.
    fn drop(&mut self) {
        self.shared.are_handles_gone.store(true, Ordering::Release);
        self.hurry();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so in `health`.
            drop(thread.join());
        }
    }
}
