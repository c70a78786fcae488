//! How a log is kept.

use std::time::Duration;

use crate::event::Run;
use crate::text::Name;
use crate::time::Time;

/// How a log is kept.
#[derive(Clone, Debug)]
pub struct Options {
    /// The run whose name records bear.
    pub run: Run,
    /// The program that writes, with its version; `log_started` names it.
    pub writer: Name,
    pub sync: Sync,
    /// How many entries can be open or queued at once. Each costs memory for its
    /// facts, so this is also the bound of the queue.
    pub entries: u32,
    /// A segment this long is finished before the next batch is written.
    pub segment_bytes: u64,
    /// How much is written before nothing more may begin: whoever is recorded
    /// must not fill the disk. What is open is still recorded to its end.
    pub most_bytes: u64,
    /// Where the time comes from.
    pub clock: fn() -> Time,
}

impl Options {
    /// The usual: synced each batch, 16,384 entries, segments of 64 MiB, as many as
    /// there are.
    pub fn new(run: impl Into<Run>) -> Self {
        Self {
            run: run.into(),
            writer: Name::constant(concat!("sluice-audit ", env!("CARGO_PKG_VERSION"))),
            sync: Sync::EachBatch,
            entries: 16 * 1024,
            segment_bytes: 64 * 1024 * 1024,
            most_bytes: u64::MAX,
            clock: Time::now,
        }
    }
}

/// When lines are forced to disk.
///
/// The writer takes all that is queued, writes it with one call, and syncs it
/// (or not) with one call. `opened` and `record_safely` resolve after that, so:
///
/// | policy | the process is killed | the machine loses power |
/// |---|---|---|
/// | `Awaited` | keeps every line that was waited for, and every other up to a few milliseconds ago | keeps every line that was waited for, and every other up to the duration ago |
/// | `EachBatch` | keeps every line that was waited for, and every other up to the last batch | the same |
/// | `Interval` | the same | may lose what was written since the last sync, waited for or not |
/// | `Never` | the same | may lose what the kernel had not written back yet, usually 30 s |
///
/// In each case a line that was being written may be torn; opening the log again
/// cuts and reports it. Lines still queued in a killed process are lost, which is
/// why an entry that must not be lost is `opened` first.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Sync {
    /// What somebody waits for is synced at once, the rest within a duration.
    Awaited(Duration),
    #[default]
    EachBatch,
    Interval(Duration),
    Never,
}
