//! `sluice audit show`: everything about one entry.

use anyhow::anyhow;
use audit::search::{Query, search};
use clap::Args;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::logs::Logs;
use super::search::{Listing, say_skipped};
use crate::console::{Console, Format, Tone};
use crate::exit::{Exit, Failure};
use crate::shown::Shown;

/// Show everything that was recorded under one id.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 shown, 1 nothing has that id or a log is missing.")]
pub(super) struct Show {
    /// The id, as `search` prints it last on the line.
    id: Uuid,
    #[command(flatten)]
    logs: Logs,
}

pub(super) fn run(asked: &Show, console: &mut Console) -> Result<Exit, Failure> {
    let place = asked.logs.place()?;
    let query = Query { id: Some(asked.id), ..Query::default() };
    let mut found = Vec::new();
    for seen in search(&place, &query).map_err(anyhow::Error::from)? {
        match seen {
            Ok(line) => found.push(line),
            Err(skipped) => say_skipped(&skipped, console),
        }
    }
    if found.is_empty() {
        return Err(anyhow!("nothing is recorded under {} in {}", asked.id, place.display()).into());
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
