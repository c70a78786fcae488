//! The ledger: every record is written once, or somebody is told that it was not.
//!
//! [`Log::open`] starts one writer thread that owns the file. A [`Log`] is a
//! handle to it, cheap to clone. [`Log::begin`] gives an [`Entry`], and an entry
//! has its places in the queue from the start: closing one, or losing one to a
//! panic, needs no room and cannot fail to be handed over. When there is no
//! place left, or the disk failed, there is no entry; and without an entry
//! nothing may be relayed. So a log that cannot be written stops traffic, not
//! the record of it.
//!
//! What a record that was handed over survives is the [`Sync`] policy's matter.

mod entry;
mod folder;
mod message;
mod options;
mod shared;
mod sink;
mod unavailable;
mod writer;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::oneshot;
use uuid::Uuid;

use crate::chain::Head;
use crate::event::{Facts, Note, Recovered, Run, What};
use crate::id;
use message::{Message, Record};
use shared::Shared;
use writer::Writer;

pub use entry::Entry;
pub use folder::{Folder, OpenError};
pub use options::{Options, Sync};
pub use shared::Health;
pub use sink::Sink;
pub use unavailable::{Step, Unavailable};

/// Places an entry takes: one for its `opened` line, one for its closing line.
const PLACES_PER_ENTRY: u32 = 2;

/// A handle to the one writer of a log, under the name of one run.
#[derive(Clone, Debug)]
pub struct Log {
    inner: Arc<Inner>,
    run: Run,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    /// Taken when the last handle goes.
    sender: Option<Sender<Message>>,
    writer: Option<JoinHandle<()>>,
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
        let shared = Arc::new(Shared::new(&options));
        let (sender, inbox) = mpsc::channel();
        let mut writer = Writer::new(wrap(folder), inbox, Arc::clone(&shared), &options, &found);
        writer.start(&options, found).map_err(OpenError::Write)?;
        let writer = thread::Builder::new()
            .name("audit-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(OpenError::Thread)?;

        let inner = Inner { shared, sender: Some(sender), writer: Some(writer) };
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
        self.inner.send(Message::Close(done));
        self.inner.hurry();
    }

    /// Hands a record to the writer. The caller has its places.
    fn submit(
        &self,
        id: Uuid,
        what: What,
        places: u32,
        written: Option<oneshot::Sender<Result<(), Unavailable>>>,
    ) {
        let time = self.inner.shared.submitted();
        let waits = written.is_some();
        let record = Record { id, time, run: self.run.clone(), what, places, written };
        self.inner.send(Message::Record(Box::new(record)));
        if waits {
            self.inner.hurry();
        }
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
    fn send(&self, message: Message) {
        if let Some(sender) = &self.sender {
            // It fails only when the writer is gone. Then the record counts as
            // handed over and never written, which is what `health` reports.
            drop(sender.send(message));
        }
    }
}

impl Inner {
    /// Somebody waits: a writer that gathers records goes on at once.
    fn hurry(&self) {
        if let Some(writer) = &self.writer {
            writer.thread().unpark();
        }
    }
}

impl Drop for Inner {
    /// Waits for what is queued to be written: a program that ends right after
    /// its last request must not lose that request.
    fn drop(&mut self) {
        drop(self.sender.take());
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has said so in `health`.
            drop(writer.join());
        }
    }
}
