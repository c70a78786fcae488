//! `sluice stats`: what running sandboxes take at this moment.

use std::collections::BTreeSet;

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use tokio::runtime::Runtime;

use crate::backend::{self, BackendError, Stats};
use crate::console::{Console, Format};
use crate::exit::{Exit, Failure};
use crate::plan::RunId;

/// Show what running sandboxes take.
#[derive(Debug, Args)]
pub struct StatsVerb {
    /// Only this run.
    #[arg(value_name = "RUN", value_parser = RunId::parse)]
    run: Option<RunId>,
}

#[derive(Debug, Serialize)]
struct Row {
    run: RunId,
    #[serde(flatten)]
    stats: Stats,
}

pub fn run(asked: &StatsVerb, console: &mut Console) -> Result<Exit, Failure> {
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let rows = runtime.block_on(rows(asked.run.as_ref())).map_err(anyhow::Error::new)?;
    if console.format != Format::Table {
        console.json_list(&rows)?;
        return Ok(Exit::Success);
    }
    if rows.is_empty() {
        console.say("nothing is running");
        return Ok(Exit::Success);
    }
    console.line(format_args!(
        "{:<24} {:>9} {:>20} {:>11} {:>10} {:>10}",
        "RUN", "CPU", "MEMORY", "PROCESSES", "RECEIVED", "SENT"
    ))?;
    for Row { run, stats } in &rows {
        let memory = format!("{} / {}", short(stats.memory), short(stats.memory_limit));
        let pids = format!("{} / {}", stats.pids, stats.pids_limit);
        let seconds = stats.cpu_nanoseconds / 1_000_000_000;
        let tenths = stats.cpu_nanoseconds / 100_000_000 % 10;
        console.line(format_args!(
            "{:<24} {:>9} {memory:>20} {pids:>11} {:>10} {:>10}",
            run.as_str(),
            format!("{seconds}.{tenths} s"),
            short(stats.received),
            short(stats.sent)
        ))?;
    }
    Ok(Exit::Success)
}

async fn rows(only: Option<&RunId>) -> Result<Vec<Row>, BackendError> {
    let mut rows = Vec::new();
    for backend in backend::all().await {
        let found = backend.found().await?.into_iter();
        let runs: BTreeSet<RunId> = found
            .filter(|found| found.running && only.is_none_or(|only| *only == found.run))
            .map(|found| found.run)
            .collect();
        for run in runs {
            if let Some(stats) = backend.stats(&run).await? {
                rows.push(Row { run, stats });
            }
        }
    }
    rows.sort_by(|a, b| a.run.cmp(&b.run));
    Ok(rows)
}

/// Three digits or so, for people.
fn short(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) => {
            let tenths = (bytes >> (shift - 10)) * 10 / 1024;
            format!("{}.{}{unit}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        for (bytes, shown) in [
            (0, "0B"),
            (1023, "1023B"),
            (1536, "1.5KiB"),
            (2 << 30, "2.0GiB"),
            (u64::MAX, "17179869183.9GiB"),
        ] {
            assert_eq!(short(bytes), shown);
        }
    }
}
