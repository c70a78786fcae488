//! The state that handles, entries and the writer share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, TryAcquireError};

use super::PLACES_PER_ENTRY;
use super::options::{LogNotice, Options};
use super::queue::Queue;
use super::unavailable::Unavailable;
use crate::text::Text;
use crate::time::Time;

/// **Invariant:** a place is taken before a record is handed over and given back
/// after it is written. So when all places are free, nothing is open and nothing
/// is queued.
#[derive(Debug)]
pub(super) struct LogState {
    folder: PathBuf,
    places: Semaphore,
    all_places: u32,
    clock: fn() -> Time,
    report: fn(&LogNotice<'_>),
    pub(super) queue: Queue,
    ended: OnceLock<Unavailable>,
    pause: Mutex<Option<Pause>>,
    /// Whether there is a `pause`, for those who only want to know that.
    is_paused: AtomicBool,
    /// What was refused during this pause.
    refused: AtomicU64,
    /// The writer's thread waits for something to do.
    pub(super) is_thread_asleep: AtomicBool,
    /// Somebody waits for the writer's thread.
    pub(super) is_thread_hurried: AtomicBool,
    /// The last write took long, so only the writer's thread writes.
    pub(super) is_disk_slow: AtomicBool,
    /// No handle and no entry is left.
    pub(super) are_handles_gone: AtomicBool,
}

/// The disk has no room, and the log waits for some.
#[derive(Clone, Debug)]
pub(super) struct Pause {
    since: Instant,
    pub(super) why: Text<256>,
}

/// A pause that is over.
pub(super) struct Resumed {
    pub(super) paused: Duration,
    pub(super) refused: u64,
    pub(super) why: Text<256>,
}

/// The state of a log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Health {
    /// Why it cannot be written, if it cannot.
    pub unavailable: Option<Unavailable>,
    /// Lines that callers handed over and that are in the file.
    pub written: u64,
    /// Lines that callers handed over and that are not. While the log is
    /// available or waits for room these are queued; once it is over, they are
    /// lost.
    pub unwritten: u64,
    /// Places taken by open entries and queued lines, and how many there are.
    pub taken: u32,
    pub places: u32,
}

impl LogState {
    pub(super) fn new(folder: PathBuf, options: &Options) -> Self {
        let all_places = options.entries.clamp(1, u32::MAX / 4) * PLACES_PER_ENTRY;
        Self {
            folder,
            places: Semaphore::new(all_places as usize),
            all_places,
            clock: options.clock,
            report: options.report,
            queue: Queue::default(),
            ended: OnceLock::new(),
            pause: Mutex::new(None),
            is_paused: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            is_thread_asleep: AtomicBool::new(false),
            is_thread_hurried: AtomicBool::new(false),
            is_disk_slow: AtomicBool::new(false),
            are_handles_gone: AtomicBool::new(false),
        }
    }

    pub(super) fn take_places(&self, count: u32) -> Result<(), Unavailable> {
        self.refuse_if_paused()?;
        match self.places.try_acquire_many(count) {
            Ok(permit) => {
                permit.forget();
                Ok(())
            }
            Err(TryAcquireError::Closed) => Err(self.why()),
            Err(TryAcquireError::NoPermits) => Err(self.full()),
        }
    }

    pub(super) async fn wait_for_places(&self, count: u32) -> Result<(), Unavailable> {
        self.refuse_if_paused()?;
        match self.places.acquire_many(count).await {
            Ok(permit) => {
                // A pause may have begun while this waited.
                self.refuse_if_paused()?;
                permit.forget();
                Ok(())
            }
            Err(_closed) => Err(self.why()),
        }
    }

    fn refuse_if_paused(&self) -> Result<(), Unavailable> {
        match self.pause() {
            None => Ok(()),
            Some(pause) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Err(pause.into())
            }
        }
    }

    pub(super) fn give_back(&self, count: u32) {
        self.places.add_permits(count as usize);
    }

    /// Ends the giving of places. Those who wait for one get an error.
    pub(super) fn take_no_more(&self) {
        self.places.close();
    }

    /// Nothing is open and nothing is queued.
    pub(super) fn is_idle(&self) -> bool {
        self.places.available_permits() == self.all_places as usize
    }

    pub(super) fn now(&self) -> Time {
        (self.clock)()
    }

    /// Nothing more may begin, for this reason. Only the first one counts.
    pub(super) fn end(&self, why: Unavailable) {
        let is_first = self.ended.set(why).is_ok();
        self.take_no_more();
        if let Some(why) = self.ended.get().filter(|why| is_first && **why != Unavailable::Closed) {
            (self.report)(&LogNotice::Ended { folder: &self.folder, why });
        }
    }

    /// Why there are no places: the end's reason, or that a close has begun.
    pub(super) fn why(&self) -> Unavailable {
        self.ended.get().cloned().unwrap_or(Unavailable::Closed)
    }

    pub(super) fn full(&self) -> Unavailable {
        Unavailable::Full { places: self.all_places }
    }

    /// The disk has no room: nothing may begin until it has.
    pub(super) fn begin_pause(&self, why: Text<256>) {
        let mut pause = self.lock_pause();
        if pause.is_none() {
            (self.report)(&LogNotice::Paused { folder: &self.folder, why: why.as_str() });
            self.refused.store(0, Ordering::Relaxed);
            *pause = Some(Pause { since: Instant::now(), why });
            self.is_paused.store(true, Ordering::Release);
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Acquire)
    }

    pub(super) fn pause(&self) -> Option<Pause> {
        if self.is_paused() { self.lock_pause().clone() } else { None }
    }

    /// The facts about the pause so far. It goes on.
    pub(super) fn resuming(&self) -> Option<Resumed> {
        let Pause { since, why } = self.pause()?;
        let refused = self.refused.load(Ordering::Relaxed);
        Some(Resumed { paused: since.elapsed(), refused, why })
    }

    /// There is room, and the log says so.
    pub(super) fn end_pause(&self, resumed: &Resumed) {
        *self.lock_pause() = None;
        self.is_paused.store(false, Ordering::Release);
        let Resumed { paused, refused, .. } = *resumed;
        (self.report)(&LogNotice::Resumed { folder: &self.folder, paused, refused });
    }

    fn lock_pause(&self) -> MutexGuard<'_, Option<Pause>> {
        self.pause.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn health(&self) -> Health {
        let ended = self.places.is_closed().then(|| self.why());
        let unavailable = ended.or_else(|| self.pause().map(Unavailable::from));
        // Written first: the other order could count a line as both.
        let written = self.queue.written();
        let unwritten = self.queue.records().saturating_sub(written);
        let free = u32::try_from(self.places.available_permits()).unwrap_or(self.all_places);
        let taken = self.all_places.saturating_sub(free);
        Health { unavailable, written, unwritten, taken, places: self.all_places }
    }
}

impl From<Pause> for Unavailable {
    fn from(pause: Pause) -> Self {
        Self::NoRoom { why: pause.why }
    }
}
