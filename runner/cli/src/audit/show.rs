//! `sluice audit show`: everything about one entry, or every entry of one run.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::anyhow;
use audit::search::{SearchQuery, search};
use clap::Args;
use files::printable::Printable;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::logs::{Logs, holds_a_log};
use super::row::SHORT_ID_CHARS;
use super::search::{Listing, say_skipped};
use crate::console::{Console, Format, Tone};
use crate::exit::{Exit, Failure};

/// Show what was recorded in one run, or everything under one id.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 shown, 1 nothing has that id or a log is missing.")]
pub(super) struct ShowVerb {
    /// A run: `last`, its id, or the beginning of one. Or an id of an entry, as
    /// `search` prints it last on the line.
    #[arg(value_name = "RUN|ID")]
    which: String,
    #[command(flatten)]
    logs: Logs,
    /// Show every line of the log, including DNS queries, connections and openings.
    #[arg(long, env = "SLUICE_AUDIT_ALL")]
    all: bool,
}

pub(super) fn run(asked: &ShowVerb, console: &mut Console) -> Result<Exit, Failure> {
    let place = asked.logs.place()?;
    let id = match asked.which.parse::<Uuid>() {
        Ok(id) => id,
        Err(_) => match asked.logs.folder_of(&asked.which.clone().into()) {
            Ok(folder) => return all_of(&folder, asked.all, console),
            // A table on a terminal shows the end of an id.
            Err(no_run) => ending_with(&asked.which, &place)?.ok_or(no_run)?,
        },
    };
    let query = SearchQuery { id: Some(id), ..SearchQuery::default() };
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
        let mut listing = Listing::begin(true, true, None, console)?;
        found.iter().try_for_each(|found| listing.add(found, console))?;
        return listing.end(console);
    }
    for (number, found) in found.iter().enumerate() {
        if number > 0 {
            console.line("")?;
        }
        let place = format!("{}, line {}", found.file.display(), found.place.line);
        console.line(console.toned(Tone::Faint, Printable(&place)))?;
        let fields: Map<String, Value> = serde_json::from_str(found.line()).unwrap_or_default();
        let width = fields.keys().map(String::len).max().unwrap_or_default();
        for (name, value) in &fields {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            console.line(format_args!(
                "{:width$}  {}",
                Printable(name).to_string(),
                Printable(&value)
            ))?;
        }
    }
    Ok(Exit::Success)
}

/// The one entry whose id ends with what was written.
fn ending_with(written: &str, place: &Path) -> Result<Option<Uuid>, Failure> {
    let is_end = written.len() == SHORT_ID_CHARS && written.bytes().all(|b| b.is_ascii_hexdigit());
    if !is_end {
        return Ok(None);
    }
    let query = SearchQuery { text: Some(written.to_owned()), ..SearchQuery::default() };
    let found = search(place, &query).map_err(anyhow::Error::from)?;
    let ids = found.flatten().filter_map(|found| Some(found.event().ok()?.id));
    let ids: BTreeSet<Uuid> = ids.filter(|id| id.to_string().ends_with(written)).collect();
    match ids.len() {
        0 | 1 => Ok(ids.first().copied()),
        many => Err(anyhow!("`{written}` matches {many} ids; -o jsonl shows them in full").into()),
    }
}

/// Every entry of a run, one line each.
fn all_of(folder: &Path, all: bool, console: &mut Console) -> Result<Exit, Failure> {
    let run = folder.file_name().unwrap_or_default().to_string_lossy();
    let mut listing = Listing::begin(all, true, None, console)?;
    // Without a network there is no gateway, and no log.
    if holds_a_log(folder) {
        for seen in search(folder, &SearchQuery::default()).map_err(anyhow::Error::from)? {
            match seen {
                Ok(found) => listing.add(&found, console)?,
                Err(skipped) => listing.skip(&skipped, console),
            }
        }
    } else {
        let text = format_args!("{run} had no network, so no gateway and no log");
        console.say_labelled(Tone::Faint, "nothing:", text);
    }
    listing.end(console)
}
