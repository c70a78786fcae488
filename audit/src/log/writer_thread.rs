//! The thread that writes what nobody else wrote, and syncs.
//!
//! Records that nobody waits for are gathered for some milliseconds. Syncing,
//! beginning a segment, waiting for room on the disk and ending the log are done
//! only here, because they take long and callers must not wait for them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use super::options::SyncPolicy;
use super::state::LogState;
use super::unavailable::{Unavailable, WriteFailure};
use super::writer::LogWriter;
use crate::chain::ChainHead;

/// How long records that nobody waits for are gathered, under [`SyncPolicy::Awaited`].
const GATHER_TIME: Duration = Duration::from_millis(10);

/// A write that takes longer than this keeps a caller from serving others. Then
/// this thread writes for all of them, until it takes less.
pub(super) const SLOW_WRITE_TIME: Duration = Duration::from_millis(2);

/// How often a full disk is tried again: at first, and after some time.
const FIRST_PROBE_INTERVAL: Duration = Duration::from_millis(100);
const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(5);

pub(super) struct WriterThread {
    pub(super) writer: Arc<Mutex<LogWriter>>,
    pub(super) shared: Arc<LogState>,
    pub(super) sync: SyncPolicy,
}

impl WriterThread {
    /// Writes until the log is closed, its handles are gone, or the disk fails.
    pub(super) fn run(self) {
        // Also if this panics: whoever waits is told.
        let mut ending = EndGuard(&self, Err(Unavailable::writer_stopped()));
        ending.1 = self.serve();
    }

    fn serve(&self) -> Result<ChainHead, Unavailable> {
        let mut due = None;
        loop {
            self.rest(due);
            if self.shared.is_paused() {
                self.wait_for_room()?;
            }
            let waited_for = self.is_hurried() || self.shared.queue.is_waited_for();
            if matches!(self.sync, SyncPolicy::Awaited(_)) && !waited_for {
                // A busy gateway closes a record every hundred microseconds. To be
                // woken for each costs more than to write it. Whoever comes to
                // wait ends it.
                thread::park_timeout(GATHER_TIME);
            }
            if self.shared.queue.is_over() {
                return Err(self.shared.why());
            }
            match self.pass() {
                Ok(Pass::Ended(head)) => return Ok(head),
                Ok(Pass::Next(next)) => due = next,
                Err(WriteFailure::Failed(why)) => return Err(why),
                Err(WriteFailure::NoRoom(why)) => self.shared.begin_pause(why),
            }
        }
    }

    /// Writes, syncs and keeps the files in order, once.
    fn pass(&self) -> Result<Pass, WriteFailure> {
        let mut writer = self.lock()?;
        let began = Instant::now();
        writer.write_segment()?;
        self.shared.is_disk_slow.store(began.elapsed() > SLOW_WRITE_TIME, Ordering::Relaxed);
        writer.hash_written();
        let settling = writer.settle();
        drop(writer);
        // Callers that found the writer locked must not wait for the sync as well.
        let wrote = self.write_while_waited_for();
        // Others may write while this syncs.
        settling.run(&self.shared)?;
        wrote?;

        let mut writer = self.lock()?;
        if let Some(head) = writer.finish()? {
            return Ok(Pass::Ended(head));
        }
        writer.rotate_if_full()?;
        let gone = self.shared.are_handles_gone.load(Ordering::Acquire);
        if gone && self.shared.queue.is_empty() && !writer.has_more() {
            // What they handed over is written.
            writer.settle_all().run(&self.shared)?;
            return Ok(Pass::Ended(writer.head()));
        }
        let due = if writer.has_more() { Some(Instant::now()) } else { writer.sync_due() };
        Ok(Pass::Next(due))
    }

    fn write_while_waited_for(&self) -> Result<(), WriteFailure> {
        while self.shared.queue.is_waited_for() {
            self.lock()?.write_segment()?;
        }
        Ok(())
    }

    /// Waits until something was handed over, or has to be synced.
    fn rest(&self, due: Option<Instant>) {
        let shared = &self.shared;
        shared.is_thread_asleep.store(true, Ordering::SeqCst);
        // Checked after the store above, so that a caller who queues now wakes us.
        if shared.queue.is_empty() && !shared.is_paused() {
            match due {
                Some(due) => thread::park_timeout(due.saturating_duration_since(Instant::now())),
                None => thread::park(),
            }
        }
        shared.is_thread_asleep.store(false, Ordering::SeqCst);
    }

    fn is_hurried(&self) -> bool {
        self.shared.is_thread_hurried.swap(false, Ordering::AcqRel)
    }

    /// Retries to write what is left of the batch until there is room. Before
    /// anything passes again, a `log_resumed` line records how long that took.
    fn wait_for_room(&self) -> Result<(), Unavailable> {
        let mut probe = FIRST_PROBE_INTERVAL;
        loop {
            let until = Instant::now() + probe;
            let is_last = loop {
                let gone = self.shared.are_handles_gone.load(Ordering::Acquire);
                let left = until.saturating_duration_since(Instant::now());
                if gone || left.is_zero() {
                    break gone;
                }
                thread::park_timeout(left);
            };
            match self.try_to_resume() {
                Ok(()) => return Ok(()),
                Err(WriteFailure::Failed(why)) => return Err(why),
                Err(WriteFailure::NoRoom(why)) if is_last => {
                    // No handle is left, so nobody needs the log any more.
                    return Err(Unavailable::NoRoom { why });
                }
                Err(WriteFailure::NoRoom(_)) => probe = (probe * 2).min(MAX_PROBE_INTERVAL),
            }
        }
    }

    fn try_to_resume(&self) -> Result<(), WriteFailure> {
        let mut writer = self.lock()?;
        writer.write_batch()?;
        writer.rotate_if_full()?;
        if let Some(resumed) = self.shared.resuming() {
            writer.resume(&resumed)?;
            self.shared.end_pause(&resumed);
        }
        Ok(())
    }

    fn lock(&self) -> Result<MutexGuard<'_, LogWriter>, WriteFailure> {
        self.writer.lock().map_err(|_poisoned| Unavailable::writer_stopped().into())
    }
}

/// Ends the log when it is dropped, and sends every pending reply.
struct EndGuard<'a>(&'a WriterThread, Result<ChainHead, Unavailable>);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        let Self(thread, ended) = self;
        // The reason is set first: a caller whose reply is dropped reads it next.
        thread.shared.end(ended.clone().err().unwrap_or(Unavailable::Closed));
        thread.shared.queue.shut();
        let mut writer = match thread.writer.lock() {
            Ok(writer) => writer,
            // A panic may have left half a line in it. It is used for replies only.
            Err(poisoned) => poisoned.into_inner(),
        };
        writer.let_go(ended);
    }
}

enum Pass {
    Ended(ChainHead),
    /// When to look again, if nothing is handed over before.
    Next(Option<Instant>),
}
