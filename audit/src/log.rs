//! The ledger: every record is written once, or somebody is told that it was not.
//!
//! [`Log::open`] starts one thread that looks after the file. A [`Log`] is a
//! handle to it, cheap to clone. [`Log::begin`] gives an [`Entry`], and an entry
//! has its places in the queue from the start: closing one, or losing one to a
//! panic, needs no room and cannot fail to be handed over. When there is no
//! place left, or the disk failed, there is no entry; and without an entry
//! nothing may be relayed. So a log that cannot be written stops traffic, not
//! the record of it.
//!
//! What a record that was handed over survives is the [`Sync`] policy's matter.
//! [`Log::written`] waits until one is with the kernel, where it survives us.

mod entry;
mod folder;
mod message;
mod options;
mod queue;
mod shared;
mod sink;
mod thread;
mod unavailable;
mod writer;

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

use crate::chain::Head;
use crate::event::{Facts, Note, Recovered, Run, What};
use crate::id;
use crate::line::Fields;
use crate::text::Text;
use message::{Answer, Message, Record};
use shared::Shared;
use thread::{SLOW_WRITE, WriterThread};
use unavailable::Trouble;
use writer::Writer;

pub use entry::Entry;
pub use folder::{Folder, OpenError};
pub use options::{Notice, Options, Sync};
pub use queue::Ticket;
pub use shared::Health;
pub use sink::{Durable, Sink};
pub use unavailable::{Step, Unavailable};

/// Places an entry takes: one for its `opened` line, one for its closing line.
const PLACES_PER_ENTRY: u32 = 2;

/// Room for most lines, so that they are made without moving them.
const USUAL_LINE: usize = 1536;

/// A handle to the one writer of a log, under the name of one run.
#[derive(Clone, Debug)]
pub struct Log {
    inner: Arc<Inner>,
    run: Run,
}

struct Inner {
    shared: Arc<Shared>,
    writer: Arc<Mutex<Writer>>,
    /// Taken when the last handle goes.
    thread: Option<JoinHandle<()>>,
}

/// What was found when a log was opened.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The last line of an earlier writer.
    pub previous: Option<Previous>,
    /// A torn last line was cut off, and the log says so.
    pub recovered: Option<Recovered>,
}

/// Where an earlier writer left the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Previous {
    pub head: Head,
    /// It ended with `log_closed`; otherwise it crashed or was killed.
    pub closed: bool,
}

impl Log {
    /// Opens the log in `dir`, making both if they do not exist.
    ///
    /// Fails when another writer has it, when others could read it, or when what
    /// is there is not a log. The first lines are in the file on return, so a
    /// disk that cannot be written is found here and not by the first request.
    pub fn open(dir: &Path, options: Options) -> Result<(Self, Opening), OpenError> {
        Self::open_through(dir, options, |folder| folder)
    }

    /// Like [`Log::open`], writing through whatever `wrap` makes of the folder.
    /// This is how a test fills the disk.
    pub fn open_through<S: Sink + 'static>(
        dir: &Path,
        options: Options,
        wrap: impl FnOnce(Folder) -> S,
    ) -> Result<(Self, Opening), OpenError> {
        let (folder, found) = Folder::open(dir)?;
        let opening = Opening { previous: found.previous, recovered: found.recovered.clone() };

        let run = options.run.clone();
        let shared = Arc::new(Shared::new(dir.to_owned(), &options));
        let sink = Box::new(wrap(folder));
        let mut writer = Writer::new(sink, Arc::clone(&shared), &options, &found);
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

        let inner = Inner { shared, writer, thread: Some(thread) };
        Ok((Self { inner: Arc::new(inner), run }, opening))
    }

    /// The same log under another run's name.
    #[must_use]
    pub fn of_run(&self, run: impl Into<Run>) -> Self {
        Self { inner: Arc::clone(&self.inner), run: run.into() }
    }

    /// The run whose name records bear.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Begins an entry, or says why nothing may be relayed. Never waits.
    pub fn begin<F: Facts>(&self, facts: F) -> Result<Entry<F>, Unavailable> {
        self.inner.shared.take_places(PLACES_PER_ENTRY)?;
        Ok(Entry::new(self.clone(), facts))
    }

    /// Like [`Log::begin`], but waits for a place if there is none, up to `limit`.
    ///
    /// Needs a tokio runtime with its timer. Dropping the future takes no place.
    pub async fn begin_within<F: Facts>(
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
        let id = id::new();
        self.submit(id, note.into().into_what(), 1, None);
        Ok(id)
    }

    /// Like [`Log::record`], but resolves when the line is as safe as the
    /// [`Sync`] policy makes it: for what must not happen unrecorded.
    pub async fn record_safely(&self, note: impl Into<Note>) -> Result<Uuid, Unavailable> {
        self.inner.shared.take_places(1)?;
        let id = id::new();
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
        let Inner { shared, .. } = &*self.inner;
        if !shared.queue.is_written(ticket)
            && !self.inner.write_queued()
            && shared.queue.poll_written(ticket, cx).is_pending()
            // Whoever wrote may have ended before it could see us wait. Whoever
            // still does will.
            && !self.inner.write_queued()
        {
            return Poll::Pending;
        }
        if shared.queue.is_written(ticket) {
            return Poll::Ready(Ok(()));
        }
        // Not by the write above: then it waits for room, or will never be.
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
    pub async fn close(&self) -> Result<Head, Unavailable> {
        let (done, answer) = oneshot::channel();
        self.send_close(done);
        self.answered(answer.await)
    }

    /// [`Log::close`] for threads that have no runtime. It blocks.
    pub fn close_blocking(&self) -> Result<Head, Unavailable> {
        let (done, answer) = oneshot::channel();
        self.send_close(done);
        self.answered(answer.blocking_recv())
    }

    fn send_close(&self, done: oneshot::Sender<Result<Head, Unavailable>>) {
        self.inner.shared.take_no_more();
        self.hand_over(Message::Close(done), &[]);
        self.inner.hurry();
    }

    /// Hands a record to the writer. The caller has its places.
    fn submit(&self, id: Uuid, what: What, places: u32, written: Option<Answer>) -> Ticket {
        let time = self.inner.shared.now();
        let waits = written.is_some();
        let mut fields = Vec::with_capacity(USUAL_LINE);
        Fields { time, id, run: &self.run, what: &what }.write(&mut fields);
        let record = Record { length: fields.len(), places, written };
        let ticket = self.hand_over(Message::Record(record), &fields);
        if waits {
            self.inner.hurry();
        }
        ticket
    }

    fn hand_over(&self, message: Message, fields: &[u8]) -> Ticket {
        let shared = &self.inner.shared;
        let ticket = shared.queue.push(message, fields);
        if shared.is_thread_asleep.swap(false, Ordering::SeqCst) {
            self.inner.wake();
        }
        ticket
    }

    /// A writer that is gone gives no answer; the reason is known all the same.
    fn answered<T>(
        &self,
        answer: Result<Result<T, Unavailable>, oneshot::error::RecvError>,
    ) -> Result<T, Unavailable> {
        answer.unwrap_or_else(|_gone| Err(self.inner.shared.why()))
    }
}

impl Inner {
    /// Writes what was handed over, unless somebody else is at it or it may take
    /// long. Whether it was written, or cannot be, is known afterwards.
    ///
    /// Whoever came meanwhile and found us at it waits for us.
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
        if began.elapsed() > SLOW_WRITE {
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
            Err(Trouble::Failed(why)) => {
                shared.end(why);
                shared.queue.shut();
                self.hurry();
            }
            Err(Trouble::NoRoom(why)) => {
                shared.begin_pause(why);
                self.hurry();
            }
        }
        true
    }

    /// Somebody waits: a thread that gathers records goes on at once.
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
struct EndOnPanic<'a>(&'a Inner);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        let why = Text::constant("its writer has stopped");
        self.0.shared.end(Unavailable::Failed { step: Step::Run, why });
        self.0.shared.queue.shut();
        self.0.hurry();
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Drop for Inner {
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
