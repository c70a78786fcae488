//! What handles, entries and the writer know in common.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Semaphore, TryAcquireError};

use super::PLACES_PER_ENTRY;
use super::options::Options;
use super::unavailable::{Step, Unavailable};
use crate::text::Text;
use crate::time::Time;

/// **Invariant:** a place is taken before a record is handed over and given back
/// after it is written. So when all places are free, nothing is open and nothing
/// is queued.
#[derive(Debug)]
pub(super) struct Shared {
    places: Semaphore,
    all_places: u32,
    clock: fn() -> Time,
    submitted: AtomicU64,
    written: AtomicU64,
    ended: OnceLock<Unavailable>,
}

/// The state of a log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Health {
    /// Why it cannot be written, if it cannot.
    pub unavailable: Option<Unavailable>,
    /// Lines that callers handed over and that are in the file.
    pub written: u64,
    /// Lines that callers handed over and that are not. While the log is
    /// available these are queued; once it is not, they are lost.
    pub unwritten: u64,
    /// Places taken by open entries and queued lines, and how many there are.
    pub taken: u32,
    pub places: u32,
}

impl Shared {
    pub(super) fn new(options: &Options) -> Self {
        let all_places = options.entries.clamp(1, u32::MAX / 4) * PLACES_PER_ENTRY;
        Self {
            places: Semaphore::new(all_places as usize),
            all_places,
            clock: options.clock,
            submitted: AtomicU64::new(0),
            written: AtomicU64::new(0),
            ended: OnceLock::new(),
        }
    }

    pub(super) fn take_places(&self, count: u32) -> Result<(), Unavailable> {
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
        match self.places.acquire_many(count).await {
            Ok(permit) => {
                permit.forget();
                Ok(())
            }
            Err(_closed) => Err(self.why()),
        }
    }

    pub(super) fn give_back(&self, count: u32) {
        self.places.add_permits(count as usize);
    }

    /// No place will be given from now on; whoever waits for one is told.
    pub(super) fn take_no_more(&self) {
        self.places.close();
    }

    /// Nothing is open and nothing is queued.
    pub(super) fn is_idle(&self) -> bool {
        self.places.available_permits() == self.all_places as usize
    }

    /// Counts a record as handed over, and stamps it.
    pub(super) fn submitted(&self) -> Time {
        self.submitted.fetch_add(1, Ordering::Relaxed);
        self.now()
    }

    pub(super) fn now(&self) -> Time {
        (self.clock)()
    }

    pub(super) fn wrote(&self, records: u64) {
        self.written.fetch_add(records, Ordering::Release);
    }

    /// The log is over, for this reason. Only the first one counts.
    pub(super) fn end(&self, why: Unavailable) {
        self.ended.get_or_init(|| why);
        self.take_no_more();
    }

    /// Why there are no places: the end's reason, or that a close has begun.
    pub(super) fn why(&self) -> Unavailable {
        self.ended.get().cloned().unwrap_or(Unavailable::Closed)
    }

    pub(super) fn full(&self) -> Unavailable {
        Unavailable::Full { places: self.all_places }
    }

    pub(super) fn health(&self) -> Health {
        let unavailable = self.places.is_closed().then(|| self.why());
        // Written first: the other order could count a line as both.
        let written = self.written.load(Ordering::Acquire);
        let unwritten = self.submitted.load(Ordering::Relaxed).saturating_sub(written);
        let free = u32::try_from(self.places.available_permits()).unwrap_or(self.all_places);
        let taken = self.all_places.saturating_sub(free);
        Health { unavailable, written, unwritten, taken, places: self.all_places }
    }
}

/// Says so when the writer thread goes without having given a reason.
#[derive(Debug)]
pub(super) struct Tombstone<'a>(pub(super) &'a Shared);

impl Drop for Tombstone<'_> {
    fn drop(&mut self) {
        let why = Text::constant("its writer has stopped");
        self.0.end(Unavailable::Failed { step: Step::Run, why });
    }
}
