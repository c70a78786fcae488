//! Events for other programs: JSONL, CSV, OCSF and HAR.
//!
//! Every writer streams: it takes one event at a time and keeps none. What a
//! format has no room for is left out and counted, never squeezed in; what OCSF
//! has no name for goes into its `unmapped`. As in the log itself, whatever is
//! not printable ASCII is spelled out, so an export is as harmless to a terminal
//! as the log is.

mod csv;
mod fields;
mod har;
mod ocsf;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::str::FromStr;

use crate::search::FoundEvent;
use crate::text::Text;
use fields::EventFields;

/// What events can be exported as.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ExportFormat {
    /// RFC 4180 with a header, one row an event, all kinds.
    Csv,
    /// HTTP Archive 1.2: requests, for the tools that draw waterfalls.
    Har,
    /// The lines as they are.
    Jsonl,
    /// Open Cybersecurity Schema Framework, one object a line: HTTP, DNS and
    /// network activity, and detection findings.
    Ocsf,
}

/// The text names no format.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is not an export format; write one of: csv, har, jsonl, ocsf")]
pub struct NotAFormat(Text<64>);

impl FromStr for ExportFormat {
    type Err = NotAFormat;

    fn from_str(written: &str) -> Result<Self, NotAFormat> {
        match written {
            "csv" => Ok(Self::Csv),
            "har" => Ok(Self::Har),
            "jsonl" => Ok(Self::Jsonl),
            "ocsf" => Ok(Self::Ocsf),
            _ => Err(NotAFormat(written.into())),
        }
    }
}

/// What became of the events.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Exported {
    pub written: u64,
    /// Of a kind the format has no room for.
    pub left_out: u64,
    /// Lines that could not be read as events.
    pub unreadable: u64,
}

/// Writes `events` to `out`.
///
/// ```no_run
/// use audit::export::{ExportFormat, export};
/// use audit::search::{SearchQuery, search};
///
/// let found = search("state".as_ref(), &SearchQuery::default())?.filter_map(Result::ok);
/// let exported = export(ExportFormat::Csv, found, &mut std::io::stdout().lock())?;
/// assert_eq!(exported.left_out, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn export(
    format: ExportFormat,
    events: impl Iterator<Item = FoundEvent>,
    out: &mut impl Write,
) -> io::Result<Exported> {
    let mut exported = Exported::default();
    let mut buffer = Vec::new();
    prologue(format, &mut buffer);
    for found in events {
        let Some(fields) = EventFields::read(&found) else {
            exported.unreadable += 1;
            continue;
        };
        let first = exported.written == 0;
        let put = match format {
            ExportFormat::Csv => csv::row(&fields, &mut buffer),
            ExportFormat::Har => har::entry(fields, first, &mut buffer),
            ExportFormat::Jsonl => jsonl(&found, &mut buffer),
            ExportFormat::Ocsf => ocsf::event(fields, &mut buffer),
        };
        match put {
            ExportOutcome::LeftOut => exported.left_out += 1,
            ExportOutcome::Written => exported.written += 1,
        }
        out.write_all(&buffer)?;
        buffer.clear();
    }
    epilogue(format, &mut buffer);
    out.write_all(&buffer)?;
    out.flush()?;
    Ok(exported)
}

/// Whether a format had room for an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ExportOutcome {
    LeftOut,
    Written,
}

fn prologue(format: ExportFormat, out: &mut Vec<u8>) {
    match format {
        ExportFormat::Csv => csv::header(out),
        ExportFormat::Har => har::prologue(out),
        ExportFormat::Jsonl | ExportFormat::Ocsf => {}
    }
}

fn epilogue(format: ExportFormat, out: &mut Vec<u8>) {
    match format {
        ExportFormat::Har => har::epilogue(out),
        ExportFormat::Csv | ExportFormat::Jsonl | ExportFormat::Ocsf => {}
    }
}

fn jsonl(found: &FoundEvent, out: &mut Vec<u8>) -> ExportOutcome {
    out.extend_from_slice(found.line().as_bytes());
    out.push(b'\n');
    ExportOutcome::Written
}
