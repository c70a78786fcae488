//! How a log is kept.

use std::path::Path;
use std::time::Duration;

use super::unavailable::Unavailable;
use crate::event::{LogOrigin, RunName};
use crate::text::Name;
use crate::time::Time;

/// How a log is kept.
#[derive(Clone, Debug)]
pub struct Options {
    /// The run whose name records bear.
    pub run: RunName,
    /// The program that writes, with its version; `log_started` names it.
    pub writer: Name,
    /// What an operator pinned and whom upstreams are believed by; `log_started`
    /// says so, of the first 32 of each.
    pub pins: Vec<Name>,
    pub roots: Vec<Name>,
    /// What becomes of attempts that find no listener; `log_started` says so.
    pub unanswered: Option<Name>,
    /// Who started what is recorded; `log_started` says so.
    pub origin: LogOrigin,
    pub sync: SyncPolicy,
    /// How many entries can be open or queued at once. Each costs memory for its
    /// facts, so this is also the bound of the queue.
    pub entries: u32,
    /// A segment this long is finished before the next batch is written.
    pub segment_bytes: u64,
    /// The log's size, after which nothing more may begin: a sandbox must not be able
    /// to fill the disk. Open entries are still recorded to their end.
    pub max_bytes: u64,
    /// Where the time comes from.
    pub clock: fn() -> Time,
    /// Called when the log stops taking records, and when it takes them again.
    pub report: fn(&LogNotice<'_>),
}

/// A change of a log's state that an operator should see.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogNotice<'a> {
    /// Nothing is recorded any more, so nothing may pass.
    Ended { folder: &'a Path, why: &'a Unavailable },
    /// The disk has no room. Nothing may pass until it has.
    Paused { folder: &'a Path, why: &'a str },
    /// There was room after `paused`; meanwhile so many records were refused.
    Resumed { folder: &'a Path, paused: Duration, refused: u64 },
}

impl Options {
    /// The usual: synced each batch, 16,384 entries, segments of 64 MiB, as many as
    /// there are.
    pub fn new(run: impl Into<RunName>) -> Self {
        Self {
            run: run.into(),
            writer: Name::constant(concat!("sluice-audit ", env!("CARGO_PKG_VERSION"))),
            pins: Vec::new(),
            roots: Vec::new(),
            unanswered: None,
            origin: LogOrigin::default(),
            sync: SyncPolicy::EachBatch,
            entries: 16 * 1024,
            segment_bytes: 64 * 1024 * 1024,
            max_bytes: u64::MAX,
            clock: Time::now,
            report: |_| {},
        }
    }
}

/// How many pins, and how many files of authorities, the first line names. The
/// last is the number of those it does not.
const MAX_LISTED_NAMES: usize = 32;

/// As many as a line takes.
pub(super) fn named(all: &[Name]) -> Vec<Name> {
    let mut named: Vec<Name> = all.iter().take(MAX_LISTED_NAMES).cloned().collect();
    if all.len() > MAX_LISTED_NAMES {
        named.push(format!("and {} more", all.len() - MAX_LISTED_NAMES).into());
    }
    named
}

/// When lines are forced to disk.
///
/// What is queued is written with one call, and synced (or not) with one more.
/// `opened` and `record_safely` resolve after that, [`Log::written`](super::Log::written)
/// resolves after the first; so:
///
/// | policy | the process is killed | the machine loses power |
/// |---|---|---|
/// | `Awaited` | keeps every line that was waited for, and every other up to a few milliseconds ago | keeps every line whose safety was waited for, and every other up to the duration ago |
/// | `EachBatch` | keeps every line that was waited for, and every other up to the last batch | the same |
/// | `Interval` | the same | may lose what was written since the last sync, waited for or not |
/// | `Never` | the same | may lose what the kernel had not written back yet, usually 30 s |
///
/// In each case a line that was being written may be torn; opening the log again
/// cuts and reports it. Lines still queued in a killed process are lost, which is
/// why somebody waits for those that must not be.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SyncPolicy {
    /// What somebody waits for is synced at once, the rest within a duration.
    Awaited(Duration),
    #[default]
    EachBatch,
    Interval(Duration),
    Never,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_as_many_as_it_takes_and_counts_the_rest() {
        let some =
            |count: usize| -> Vec<Name> { (0..count).map(|n| format!("{n}").into()).collect() };
        assert_eq!(named(&some(MAX_LISTED_NAMES)), some(MAX_LISTED_NAMES));
        let more = named(&some(MAX_LISTED_NAMES + 2));
        assert_eq!(more[..MAX_LISTED_NAMES], some(MAX_LISTED_NAMES));
        assert_eq!(more[MAX_LISTED_NAMES..], [Name::from("and 2 more")]);
    }
}
