//! The one thread that writes.
//!
//! It takes everything that is queued, turns it into lines, writes them with one
//! call and syncs them with one more: under load a sync is shared by hundreds of
//! records, and at rest a record waits for nobody. Serializing and hashing are
//! done here and not by whoever hands a record over.
//!
//! The first error ends it. A disk that failed once may have torn a line, and
//! after a failed sync nobody knows what the disk holds; going on would be a
//! guess, and a guess is not evidence.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::folder::Found;
use super::message::{Message, Record};
use super::options::{Options, Sync};
use super::shared::{Shared, Tombstone};
use super::sink::Sink;
use super::unavailable::{Step, Unavailable};
use crate::chain::Head;
use crate::digest::Digest;
use crate::event::{Event, FORMAT, Limit, LogClosed, LogStarted, Run, SegmentStarted, What};
use crate::id;
use crate::line;
use crate::text::Name;
use crate::time::Time;

/// A batch is written once it has this many lines or bytes, even if more waits.
const BATCH_LINES: usize = 1024;
const BATCH_BYTES: usize = 1024 * 1024;

/// How long records that nobody waits for are gathered, under [`Sync::Awaited`].
const LINGER: Duration = Duration::from_millis(4);

pub(super) struct Writer<S> {
    sink: S,
    inbox: Receiver<Message>,
    shared: Arc<Shared>,
    sync: Sync,
    segment_bytes: u64,
    most_bytes: u64,
    /// Whose name upkeep lines bear.
    run: Run,

    head: Head,
    lines: u64,
    current_bytes: u64,
    /// In all segments of this writer.
    all_bytes: u64,
    is_spent: bool,
    current_hash: Sha256,
    /// Something was written since the last sync.
    unsynced: bool,
    /// When that has to be synced, under [`Sync::Interval`].
    sync_due: Option<Instant>,

    batch: Batch,
    /// Who waits for the end; not empty means that it has begun.
    closing: Vec<oneshot::Sender<Result<Head, Unavailable>>>,
}

/// Lines on their way to the sink.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where each caller's line ends in `bytes`.
    ends: Vec<usize>,
    places: u32,
    waiting: Vec<oneshot::Sender<Result<(), Unavailable>>>,
}

impl<S: Sink> Writer<S> {
    pub(super) fn new(
        sink: S,
        inbox: Receiver<Message>,
        shared: Arc<Shared>,
        options: &Options,
        found: &Found,
    ) -> Self {
        Self {
            sink,
            inbox,
            shared,
            sync: options.sync,
            segment_bytes: options.segment_bytes,
            most_bytes: options.most_bytes,
            run: options.run.clone(),
            head: found.previous.map_or(Head::START, |previous| previous.head),
            lines: 0,
            current_bytes: found.current_bytes,
            all_bytes: 0,
            is_spent: false,
            current_hash: found.current_hash.clone(),
            unsynced: false,
            sync_due: None,
            batch: Batch::default(),
            closing: Vec::new(),
        }
    }

    /// Writes the lines a log begins or goes on with.
    pub(super) fn start(&mut self, options: &Options, found: Found) -> Result<(), Unavailable> {
        if let Some(segment) = found.continues {
            self.append_upkeep(What::SegmentStarted(segment));
        }
        self.append_upkeep(What::LogStarted(LogStarted {
            writer: options.writer.clone(),
            previous_seq: found.previous.map(|previous| previous.head.seq),
            previous_closed: found.previous.map(|previous| previous.closed),
        }));
        if let Some(recovered) = found.recovered {
            self.append_upkeep(What::Recovered(recovered));
        }
        self.write_batch()?;
        self.sync_now()
    }

    /// Writes until the log is closed, its handles are gone, or the disk fails.
    pub(super) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        // Dropped before `self`: whoever waits for an answer that never comes
        // finds the reason in place.
        let tombstone = Tombstone(&shared);
        let served = self.serve();
        if let Err(why) = &served {
            shared.end(why.clone());
            for waiting in mem::take(&mut self.batch.waiting) {
                drop(waiting.send(Err(why.clone())));
            }
        }
        let ended = served.map(|()| self.head);
        let closing = mem::take(&mut self.closing);
        // The file and its lock first: whoever is told that the log is closed may
        // seal it, or open it again, at once.
        drop(self.sink);
        for closing in closing {
            drop(closing.send(ended.clone()));
        }
        drop(tombstone);
    }

    fn serve(&mut self) -> Result<(), Unavailable> {
        loop {
            match self.next_message() {
                Ok(first) => self.take(first),
                Err(RecvTimeoutError::Timeout) => {}
                // No handle and no entry is left. What they sent is written.
                Err(RecvTimeoutError::Disconnected) => return self.sync_now(),
            }
            self.take_queued();
            if matches!(self.sync, Sync::Awaited(_)) && self.nobody_waits() {
                // A busy gateway closes a record every hundred microseconds. To be
                // woken for each costs more than to write it.
                // Whoever comes to wait ends it.
                thread::park_timeout(LINGER);
                self.take_queued();
            }
            self.write_batch()?;
            self.sync_if_due()?;
            self.answer();
            self.end_if_spent()?;
            if !self.closing.is_empty() && self.shared.is_idle() {
                return self.finish();
            }
            // After the answers, so that nobody waits for it; and with nothing in
            // hand, so that nothing is lost if it fails.
            self.rotate_if_full()?;
        }
    }

    fn take_queued(&mut self) {
        while self.batch.ends.len() < BATCH_LINES && self.batch.bytes.len() < BATCH_BYTES {
            let Ok(next) = self.inbox.try_recv() else { break };
            self.take(next);
        }
    }

    fn nobody_waits(&self) -> bool {
        self.batch.waiting.is_empty() && self.closing.is_empty()
    }

    fn next_message(&self) -> Result<Message, RecvTimeoutError> {
        match self.sync_due {
            Some(due) => self.inbox.recv_timeout(due.saturating_duration_since(Instant::now())),
            None => self.inbox.recv().map_err(|_gone| RecvTimeoutError::Disconnected),
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Close(done) => self.closing.push(done),
            Message::Record(record) => {
                let Record { id, time, run, what, places, written } = *record;
                self.append(id, time, run, what);
                self.batch.ends.push(self.batch.bytes.len());
                self.batch.places += places;
                self.batch.waiting.extend(written);
            }
        }
    }

    fn append_upkeep(&mut self, what: What) {
        self.append(id::new(), self.shared.now(), self.run.clone(), what);
    }

    /// Gives a line its place in the chain.
    fn append(&mut self, id: Uuid, time: Time, run: Run, what: What) {
        let seq = self.head.seq + 1;
        let event = Event { v: FORMAT, seq, time, id, run, what, prev: self.head.hash };
        let from = self.batch.bytes.len();
        line::write(&event, &mut self.batch.bytes);
        let written = self.batch.bytes.get(from..).unwrap_or_default();
        self.head = self.head.after(written.strip_suffix(b"\n").unwrap_or(written));
        self.lines += 1;
    }

    fn write_batch(&mut self) -> Result<(), Unavailable> {
        if self.batch.bytes.is_empty() {
            return Ok(());
        }
        let mut bytes = mem::take(&mut self.batch.bytes);
        let wrote = self.write_all(&bytes);
        if let Err((done, err)) = wrote {
            let whole = self.batch.ends.partition_point(|end| *end <= done);
            self.shared.wrote(whole as u64);
            return Err(Unavailable::failed(Step::Write, &err));
        }
        self.current_bytes += bytes.len() as u64;
        self.all_bytes = self.all_bytes.saturating_add(bytes.len() as u64);
        self.current_hash.update(&bytes);
        bytes.clear();
        self.batch.bytes = bytes;
        self.unsynced = true;
        if let (Sync::Awaited(every) | Sync::Interval(every), None) = (self.sync, self.sync_due) {
            self.sync_due = Instant::now().checked_add(every);
        }
        Ok(())
    }

    /// On failure, also how much was written.
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            match self.sink.write(rest) {
                Ok(0) => return Err((done, io::ErrorKind::WriteZero.into())),
                Ok(count) => done += count,
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err((done, err)),
            }
        }
        Ok(())
    }

    fn sync_if_due(&mut self) -> Result<(), Unavailable> {
        match self.sync {
            Sync::EachBatch => self.sync_now(),
            Sync::Awaited(_) if !self.batch.waiting.is_empty() => self.sync_now(),
            Sync::Awaited(_) | Sync::Interval(_)
                if self.sync_due.is_some_and(|due| due <= Instant::now()) =>
            {
                self.sync_now()
            }
            Sync::Awaited(_) | Sync::Interval(_) | Sync::Never => Ok(()),
        }
    }

    fn sync_now(&mut self) -> Result<(), Unavailable> {
        if self.unsynced {
            self.sink.sync().map_err(|err| Unavailable::failed(Step::Sync, &err))?;
        }
        self.unsynced = false;
        self.sync_due = None;
        Ok(())
    }

    /// The batch is as safe as the policy makes it.
    fn answer(&mut self) {
        self.shared.wrote(self.batch.ends.len() as u64);
        self.shared.give_back(mem::take(&mut self.batch.places));
        self.batch.ends.clear();
        for waiting in self.batch.waiting.drain(..) {
            // Whoever waited may have gone; the line is written all the same.
            drop(waiting.send(Ok(())));
        }
    }

    /// Lets nothing more begin once the log has its size, and says so in it.
    fn end_if_spent(&mut self) -> Result<(), Unavailable> {
        if self.all_bytes < self.most_bytes || self.is_spent {
            return Ok(());
        }
        self.is_spent = true;
        let (value, reached) = (self.most_bytes, self.all_bytes);
        let limit = Limit { name: Name::constant("audit"), value, reached, ..Limit::default() };
        self.append_upkeep(What::Limit(Box::new(limit)));
        self.shared.end(Unavailable::Spent { bytes: self.most_bytes });
        self.write_batch()?;
        self.sync_if_due()
    }

    fn rotate_if_full(&mut self) -> Result<(), Unavailable> {
        if self.current_bytes < self.segment_bytes {
            return Ok(());
        }
        let previous = self.sink.rotate().map_err(|err| Unavailable::failed(Step::Rotate, &err))?;
        let previous_sha256 = Digest::from(mem::take(&mut self.current_hash));
        self.current_bytes = 0;
        self.append_upkeep(What::SegmentStarted(SegmentStarted {
            previous: previous.into(),
            previous_sha256,
        }));
        self.write_batch()
    }

    /// Every entry has closed: writes the last line.
    fn finish(&mut self) -> Result<(), Unavailable> {
        let lines = self.lines + 1;
        self.append_upkeep(What::LogClosed(LogClosed { lines }));
        self.write_batch()?;
        self.sync_now()?;
        self.shared.end(Unavailable::Closed);
        Ok(())
    }
}
