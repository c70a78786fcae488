//! `sluice transcript`: what the terminal showed.
//!
//! A recording holds what an agent wrote, and a terminal obeys what it is shown.
//! So by default only text is printed, with its colours on a terminal, a replay
//! draws and does nothing else, and
//! the exact bytes are for those who ask for them.

use std::io::Write as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use engine::evidence::{Recording, What};
use engine::session::commands;

use crate::console::{Console, Format, output_failed};
use crate::exit::{Exit, Failure};
use crate::runs::{RunName, Runs};
use crate::terminal::filter::Filter;
use crate::terminal::passes::Keep;

/// Show or replay a run's terminal output.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 shown, 1 there is no transcript.

The file itself is an asciicast v3: any player of asciinema's format plays it.")]
pub struct TranscriptVerb {
    /// The run: `last`, its id, or the beginning of its id.
    run: RunName,
    #[command(flatten)]
    runs: Runs,
    /// Only this command of a session, counted from 1.
    #[arg(long, value_name = "NUMBER", env = "SLUICE_TRANSCRIPT_COMMAND")]
    command: Option<u32>,
    /// Replay it at its original speed.
    #[arg(long, env = "SLUICE_TRANSCRIPT_PLAY")]
    play: bool,
    /// Print it unchanged, including terminal escape sequences.
    #[arg(long, env = "SLUICE_TRANSCRIPT_RAW")]
    raw: bool,
    /// Speed of a replay; 2 is twice as fast.
    #[arg(long, value_name = "TIMES", default_value_t = 1.0, env = "SLUICE_TRANSCRIPT_SPEED")]
    speed: f64,
    /// Longest pause in a replay, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, env = "SLUICE_TRANSCRIPT_PAUSE")]
    pause: f64,
}

pub fn run(asked: &TranscriptVerb, console: &mut Console) -> Result<Exit, Failure> {
    let folder = asked.runs.open(&asked.run)?;
    let longest = seconds("--pause", asked.pause)?;
    if !(asked.speed > 0.0 && asked.speed.is_finite()) {
        return Err(Failure::Usage("--speed takes a number above 0, such as 2".to_owned()));
    }
    let commands = commands::numbers(&folder);
    match asked.command {
        Some(number) => show(&commands::transcript(&folder, number), asked, longest, console)?,
        None if commands.is_empty() => show(&folder.transcript(), asked, longest, console)?,
        None => {
            // One after the other, though some ran at the same time. What was
            // copied has none.
            let recorded = commands.into_iter().map(|number| commands::transcript(&folder, number));
            for path in recorded.filter(|path| path.exists()) {
                show(&path, asked, longest, console)?;
            }
        }
    }
    Ok(Exit::Success)
}

/// Shows one recording.
fn show(
    path: &Path,
    asked: &TranscriptVerb,
    longest: Duration,
    console: &mut Console,
) -> Result<(), Failure> {
    let failed = || format!("cannot read {}", path.display());
    let mut recording = Recording::open(path).with_context(failed)?;
    let recorded = if console.has_colours() { Keep::Colours } else { Keep::Text };
    let mut filter = Filter::new(if asked.play { Keep::Drawing } else { recorded });
    let mut last = String::new();
    while let Some(event) = recording.next().with_context(failed)? {
        if console.format != Format::Table {
            tell(&event.what, event.interval, console)?;
            continue;
        }
        if asked.play {
            let pause = event.interval.min(longest).div_f64(asked.speed);
            console.flush()?;
            thread::sleep(pause);
        }
        match event.what {
            What::Output(text) if asked.raw => console.raw(text.as_bytes())?,
            What::Output(text) => {
                let text = filter.pass(&text);
                console.raw(text.as_bytes())?;
                if !text.is_empty() {
                    last = text;
                }
            }
            What::Marker(words) => console.say(files::printable::Printable(&words)),
            // The terminal here has the size it has.
            What::Exit(_) | What::Input(_) | What::Resize(_) => {}
        }
    }
    // Colours, the cursor and the screen as they were.
    let reset = filter.reset();
    console.out().write_all(reset.as_bytes()).map_err(output_failed)?;
    let is_replay = asked.play && console.format == Format::Table;
    if !asked.raw && (is_replay || !last.is_empty() && !last.ends_with('\n')) {
        console.line("")?;
    }
    Ok(())
}

/// One event for a program.
fn tell(what: &What, interval: Duration, console: &mut Console) -> Result<(), Failure> {
    let (kind, data) = match what {
        What::Exit(data) => ("exit", data),
        What::Input(data) => ("input", data),
        What::Marker(data) => ("marker", data),
        What::Output(data) => ("output", data),
        What::Resize(data) => ("resize", data),
    };
    let event = serde_json::json!({"after": interval.as_secs_f64(), "kind": kind, "data": data});
    let line = files::printable::ascii_json(&event.to_string());
    console.line(line)
}

fn seconds(flag: &str, written: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(written)
        .map_err(|_| Failure::Usage(format!("{flag} takes a number of seconds, such as 2")))
}
