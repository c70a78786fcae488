//! `sluice audit tail`: the last events, and those that come.
//!
//! Without `--run` that is all runs together. A run that is sealed has ended and
//! is not followed; one that begins later is followed from its first line.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use audit::Time;
use audit::seal::SEAL;
use audit::search::{Follow, FoundEvent, SearchQuery, Skipped};
use clap::Args;

use super::filters::Filters;
use super::logs::{Logs, holds_a_log};
use super::one_row::has_row_now;
use super::search::Listing;
use crate::console::{Console, Format};
use crate::exit::{Exit, Failure};

/// How long nothing is looked at when nothing is new.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Show the latest events, and follow with -f.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 shown, 1 a log is missing or some line could not be read.")]
pub(super) struct Tail {
    #[command(flatten)]
    logs: Logs,
    /// Show this many events first.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, env = "SLUICE_AUDIT_LINES")]
    lines: usize,
    /// Print new events as they are written, until interrupted.
    #[arg(short, long, env = "SLUICE_AUDIT_FOLLOW")]
    follow: bool,
    /// Show every line of the log, including DNS queries, connections and openings.
    #[arg(long, env = "SLUICE_AUDIT_ALL")]
    all: bool,
    #[command(flatten)]
    filters: Filters,
}

pub(super) fn run(asked: &Tail, console: &mut Console) -> Result<Exit, Failure> {
    if asked.follow && console.format == Format::Json {
        let message = "-f has no end, so its result cannot be one JSON document; use -o jsonl";
        return Err(Failure::Usage(message.to_owned()));
    }
    let query = asked.filters.query(None);
    // What follows a line is not known yet, so each is judged by itself.
    let whole = asked.all || asked.filters.names_kinds() || console.format != Format::Table;
    let mut tailing = Tailing { query, whole, known: BTreeSet::new(), logs: Vec::new() };
    tailing.take_up(asked)?;
    let mut listing = Listing::begin(true, asked.logs.is_one_run(), None, console)?;
    for found in tailing.last(asked, &mut listing, console) {
        listing.add(&found, console)?;
    }
    if asked.follow {
        // Until a signal comes, or whoever reads has left.
        loop {
            console.flush()?;
            thread::sleep(POLL_INTERVAL);
            tailing.take_up(asked)?;
            tailing.news(&mut listing, console)?;
        }
    }
    listing.end(console)
}

/// Logs that are read as they grow.
struct Tailing {
    query: SearchQuery,
    /// Every line is shown.
    whole: bool,
    /// Every folder that was ever taken up.
    known: BTreeSet<PathBuf>,
    logs: Vec<(PathBuf, Follow)>,
}

impl Tailing {
    /// Adds the logs that were not there the last time.
    fn take_up(&mut self, asked: &Tail) -> Result<(), Failure> {
        for folder in asked.logs.folders_of(&asked.filters.origins)? {
            if !self.known.contains(&folder) && holds_a_log(&folder) {
                self.known.insert(folder.clone());
                let follow = Follow::from_start(&folder, &self.query);
                self.logs.push((folder, follow));
            }
        }
        Ok(())
    }

    /// The last events of all that is written, by time.
    fn last(
        &mut self,
        asked: &Tail,
        listing: &mut Listing,
        console: &mut Console,
    ) -> Vec<FoundEvent> {
        let count = asked.lines;
        let mut all: Vec<(Option<Time>, FoundEvent)> = Vec::new();
        for (folder, mut follow) in std::mem::take(&mut self.logs) {
            let mut last = VecDeque::new();
            while let Some(seen) = follow.poll() {
                match seen {
                    Ok(found) => {
                        if self.whole || has_row(&found) {
                            last.push_back(found);
                        }
                        if last.len() > count {
                            last.pop_front();
                        }
                    }
                    Err(skipped) => {
                        listing.skip(&skipped, console);
                        if matches!(skipped, Skipped::Read { .. }) {
                            break;
                        }
                    }
                }
            }
            let timed = |found: FoundEvent| (found.event().ok().map(|event| event.time), found);
            all.extend(last.into_iter().map(timed));
            // There may be thousands of runs: only those that go on stay open.
            if asked.follow && !is_sealed(&folder) {
                self.logs.push((folder, follow));
            }
        }
        // Stable: the events of one log stay in its order.
        all.sort_by_key(|(time, _)| *time);
        let from = all.len().saturating_sub(count);
        all.into_iter().skip(from).map(|(_, found)| found).collect()
    }

    /// Prints what came since the last time.
    fn news(&mut self, listing: &mut Listing, console: &mut Console) -> Result<(), Failure> {
        // Asked before reading on: what is written and sealed in between is still
        // read, this time or the next.
        let ended: Vec<bool> = self.logs.iter().map(|(folder, _)| is_sealed(folder)).collect();
        let whole = self.whole;
        for (_, follow) in &mut self.logs {
            while let Some(seen) = follow.poll() {
                match seen {
                    Ok(found) if whole || has_row(&found) => listing.add(&found, console)?,
                    Ok(_) => {}
                    Err(skipped) => {
                        listing.skip(&skipped, console);
                        break;
                    }
                }
            }
        }
        // Nothing more can come: its files need not stay open.
        let mut ended = ended.into_iter();
        self.logs.retain(|_| !ended.next().unwrap_or(false));
        Ok(())
    }
}

/// One that cannot be read is shown, which says so.
fn has_row(found: &FoundEvent) -> bool {
    found.event().map_or(true, |event| has_row_now(&event.what))
}

fn is_sealed(folder: &Path) -> bool {
    folder.join(SEAL).exists()
}
