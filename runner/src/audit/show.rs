//! `sluice audit show`: everything about one entry, or every entry of one run.

use std::path::Path;

use anyhow::anyhow;
use audit::search::{Query, search};
use clap::Args;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::logs::Logs;
use super::search::{Listing, say_skipped};
use crate::console::{Console, Format, Tone};
use crate::exit::{Exit, Failure};
use crate::plan::RunId;
use crate::shown::Shown;

/// Show what was recorded in one run, or everything under one id.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 shown, 1 nothing has that id or a log is missing.")]
pub(super) struct Show {
    /// A run, as `sluice ls` prints it; or an id, as `search` prints it last on
    /// the line.
    #[arg(value_name = "RUN|ID", value_parser = which)]
    which: Which,
    #[command(flatten)]
    logs: Logs,
}

/// What can be shown.
#[derive(Clone, Debug)]
enum Which {
    Entry(Uuid),
    Run(RunId),
}

fn which(written: &str) -> Result<Which, String> {
    if let Ok(id) = written.parse() {
        return Ok(Which::Entry(id));
    }
    RunId::parse(written)
        .map(Which::Run)
        .map_err(|err| format!("{err}; nor is it an id of an entry"))
}

pub(super) fn run(asked: &Show, console: &mut Console) -> Result<Exit, Failure> {
    let place = asked.logs.place()?;
    let id = match &asked.which {
        Which::Entry(id) => *id,
        Which::Run(run) => return all_of(run, &place, console),
    };
    let query = Query { id: Some(id), ..Query::default() };
    let mut found = Vec::new();
    for seen in search(&place, &query).map_err(anyhow::Error::from)? {
        match seen {
            Ok(line) => found.push(line),
            Err(skipped) => say_skipped(&skipped, console),
        }
    }
    if found.is_empty() {
        return Err(anyhow!("nothing is recorded under {} in {}", id, place.display()).into());
    }
    if console.format != Format::Table {
        let mut listing = Listing::begin(console)?;
        found.iter().try_for_each(|found| listing.add(found, console))?;
        return listing.end(console);
    }
    for (number, found) in found.iter().enumerate() {
        if number > 0 {
            console.line("")?;
        }
        let place = format!("{}, line {}", found.file.display(), found.place.line);
        console.line(console.toned(Tone::Faint, Shown(&place)))?;
        let fields: Map<String, Value> = serde_json::from_str(found.line()).unwrap_or_default();
        let width = fields.keys().map(String::len).max().unwrap_or_default();
        for (name, value) in &fields {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            console.line(format_args!("{:width$}  {}", Shown(name).to_string(), Shown(&value)))?;
        }
    }
    Ok(Exit::Success)
}

/// Every entry of a run, one line each.
fn all_of(run: &RunId, place: &Path, console: &mut Console) -> Result<Exit, Failure> {
    let query = Query { run: Some(run.as_str().into()), ..Query::default() };
    let mut listing = Listing::begin(console)?;
    for seen in search(place, &query).map_err(anyhow::Error::from)? {
        match seen {
            Ok(found) => listing.add(&found, console)?,
            Err(skipped) => listing.skip(&skipped, console),
        }
    }
    if listing.is_empty() {
        let word = console.toned_aside(Tone::Faint, "nothing:");
        console.say(format_args!("{word} {run} had no network, or is not a run of this place"));
    }
    listing.end(console)
}
