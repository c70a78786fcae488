//! `sluice stats`: what running sandboxes take, as `docker stats` shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use clap::Args;
use engine::backend::{self, BackendError, Stats};
use engine::plan::RunId;
use serde::Serialize;

use crate::amounts::short_size;
use crate::caller;
use crate::console::{Console, Format};
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::runs::{RunName, Runs};

/// Processor time is told as what was taken between two looks.
const FIRST_INTERVAL: Duration = Duration::from_millis(300);
const INTERVAL: Duration = Duration::from_secs(1);

/// Show the resource use of running sandboxes.
#[derive(Debug, Args)]
#[command(after_help = "On a terminal it refreshes until interrupted; elsewhere it prints once.
CPU is relative to one processor: two busy ones are 200 %.")]
pub struct StatsVerb {
    /// Only this run: `last`, its id, or the beginning of its id.
    run: Option<RunName>,
    #[command(flatten)]
    runs: Runs,
    /// Print once and exit, even on a terminal.
    #[arg(long, env = "SLUICE_STATS_NO_STREAM")]
    no_stream: bool,
}

#[derive(Debug, Serialize)]
struct StatsRow {
    run: RunId,
    cpu_percent: f64,
    #[serde(flatten)]
    stats: Stats,
}

/// One look at every sandbox, and when each was looked at.
type Look = BTreeMap<RunId, (Instant, Stats)>;

pub fn run(asked: &StatsVerb, console: &mut Console) -> Result<Exit, Failure> {
    let only = asked.run.as_ref().map(|name| asked.runs.find(name)).transpose()?;
    let runtime = caller::runtime()?;
    let look = || runtime.block_on(look(only.as_ref())).map_err(anyhow::Error::new);
    let goes_on = !asked.no_stream && console.format == Format::Table && console.is_terminal();
    let (mut before, mut pause) = (look()?, FIRST_INTERVAL);
    loop {
        std::thread::sleep(pause);
        let now = look()?;
        let rows = rows(&before, &now);
        if goes_on {
            // From the top of the screen, over what was shown before.
            console.raw(b"\x1b[H\x1b[J")?;
        }
        show(&rows, console)?;
        if !goes_on {
            return Ok(Exit::Success);
        }
        console.flush()?;
        (before, pause) = (now, INTERVAL);
    }
}

async fn look(only: Option<&RunId>) -> Result<Look, BackendError> {
    let mut look = Look::new();
    for backend in backend::all(environment::of_this_process()).await {
        let found = backend.labelled().await?.into_iter();
        let runs: BTreeSet<RunId> = found
            .filter(|found| found.running && only.is_none_or(|only| *only == found.run))
            .map(|found| found.run)
            .collect();
        for run in runs {
            if let Some(stats) = backend.stats(&run).await? {
                look.insert(run, (Instant::now(), stats));
            }
        }
    }
    Ok(look)
}

fn rows(before: &Look, now: &Look) -> Vec<StatsRow> {
    let row = |(run, (at, stats)): (&RunId, &(Instant, Stats))| {
        let cpu_percent = before.get(run).map_or(0.0, |(earlier, was)| {
            let taken = stats.cpu_nanoseconds.saturating_sub(was.cpu_nanoseconds);
            percent(taken, at.saturating_duration_since(*earlier))
        });
        StatsRow { run: run.clone(), cpu_percent, stats: stats.clone() }
    };
    now.iter().map(row).collect()
}

/// Of one processor, in tenths.
fn percent(nanoseconds: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64().max(0.001);
    (nanoseconds as f64 / 1e9 / seconds * 1000.0).round() / 10.0
}

fn show(rows: &[StatsRow], console: &mut Console) -> Result<(), Failure> {
    if console.format != Format::Table {
        return console.json_list(rows);
    }
    if rows.is_empty() {
        console.say("nothing is running");
        return Ok(());
    }
    console.line(format_args!(
        "{:<24} {:>8} {:>20} {:>11} {:>10} {:>10}",
        "RUN", "CPU", "MEMORY / LIMIT", "PROCESSES", "RECEIVED", "SENT"
    ))?;
    for StatsRow { run, cpu_percent, stats } in rows {
        let memory =
            format!("{} / {}", short_size(stats.memory), limit(stats.memory_limit, short_size));
        let pids = format!("{} / {}", stats.pids, limit(stats.pids_limit, |pids| pids.to_string()));
        console.line(format_args!(
            "{:<24} {:>8} {memory:>20} {pids:>11} {:>10} {:>10}",
            run.as_str(),
            format!("{cpu_percent:.1} %"),
            short_size(stats.received),
            short_size(stats.sent)
        ))?;
    }
    Ok(())
}

/// None is told as none, not as zero.
fn limit(value: u64, shown: impl Fn(u64) -> String) -> String {
    if value == 0 { "-".to_owned() } else { shown(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_a_part_of_the_time_that_passed() {
        assert_eq!(percent(500_000_000, Duration::from_secs(1)), 50.0);
        assert_eq!(percent(2_000_000_000, Duration::from_secs(1)), 200.0);
        assert_eq!(percent(0, Duration::ZERO), 0.0);
    }

    #[test]
    fn a_limit_that_is_not_there_is_not_zero() {
        assert_eq!((limit(0, short_size), limit(1024, short_size)), ("-".into(), "1.0KiB".into()));
    }
}
