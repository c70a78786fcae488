//! How long the work after a command may take, and who may end it.
//!
//! A sandbox chooses how much there is to compare, hash and copy when it has
//! ended: a file of 8 TiB that is one hole costs it nothing. So every part of
//! that work asks [`WorkBudget::check`] as it goes on. It is told to stop when
//! its time is over, or when a person or a service manager says so, and what was
//! not done is kept for the record. Work that takes more than a moment is
//! announced to whoever waits for it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The time for comparing and hashing what changed.
pub const CHANGES: Duration = Duration::from_secs(60);
/// The time for writing the patch.
pub const PATCH: Duration = Duration::from_secs(20);
/// The time for copying artifacts.
pub const ARTIFACTS: Duration = Duration::from_secs(60);

/// After this long a person is told what is waited for.
const UNANNOUNCED: Duration = Duration::from_secs(2);
/// How often it is said again.
const BETWEEN_NOTICES: Duration = Duration::from_secs(10);

/// Why work was left before its end.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum CutShort {
    /// A signal came while it was going on.
    #[error("stopped by signal {signal}")]
    Stopped { signal: u8 },
    /// It took longer than it may.
    #[error("not done within {limit_seconds} s")]
    Time { limit_seconds: u64 },
}

/// A part of the evidence that is not whole, as it stands in `run.json`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct NotDone {
    pub part: String,
    #[serde(flatten)]
    pub why: CutShort,
}

impl fmt::Display for NotDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.part, self.why)
    }
}

/// Tells work that it is to stop; may be used from another thread.
#[derive(Clone, Debug, Default)]
pub struct StopToken(Arc<AtomicU8>);

impl StopToken {
    pub fn because_of(&self, signal: u8) {
        self.0.store(signal.max(1), Ordering::Relaxed);
    }

    fn signal(&self) -> Option<u8> {
        Some(self.0.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }
}

/// Says that this part takes a while, and at most how long.
pub type Announce = fn(part: &'static str, limit: Duration);

/// What the parts of the work share.
#[derive(Debug)]
pub struct WorkBudget {
    stop: StopToken,
    /// Tells whoever waits for it why.
    announce: Option<Announce>,
    part: Cell<Part>,
    not_done: RefCell<Vec<NotDone>>,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    name: &'static str,
    begun: Instant,
    limit: Duration,
    /// When a person is told next.
    notice: Instant,
}

impl Part {
    fn new(name: &'static str, limit: Duration) -> Self {
        let begun = Instant::now();
        Self { name, begun, limit, notice: begun + UNANNOUNCED }
    }
}

impl WorkBudget {
    /// For work that somebody waits for, who can end it with `stop`.
    pub fn attended(stop: StopToken) -> Self {
        Self { stop, ..Self::unattended() }
    }

    /// The same; whoever waits is told when it takes long.
    #[must_use]
    pub fn announcing(self, announce: Announce) -> Self {
        Self { announce: Some(announce), ..self }
    }

    /// For work that nobody waits for.
    pub fn unattended() -> Self {
        Self {
            stop: StopToken::default(),
            announce: None,
            part: Cell::new(Part::new("changes", CHANGES)),
            not_done: RefCell::default(),
        }
    }

    /// The next part begins, which has `limit` for itself.
    pub fn begin(&self, name: &'static str, limit: Duration) {
        self.part.set(Part::new(name, limit));
    }

    /// Whether to go on. A reason not to is kept for the record.
    pub fn check(&self) -> Result<(), CutShort> {
        self.within(1.0)
    }

    /// Whether there is time for what takes long, such as hashing: the last
    /// quarter is for listing what could not be looked into.
    pub fn check_for_long_work(&self) -> Result<(), CutShort> {
        self.within(0.75)
    }

    /// What was left before its end, one entry for each part.
    pub fn not_done(&self) -> Vec<NotDone> {
        self.not_done.borrow().clone()
    }

    fn within(&self, share: f64) -> Result<(), CutShort> {
        let part = self.part.get();
        let now = Instant::now();
        let why = match self.stop.signal() {
            Some(signal) => CutShort::Stopped { signal },
            None if now.duration_since(part.begun) >= part.limit.mul_f64(share) => {
                CutShort::Time { limit_seconds: part.limit.as_secs() }
            }
            None => {
                if now >= part.notice {
                    self.part.set(Part { notice: now + BETWEEN_NOTICES, ..part });
                    if let Some(announce) = self.announce {
                        announce(part.name, part.limit);
                    }
                }
                return Ok(());
            }
        };
        let mut not_done = self.not_done.borrow_mut();
        if !not_done.iter().any(|known| known.part == part.name) {
            not_done.push(NotDone { part: part.name.to_owned(), why });
        }
        Err(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_when_its_time_is_over_and_the_next_part_has_time_again() {
        let budget = WorkBudget::unattended();
        budget.begin("changes", Duration::ZERO);
        let over = CutShort::Time { limit_seconds: 0 };
        assert_eq!((budget.check(), budget.check()), (Err(over), Err(over)));
        budget.begin("patch", PATCH);
        assert_eq!(budget.check(), Ok(()));
        assert_eq!(budget.not_done(), [NotDone { part: "changes".to_owned(), why: over }]);
    }

    #[test]
    fn a_signal_ends_every_part_at_once_and_is_named() {
        let stop = StopToken::default();
        let budget = WorkBudget::attended(stop.clone());
        assert_eq!(budget.check(), Ok(()));
        stop.because_of(15);
        assert_eq!(budget.check(), Err(CutShort::Stopped { signal: 15 }));
        budget.begin("artifacts", ARTIFACTS);
        assert_eq!(budget.check(), Err(CutShort::Stopped { signal: 15 }));
        let json = serde_json::to_string(&budget.not_done()).unwrap();
        assert_eq!(
            json,
            r#"[{"part":"changes","reason":"stopped","signal":15},{"part":"artifacts","reason":"stopped","signal":15}]"#
        );
    }
}
