//! `sluice audit export`: events for other programs.

use std::cell::RefCell;

use audit::export::ExportFormat;
use clap::Args;

use super::filters::Filters;
use super::logs::Logs;
use super::search::say_skipped;
use crate::console::{Console, output_failed};
use crate::exit::{Exit, Failure};

/// Export events for other programs.
#[derive(Debug, Args)]
#[command(
    long_about = "Export events for other programs.

  jsonl  the lines as they are
  csv    one row an event, with a header
  ocsf   Open Cybersecurity Schema Framework, one object a line
  har    HTTP Archive 1.2: requests alone",
    after_help = "Example:
  sluice audit export --format ocsf --since 1d > events.ocsf.jsonl

Exit codes: 0 all written, 1 a log is missing or some line could not be read."
)]
pub(super) struct Export {
    /// The format: jsonl, csv, ocsf or har.
    #[arg(long, value_name = "FORM", default_value = "jsonl", env = "SLUICE_AUDIT_FORMAT")]
    format: ExportFormat,
    #[command(flatten)]
    logs: Logs,
    #[command(flatten)]
    filters: Filters,
}

pub(super) fn run(asked: &Export, console: &mut Console) -> Result<Exit, Failure> {
    let found = asked.logs.search(&asked.filters, None)?;
    // Told afterwards: stdout is being written while they are met.
    let skipped = RefCell::new(Vec::new());
    let events = found.filter_map(|seen| match seen {
        Ok(found) => Some(found),
        Err(unreadable) => {
            let mut skipped = skipped.borrow_mut();
            if skipped.len() < MAX_REPORTED_LINES {
                skipped.push(unreadable);
            }
            None
        }
    });
    let exported =
        audit::export::export(asked.format, events, console.out()).map_err(output_failed)?;
    let skipped = skipped.into_inner();
    skipped.iter().for_each(|unreadable| say_skipped(unreadable, console));
    let audit::export::Exported { written, left_out, unreadable } = exported;
    console.say(format_args!("{written} written, {left_out} left out, {unreadable} unreadable"));
    Ok(if skipped.is_empty() && unreadable == 0 { Exit::Success } else { Exit::Failed })
}

/// Enough to see what is going on.
const MAX_REPORTED_LINES: usize = 20;
