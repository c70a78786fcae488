//! The thread that sees to it that everything is written and synced.
//!
//! Records that nobody waits for are gathered for a few milliseconds. Syncing,
//! beginning a segment, waiting for room on the disk and ending the log are done
//! here alone: they take long, and nobody else has the time.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use super::options::Sync;
use super::shared::Shared;
use super::unavailable::{Step, Trouble, Unavailable};
use super::writer::Writer;
use crate::chain::Head;
use crate::text::Text;

/// How long records that nobody waits for are gathered, under [`Sync::Awaited`].
const GATHERING: Duration = Duration::from_millis(4);

/// A write that takes longer than this keeps a caller from serving others. Then
/// this thread writes for all of them, until it takes less.
pub(super) const SLOW_WRITE: Duration = Duration::from_millis(2);

/// How often a full disk is tried again: at first, and after some time.
const FIRST_PROBE: Duration = Duration::from_millis(100);
const LAST_PROBE: Duration = Duration::from_secs(5);

pub(super) struct WriterThread {
    pub(super) writer: Arc<Mutex<Writer>>,
    pub(super) shared: Arc<Shared>,
    pub(super) sync: Sync,
}

impl WriterThread {
    /// Writes until the log is closed, its handles are gone, or the disk fails.
    pub(super) fn run(self) {
        // Also if this panics: whoever waits is told.
        let stopped = Text::constant("its writer has stopped");
        let mut ending = Ending(&self, Err(Unavailable::Failed { step: Step::Run, why: stopped }));
        ending.1 = self.serve();
    }

    fn serve(&self) -> Result<Head, Unavailable> {
        let mut due = None;
        loop {
            self.rest(due);
            if self.shared.is_paused() {
                self.wait_for_room()?;
            }
            let waited_for = self.is_hurried() || self.shared.queue.is_waited_for();
            if matches!(self.sync, Sync::Awaited(_)) && !waited_for {
                // A busy gateway closes a record every hundred microseconds. To be
                // woken for each costs more than to write it. Whoever comes to
                // wait ends it.
                thread::park_timeout(GATHERING);
            }
            if self.shared.queue.is_over() {
                return Err(self.shared.why());
            }
            match self.turn() {
                Ok(Turn::Ended(head)) => return Ok(head),
                Ok(Turn::Next(next)) => due = next,
                Err(Trouble::Failed(why)) => return Err(why),
                Err(Trouble::NoRoom(why)) => self.shared.begin_pause(why),
            }
        }
    }

    /// Writes, syncs and keeps the files in order, once.
    fn turn(&self) -> Result<Turn, Trouble> {
        let mut writer = self.lock()?;
        let began = Instant::now();
        writer.write_segment()?;
        self.shared.is_disk_slow.store(began.elapsed() > SLOW_WRITE, Ordering::Relaxed);
        writer.hash_written();
        let settling = writer.settle();
        drop(writer);
        // Whoever found us at it does not wait for the disk as well.
        let wrote = self.write_while_waited_for();
        // Others may write while this syncs.
        settling.run(&self.shared)?;
        wrote?;

        let mut writer = self.lock()?;
        if let Some(head) = writer.finish()? {
            return Ok(Turn::Ended(head));
        }
        writer.rotate_if_full()?;
        let gone = self.shared.are_handles_gone.load(Ordering::Acquire);
        if gone && self.shared.queue.is_empty() && !writer.has_more() {
            // What they handed over is written.
            writer.settle_all().run(&self.shared)?;
            return Ok(Turn::Ended(writer.head()));
        }
        let due = if writer.has_more() { Some(Instant::now()) } else { writer.sync_due() };
        Ok(Turn::Next(due))
    }

    fn write_while_waited_for(&self) -> Result<(), Trouble> {
        while self.shared.queue.is_waited_for() {
            self.lock()?.write_segment()?;
        }
        Ok(())
    }

    /// Waits until something was handed over, or has to be synced.
    fn rest(&self, due: Option<Instant>) {
        let shared = &self.shared;
        shared.is_thread_asleep.store(true, Ordering::SeqCst);
        // Looked at after that, so that whoever comes now wakes us.
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

    /// Tries to write what is left of the batch, now and then, until there is
    /// room. The log says how long that took before anything passes again.
    fn wait_for_room(&self) -> Result<(), Unavailable> {
        let mut probe = FIRST_PROBE;
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
                Err(Trouble::Failed(why)) => return Err(why),
                Err(Trouble::NoRoom(why)) if is_last => {
                    // Nobody is left to wait for.
                    return Err(Unavailable::NoRoom { why });
                }
                Err(Trouble::NoRoom(_)) => probe = (probe * 2).min(LAST_PROBE),
            }
        }
    }

    fn try_to_resume(&self) -> Result<(), Trouble> {
        let mut writer = self.lock()?;
        writer.write_batch()?;
        writer.rotate_if_full()?;
        if let Some(resumed) = self.shared.resuming() {
            writer.resume(&resumed)?;
            self.shared.end_pause(&resumed);
        }
        Ok(())
    }

    fn lock(&self) -> Result<MutexGuard<'_, Writer>, Trouble> {
        self.writer.lock().map_err(|_poisoned| {
            let why = Text::constant("its writer has stopped");
            Unavailable::Failed { step: Step::Run, why }.into()
        })
    }
}

/// Ends the log when it is dropped, and tells everybody how.
struct Ending<'a>(&'a WriterThread, Result<Head, Unavailable>);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let Self(thread, ended) = self;
        // The reason first: whoever waits for an answer that never comes finds it
        // in place.
        thread.shared.end(ended.clone().err().unwrap_or(Unavailable::Closed));
        thread.shared.queue.shut();
        let mut writer = match thread.writer.lock() {
            Ok(writer) => writer,
            // Whoever panicked may have left half a line in it. It is only told.
            Err(poisoned) => poisoned.into_inner(),
        };
        writer.let_go(ended);
    }
}

enum Turn {
    Ended(Head),
    /// When to look again, if nothing is handed over before.
    Next(Option<Instant>),
}
