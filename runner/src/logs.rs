//! `sluice logs`: what a run's command printed, while it runs or afterwards.
//!
//! It is read from the transcript, which grows line by line. What an agent
//! printed is shown as text: a terminal would obey the rest.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use crate::console::Console;
use crate::evidence::RunFolder;
use crate::evidence::escapes::{Filter, Keep};
use crate::exit::{Exit, Failure};
use crate::place;
use crate::plan::RunId;
use crate::runs::Runs;
use crate::sweep::is_held;

/// Show what a run's command printed.
#[derive(Debug, Args)]
pub struct Logs {
    #[arg(value_name = "RUN", value_parser = RunId::parse)]
    run: RunId,
    #[command(flatten)]
    runs: Runs,
    /// Go on until the run ends.
    #[arg(short, long, env = "SLUICE_LOGS_FOLLOW", hide_env_values = true)]
    follow: bool,
}

pub fn run(asked: &Logs, console: &mut Console) -> Result<Exit, Failure> {
    let folder = RunFolder::open(&asked.runs.place()?, asked.run.as_str());
    let path = folder.map_err(anyhow::Error::from)?.transcript();
    let failed = || format!("cannot read {}", path.display());
    let mut lines = BufReader::new(File::open(&path).with_context(failed)?);
    let mut filter = Filter::new(Keep::Text);
    let mut line = Vec::new();
    let runtime = place::runtime(&place::environment).join(asked.run.as_str());
    loop {
        // Asked before reading: what is written until it is let go is still read.
        let goes_on = asked.follow && is_held(&runtime);
        lines.read_until(b'\n', &mut line).with_context(failed)?;
        if line.last() == Some(&b'\n') {
            match printed(&line) {
                Printed::End => return Ok(Exit::Success),
                Printed::Nothing => {}
                Printed::Text(text) => console.raw(filter.pass(&text).as_bytes())?,
            }
            line.clear();
            continue;
        }
        if !goes_on {
            return Ok(Exit::Success);
        }
        console.flush()?;
        thread::sleep(Duration::from_millis(100));
    }
}

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
