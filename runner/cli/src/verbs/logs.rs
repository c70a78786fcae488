//! `sluice logs`: what a run's command printed, while it runs or afterwards.
//!
//! It is read from the transcript, which grows line by line. What an agent
//! printed is shown as text, with its colours on a terminal that has them: it
//! would obey the rest.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use engine::evidence::RunFolder;
use engine::run_lock::is_locked;
use engine::session::commands;

use crate::console::Console;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::runs::{RunName, Runs};
use crate::session::living;
use crate::terminal::filter::Filter;
use crate::terminal::passes::Keep;

/// Show what a run's command printed.
#[derive(Debug, Args)]
pub struct LogsVerb {
    /// The run: `last`, its id, or the beginning of its id.
    run: RunName,
    #[command(flatten)]
    runs: Runs,
    /// Keep printing until the run ends.
    #[arg(short, long, env = "SLUICE_LOGS_FOLLOW")]
    follow: bool,
}

pub fn run(asked: &LogsVerb, console: &mut Console) -> Result<Exit, Failure> {
    let folder = asked.runs.open(&asked.run)?;
    if !folder.transcript().exists() && is_session(&folder) {
        return session(asked, &folder, console);
    }
    let runtime = environment::of_this_process().runtime().join(folder.run());
    show(&folder.transcript(), &|| asked.follow && is_locked(&runtime), console)?;
    Ok(Exit::Success)
}

/// Whether several commands were run, each with a transcript of its own.
fn is_session(folder: &RunFolder) -> bool {
    folder.commands().is_dir() || living(folder.run()).is_some()
}

/// What the commands of a session printed, one after the other.
fn session(asked: &LogsVerb, folder: &RunFolder, console: &mut Console) -> Result<Exit, Failure> {
    let goes_on = || asked.follow && living(folder.run()).is_some();
    let mut shown = 0;
    loop {
        let more = goes_on();
        for number in commands::numbers(folder) {
            if number <= shown {
                continue;
            }
            let path = commands::transcript(folder, number);
            // What was copied has none.
            if path.exists() {
                show(&path, &goes_on, console)?;
            }
            shown = number;
        }
        if !more {
            return Ok(Exit::Success);
        }
        console.flush()?;
        thread::sleep(FOLLOW_INTERVAL);
    }
}

/// One recording, to its end, or to where it is now.
fn show(path: &Path, goes_on: &dyn Fn() -> bool, console: &mut Console) -> Result<(), Failure> {
    let failed = || format!("cannot read {}", path.display());
    let mut lines = BufReader::new(File::open(path).with_context(failed)?);
    let recorded = if console.has_colours() { Keep::Colours } else { Keep::Text };
    let mut filter = Filter::new(recorded);
    let mut line = Vec::new();
    loop {
        // Asked before reading: what is written until it is let go is still read.
        let goes_on = goes_on();
        lines.read_until(b'\n', &mut line).with_context(failed)?;
        if line.last() == Some(&b'\n') {
            match printed(&line) {
                Printed::End => return console.raw(filter.reset().as_bytes()),
                Printed::Nothing => {}
                Printed::Text(text) => console.raw(filter.pass(&text).as_bytes())?,
            }
            line.clear();
            continue;
        }
        if !goes_on {
            return console.raw(filter.reset().as_bytes());
        }
        console.flush()?;
        thread::sleep(FOLLOW_INTERVAL);
    }
}

const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);

enum Printed {
    End,
    Nothing,
    Text(String),
}

/// What one line of a transcript shows.
fn printed(line: &[u8]) -> Printed {
    match serde_json::from_slice::<(f64, String, String)>(line) {
        Ok((_, kind, text)) if kind == "o" => Printed::Text(text),
        Ok((_, kind, _)) if kind == "x" => Printed::End,
        Ok(_) | Err(_) => Printed::Nothing,
    }
}
