//! `sluice audit search`: the events that fit, across runs.

use audit::search::{Found, Skipped};
use clap::Args;

use super::filters::Filters;
use super::logs::Logs;
use super::row;
use crate::console::{Console, Format, Tone};
use crate::exit::{Exit, Failure};
use crate::shown::Shown;

/// Find events across runs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sluice audit search --verdict deny --since 1d
  sluice audit search --host '*.github.com' --method POST -o jsonl
  sluice audit search GITHUB_TOKEN --kind request

Exit codes: 0 searched, 1 a log is missing or some line could not be read.")]
pub(super) struct Search {
    /// Words that stand anywhere in the event, as written.
    text: Option<String>,
    #[command(flatten)]
    logs: Logs,
    /// At most so many.
    #[arg(long, value_name = "N", env = "SLUICE_AUDIT_LIMIT", hide_env_values = true)]
    limit: Option<usize>,
    #[command(flatten)]
    filters: Filters,
}

pub(super) fn run(asked: &Search, console: &mut Console) -> Result<Exit, Failure> {
    let place = asked.logs.place()?;
    let query = asked.filters.query(asked.text.as_deref());
    let found = audit::search::search(&place, &query).map_err(anyhow::Error::from)?;
    let mut listing = Listing::begin(console)?;
    for seen in found {
        if asked.limit.is_some_and(|limit| listing.count >= limit) {
            break;
        }
        match seen {
            Ok(found) => listing.add(&found, console)?,
            Err(skipped) => listing.skip(&skipped, console),
        }
    }
    listing.end(console)
}

/// Events being printed, one at a time.
#[derive(Debug)]
pub(super) struct Listing {
    count: usize,
    /// Something was not readable: what was listed may not be all.
    skipped: bool,
}

impl Listing {
    pub(super) fn begin(console: &mut Console) -> Result<Self, Failure> {
        match console.format {
            Format::Json => console.raw(b"[")?,
            Format::Jsonl => {}
            Format::Table => console.line(row::heading(console))?,
        }
        Ok(Self { count: 0, skipped: false })
    }

    pub(super) fn add(&mut self, found: &Found, console: &mut Console) -> Result<(), Failure> {
        self.count += 1;
        match console.format {
            Format::Json => {
                let before = if self.count == 1 { "\n" } else { ",\n" };
                console.raw(format!("{before}{}", found.line()).as_bytes())
            }
            // The line as it stands in the log: printable ASCII already.
            Format::Jsonl => console.line(found.line()),
            Format::Table => match found.event() {
                Ok(event) => console.line(row::of(&event, console)),
                Err(why) => {
                    let (file, place) = (found.file.clone(), found.place);
                    self.skip(&Skipped::Line { file, place, why }, console);
                    Ok(())
                }
            },
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Notes on stderr what could not be read.
    pub(super) fn skip(&mut self, skipped: &Skipped, console: &mut Console) {
        self.skipped = true;
        say_skipped(skipped, console);
    }

    pub(super) fn end(self, console: &mut Console) -> Result<Exit, Failure> {
        match console.format {
            Format::Json => console.line(if self.count == 0 { "]" } else { "\n]" })?,
            Format::Jsonl | Format::Table => {}
        }
        Ok(if self.skipped { Exit::Failed } else { Exit::Success })
    }
}

pub(super) fn say_skipped(skipped: &Skipped, console: &mut Console) {
    let word = console.toned_aside(Tone::Warn, "skipped:");
    let why = match skipped {
        Skipped::Line { .. } => skipped.to_string(),
        Skipped::Read { source, .. } => format!("{skipped}: {source}"),
    };
    console.say(format_args!("{word} {}", Shown(&why)));
}
