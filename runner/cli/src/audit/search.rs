//! `sluice audit search`: the events that fit, across runs.

use std::path::PathBuf;

use audit::Event;
use audit::search::{FoundEvent, Skipped};
use clap::Args;

use super::filters::Filters;
use super::logs::Logs;
use super::one_row::OneRowEach;
use super::row::{self, RowLayout};
use crate::console::{Console, Format, Tone};
use crate::exit::{Exit, Failure};

/// Find events across runs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sluice audit search --verdict deny --since 1d
  sluice audit search --host '*.github.com' --method POST -o jsonl
  sluice audit search GITHUB_TOKEN --run last
  sluice audit search --min-sent 1MiB --since 7d

A table has one row for each request; --all shows every line of the log, as JSON does.
Exit codes: 0 searched, 1 a log is missing or some line could not be read.")]
pub(super) struct SearchVerb {
    /// Text that occurs anywhere in the event.
    text: Option<String>,
    #[command(flatten)]
    logs: Logs,
    /// Show at most this many events.
    #[arg(long, value_name = "N", env = "SLUICE_AUDIT_LIMIT")]
    limit: Option<usize>,
    /// Show every line of the log, including DNS queries, connections and openings.
    #[arg(long, env = "SLUICE_AUDIT_ALL")]
    all: bool,
    #[command(flatten)]
    filters: Filters,
}

impl SearchVerb {
    /// The folders of the runs that are searched.
    pub(super) fn folders(&self) -> Result<Vec<PathBuf>, Failure> {
        self.logs.folders_of(&self.filters.origins)
    }
}

pub(super) fn run(asked: &SearchVerb, console: &mut Console) -> Result<Exit, Failure> {
    let found = asked.logs.search(&asked.filters, asked.text.as_deref())?;
    let whole = asked.all || asked.filters.names_kinds();
    let mut listing = Listing::begin(whole, asked.logs.is_one_run(), asked.limit, console)?;
    for seen in found {
        if listing.is_full() {
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
    layout: RowLayout,
    /// For tables: what has a row of its own. Nothing if every line has.
    rows: Option<OneRowEach>,
    limit: Option<usize>,
    count: usize,
    /// Something was not readable: what was listed may not be all.
    skipped: bool,
}

impl Listing {
    /// `whole`: every line has a row; `one_run`: they are all of the same run.
    pub(super) fn begin(
        whole: bool,
        one_run: bool,
        limit: Option<usize>,
        console: &mut Console,
    ) -> Result<Self, Failure> {
        let layout = RowLayout::new(console, one_run);
        match console.format {
            Format::Json => console.raw(b"[")?,
            Format::Jsonl => {}
            Format::Table => console.line(row::heading(layout, console))?,
        }
        let rows = (!whole).then(OneRowEach::default);
        Ok(Self { layout, rows, limit, count: 0, skipped: false })
    }

    /// Nothing more is asked for.
    pub(super) fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.count >= limit)
    }

    pub(super) fn add(&mut self, found: &FoundEvent, console: &mut Console) -> Result<(), Failure> {
        match console.format {
            Format::Json => {
                self.count += 1;
                let before = if self.count == 1 { "\n" } else { ",\n" };
                console.raw(format!("{before}{}", found.line()).as_bytes())
            }
            // The line as it stands in the log: printable ASCII already.
            Format::Jsonl => {
                self.count += 1;
                console.line(found.line())
            }
            Format::Table => match found.event() {
                Ok(event) => {
                    let rows = match &mut self.rows {
                        Some(rows) => rows.add(event),
                        None => vec![event],
                    };
                    self.print(&rows, console)
                }
                Err(why) => {
                    let (file, place) = (found.file.clone(), found.place);
                    self.skip(&Skipped::Line { file, place, why }, console);
                    Ok(())
                }
            },
        }
    }

    fn print(&mut self, rows: &[Event], console: &mut Console) -> Result<(), Failure> {
        for event in rows {
            if self.is_full() {
                break;
            }
            self.count += 1;
            console.line(row::of(event, self.layout, console))?;
        }
        Ok(())
    }

    /// Notes on stderr what could not be read.
    pub(super) fn skip(&mut self, skipped: &Skipped, console: &mut Console) {
        self.skipped = true;
        say_skipped(skipped, console);
    }

    pub(super) fn end(mut self, console: &mut Console) -> Result<Exit, Failure> {
        if let Some(rows) = &mut self.rows {
            let rows = rows.end();
            self.print(&rows, console)?;
        }
        match console.format {
            Format::Json => console.line(if self.count == 0 { "]" } else { "\n]" })?,
            Format::Jsonl | Format::Table => {}
        }
        Ok(if self.skipped { Exit::Failed } else { Exit::Success })
    }
}

pub(super) fn say_skipped(skipped: &Skipped, console: &mut Console) {
    let why = match skipped {
        Skipped::Line { .. } => skipped.to_string(),
        Skipped::Read { source, .. } => format!("{skipped}: {source}"),
    };
    console.say_labelled(Tone::Warn, "skipped:", why);
}
