//! Gives records their place in the chain and writes them.
//!
//! Whoever has the writer's lock takes everything that was handed over, chains
//! the lines and writes them with one call. That is the [thread](super::writer_thread),
//! or a caller who must not go on before a record is written: at rest that is
//! one short write, and under load one write for the records of many.
//!
//! An error ends it. A disk that failed once may have torn a line, and after a
//! failed sync nobody knows what the disk holds; going on would be a guess, and
//! a guess is not evidence. A disk without room is no such error: what it took
//! is known to the byte, and the line goes on from there when there is room.

use std::io;
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use super::folder::FolderContents;
use super::options::{self, Options, SyncPolicy};
use super::queue::TakenRecords;
use super::sink::{Durable, Sink};
use super::state::{LogState, Resumed};
use super::unavailable::{Unavailable, WriteFailure, WriterStep};
use super::writer_message::{QueuedRecord, SyncReply, WriterMessage};
use crate::chain::ChainHead;
use crate::digest::Hasher;
use crate::event::{
    EventBody, LimitEvent, LogClosed, LogResumed, LogStarted, RunName, SegmentStarted,
};
use crate::line::LineFields;
use crate::record_id;
use crate::text::Name;

/// A batch is written once it has this many lines or bytes, even if more waits.
const BATCH_LINES: usize = 1024;
const BATCH_BYTES: usize = 1024 * 1024;

pub(super) struct LogWriter {
    /// Gone once nothing will be written any more.
    sink: Option<Box<dyn Sink>>,
    shared: Arc<LogState>,
    sync: SyncPolicy,
    segment_bytes: u64,
    max_bytes: u64,
    /// The run that lines about the log itself bear the name of.
    run: RunName,

    head: ChainHead,
    lines: u64,
    current_bytes: u64,
    /// In all segments of this writer.
    all_bytes: u64,
    is_spent: bool,
    current_hash: Hasher,
    /// What was written and is not in the hash yet: an answer may wait for the
    /// write, and not for this.
    unhashed: Vec<u8>,
    /// Something was written since the last sync.
    unsynced: bool,
    /// When that has to be synced, under a policy with a duration.
    sync_due: Option<Instant>,

    /// What was taken from the queue and is in no batch yet.
    taken: TakenRecords,
    batch: LineBatch,
    /// Who waits for what is written to be safe.
    waiting: Vec<SyncReply>,
    /// Who waits for the end; not empty means that it has begun.
    closing: Vec<oneshot::Sender<Result<ChainHead, Unavailable>>>,
    /// The last line was made; it may not be written yet.
    is_closed: bool,
    /// The same of the line that says that there is room again.
    is_resumed: bool,
}

/// Lines on their way to the sink.
#[derive(Default)]
struct LineBatch {
    bytes: Vec<u8>,
    /// How many of them are written.
    done: usize,
    /// Where each caller's line ends in `bytes`.
    ends: Vec<usize>,
    /// How many of those were counted as written.
    counted: usize,
    places: u32,
}

/// What is left to do for records that are written, without the writer's lock.
pub(super) struct PendingSync {
    durable: Option<Arc<dyn Durable>>,
    waiting: Vec<SyncReply>,
}

impl LogWriter {
    pub(super) fn new(
        sink: Box<dyn Sink>,
        shared: Arc<LogState>,
        options: &Options,
        found: &FolderContents,
    ) -> Self {
        Self {
            sink: Some(sink),
            shared,
            sync: options.sync,
            segment_bytes: options.segment_bytes,
            max_bytes: options.max_bytes,
            run: options.run.clone(),
            head: found.previous.map_or(ChainHead::START, |previous| previous.head),
            lines: 0,
            current_bytes: found.current_bytes,
            all_bytes: 0,
            is_spent: false,
            current_hash: found.current_hash.clone(),
            unhashed: Vec::new(),
            unsynced: false,
            sync_due: None,
            taken: TakenRecords::default(),
            batch: LineBatch::default(),
            waiting: Vec::new(),
            closing: Vec::new(),
            is_closed: false,
            is_resumed: false,
        }
    }

    /// Writes the lines a log begins or goes on with.
    pub(super) fn start(
        &mut self,
        options: &Options,
        found: FolderContents,
    ) -> Result<(), Unavailable> {
        if let Some(segment) = found.continues {
            self.append_log_event(EventBody::SegmentStarted(segment));
        }
        self.append_log_event(EventBody::LogStarted(LogStarted {
            writer: options.writer.clone(),
            previous_seq: found.previous.map(|previous| previous.head.seq),
            previous_closed: found.previous.map(|previous| previous.closed),
            pins: options::named(&options.pins),
            roots: options::named(&options.roots),
            unanswered: options.unanswered.clone(),
            origin: options.origin.clone(),
        }));
        if let Some(recovered) = found.recovered {
            self.append_log_event(EventBody::Recovered(recovered));
        }
        let written = self.write_batch().map_err(|trouble| match trouble {
            WriteFailure::Failed(why) => why,
            WriteFailure::NoRoom(why) => Unavailable::Failed { step: WriterStep::Write, why },
        });
        let shared = Arc::clone(&self.shared);
        written.and_then(|()| self.settle_all().run(&shared))
    }

    /// Writes everything that was handed over.
    pub(super) fn write_queued(&mut self) -> Result<(), WriteFailure> {
        while self.write_some()? {}
        Ok(())
    }

    /// Writes what was handed over, or what still fits into the segment.
    pub(super) fn write_segment(&mut self) -> Result<(), WriteFailure> {
        while self.write_some()? && self.current_bytes < self.segment_bytes {}
        Ok(())
    }

    /// Writes a batch. Whether there was something to write.
    fn write_some(&mut self) -> Result<bool, WriteFailure> {
        self.shared.queue.take(&mut self.taken);
        self.fill_batch();
        if self.batch.bytes.is_empty() {
            return Ok(false);
        }
        self.write_batch()?;
        self.end_if_spent();
        Ok(true)
    }

    fn fill_batch(&mut self) {
        while self.batch.ends.len() < BATCH_LINES && self.batch.bytes.len() < BATCH_BYTES {
            match self.taken.next() {
                None => return,
                Some((WriterMessage::Close(done), _)) => self.closing.push(done),
                Some((WriterMessage::Settle(answer), _)) => self.waiting.push(answer),
                Some((WriterMessage::Record(QueuedRecord { places, written, .. }), fields)) => {
                    self.head = self.head.link(fields, &mut self.batch.bytes);
                    self.lines += 1;
                    self.batch.ends.push(self.batch.bytes.len());
                    self.batch.places += places;
                    self.waiting.extend(written);
                }
            }
        }
    }

    fn append_log_event(&mut self, what: EventBody) {
        let mut fields = Vec::new();
        let (time, id) = (self.shared.now(), record_id::new());
        LineFields { time, id, run: &self.run, what: &what }.write(&mut fields);
        self.head = self.head.link(&fields, &mut self.batch.bytes);
        self.lines += 1;
    }

    /// Writes what is left of the batch. On failure, what was not written stays
    /// in it.
    pub(super) fn write_batch(&mut self) -> Result<(), WriteFailure> {
        if self.batch.bytes.is_empty() {
            return Ok(());
        }
        let wrote = self.write_rest();
        let whole = self.batch.ends.partition_point(|end| *end <= self.batch.done);
        let newly = whole - mem::replace(&mut self.batch.counted, whole);
        if wrote.is_ok() {
            self.written();
        }
        self.shared.queue.wrote(newly as u64);
        wrote.map_err(|err| WriteFailure::of(WriterStep::Write, &err))
    }

    fn write_rest(&mut self) -> io::Result<()> {
        let sink = self.sink.as_deref_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        let LineBatch { bytes, done, .. } = &mut self.batch;
        while let Some(rest) = bytes.get(*done..).filter(|rest| !rest.is_empty()) {
            match sink.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => *done += count,
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(err),
            }
        }
        Ok(())
    }

    /// The batch is in the file.
    fn written(&mut self) {
        let LineBatch { bytes, done, ends, counted, places } = &mut self.batch;
        let length = bytes.len() as u64;
        self.current_bytes += length;
        self.all_bytes = self.all_bytes.saturating_add(length);
        if self.unhashed.is_empty() {
            mem::swap(bytes, &mut self.unhashed);
        } else {
            self.unhashed.append(bytes);
        }
        ends.clear();
        (*done, *counted) = (0, 0);
        self.shared.give_back(mem::take(places));
        self.unsynced = true;
        if self.unhashed.len() >= BATCH_BYTES {
            self.hash_written();
        }
        if let (SyncPolicy::Awaited(every) | SyncPolicy::Interval(every), None) =
            (self.sync, self.sync_due)
        {
            self.sync_due = Instant::now().checked_add(every);
        }
    }

    /// Catches up with the hash of the segment.
    pub(super) fn hash_written(&mut self) {
        self.current_hash.update(&self.unhashed);
        self.unhashed.clear();
    }

    /// Ends the log once it has reached its size, and records that.
    fn end_if_spent(&mut self) {
        if self.all_bytes < self.max_bytes || self.is_spent {
            return;
        }
        self.is_spent = true;
        let (value, reached) = (self.max_bytes, self.all_bytes);
        let limit =
            LimitEvent { name: Name::constant("audit"), value, reached, ..LimitEvent::default() };
        self.append_log_event(EventBody::Limit(Box::new(limit)));
        self.shared.end(Unavailable::Spent { bytes: self.max_bytes });
    }

    /// When the thread has to sync, if nobody wakes it before.
    pub(super) fn sync_due(&self) -> Option<Instant> {
        self.sync_due
    }

    /// Something was taken from the queue, or made, and is not written yet.
    pub(super) fn has_more(&self) -> bool {
        !self.taken.is_empty() || !self.batch.bytes.is_empty()
    }

    /// Whether there is something to do that only the thread does: it may take
    /// long.
    pub(super) fn needs_thread(&self) -> bool {
        !self.waiting.is_empty()
            || !self.closing.is_empty()
            || self.current_bytes >= self.segment_bytes
            || (self.unsynced && self.sync == SyncPolicy::EachBatch)
    }

    /// What has to be synced and answered now that everything is written.
    pub(super) fn settle(&mut self) -> PendingSync {
        let is_due = match self.sync {
            SyncPolicy::EachBatch => true,
            SyncPolicy::Awaited(_) if !self.waiting.is_empty() => true,
            SyncPolicy::Awaited(_) | SyncPolicy::Interval(_) => {
                self.sync_due.is_some_and(|due| due <= Instant::now())
            }
            SyncPolicy::Never => false,
        };
        if is_due {
            return self.settle_all();
        }
        PendingSync { durable: None, waiting: mem::take(&mut self.waiting) }
    }

    /// The same, whatever the policy says.
    pub(super) fn settle_all(&mut self) -> PendingSync {
        let unsynced = mem::replace(&mut self.unsynced, false);
        self.sync_due = None;
        let durable = self.sink.as_deref().filter(|_| unsynced).map(Sink::durable);
        PendingSync { durable, waiting: mem::take(&mut self.waiting) }
    }

    /// Begins a new segment if the current one is full. Nothing is in hand then,
    /// so nothing is lost if it fails.
    pub(super) fn rotate_if_full(&mut self) -> Result<(), WriteFailure> {
        if self.current_bytes < self.segment_bytes {
            return Ok(());
        }
        self.hash_written();
        let Some(sink) = self.sink.as_deref_mut() else { return Ok(()) };
        let previous = sink.rotate().map_err(|err| WriteFailure::of(WriterStep::Rotate, &err))?;
        let previous_sha256 = mem::take(&mut self.current_hash).finish();
        self.current_bytes = 0;
        self.append_log_event(EventBody::SegmentStarted(SegmentStarted {
            previous: previous.into(),
            previous_sha256,
        }));
        self.write_batch()
    }

    /// Says in the log that it had to wait for room.
    pub(super) fn resume(&mut self, resumed: &Resumed) -> Result<(), WriteFailure> {
        if !mem::replace(&mut self.is_resumed, true) {
            self.append_log_event(EventBody::LogResumed(Box::new(LogResumed {
                paused: resumed.paused.into(),
                refused: resumed.refused,
                why: resumed.why.as_str().into(),
            })));
        }
        self.write_batch()?;
        self.is_resumed = false;
        Ok(())
    }

    /// Writes the last line, if the end was asked for and every entry has closed.
    pub(super) fn finish(&mut self) -> Result<Option<ChainHead>, WriteFailure> {
        if self.closing.is_empty() || !self.shared.is_idle() {
            return Ok(None);
        }
        if !self.is_closed {
            self.is_closed = true;
            let lines = self.lines + 1;
            self.append_log_event(EventBody::LogClosed(LogClosed { lines }));
        }
        self.write_batch()?;
        let shared = Arc::clone(&self.shared);
        self.settle_all().run(&shared)?;
        self.shared.end(Unavailable::Closed);
        Ok(Some(self.head))
    }

    /// Closes the file, releases its lock, and then sends every pending reply: a
    /// caller that hears of the close may seal the log, or open it again, at once.
    pub(super) fn let_go(&mut self, ended: &Result<ChainHead, Unavailable>) {
        self.sink = None;
        for answer in self.waiting.drain(..) {
            drop(answer.send(ended.clone().map(drop)));
        }
        for closing in self.closing.drain(..) {
            drop(closing.send(ended.clone()));
        }
    }

    pub(super) fn head(&self) -> ChainHead {
        self.head
    }
}

impl PendingSync {
    /// Syncs, if that is due, and answers.
    pub(super) fn run(self, shared: &LogState) -> Result<(), Unavailable> {
        let synced = match self.durable {
            Some(durable) => {
                durable.sync().map_err(|err| Unavailable::failed(WriterStep::Sync, &err))
            }
            None => Ok(()),
        };
        if let Err(why) = &synced {
            // Before any reply: a caller that gets one must find the log ended.
            shared.end(why.clone());
        }
        for answer in self.waiting {
            // The receiver may be gone. The line is written all the same.
            drop(answer.send(synced.clone()));
        }
        synced
    }
}
