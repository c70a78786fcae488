//! `sluice audit summary`: whom the runs talked to, and how much.

use std::collections::BTreeMap;

use audit::event::EntryOutcome;
use audit::{Event, EventBody, VerdictRecord};
use clap::Args;
use files::printable::Printable;
use serde::Serialize;

use super::filters::Filters;
use super::logs::Logs;
use super::one_row::OneRowEach;
use super::search::say_skipped;
use crate::amounts::short_size;
use crate::console::{Console, Format, Tone};
use crate::exit::{Exit, Failure};

/// Show totals for each host: requests, refusals, bytes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sluice audit summary --run last
  sluice audit summary --since 7d -o json

Counts what the rows of `sluice audit search` show: a request counts once.
Exit codes: 0 shown, 1 a log is missing or some line could not be read.")]
pub(super) struct Summary {
    #[command(flatten)]
    logs: Logs,
    #[command(flatten)]
    filters: Filters,
}

/// What is added up for one host.
#[derive(Debug, Default, Serialize)]
pub(crate) struct HostTotals {
    pub(crate) host: String,
    /// Requests and tunnels that policy allowed, or let pass while observing.
    pub(crate) allowed: u64,
    pub(crate) refused: u64,
    /// Allowed, and then something broke.
    pub(crate) failed: u64,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) runs: u64,
    /// Why it was refused, the most frequent first.
    pub(crate) reasons: Vec<String>,
    #[serde(skip)]
    last_run: Option<audit::RunName>,
    #[serde(skip)]
    counted_reasons: BTreeMap<String, u64>,
}

pub(super) fn run(asked: &Summary, console: &mut Console) -> Result<Exit, Failure> {
    let found = asked.logs.search(&asked.filters, None)?;
    let mut exit = Exit::Success;
    let events = found.filter_map(|seen| match seen.map(|found| found.event()) {
        Ok(Ok(event)) => Some(event),
        // One that fits and cannot be read is told by `search` with its place.
        Ok(Err(_)) => {
            exit = Exit::Failed;
            None
        }
        Err(skipped) => {
            say_skipped(&skipped, console);
            exit = Exit::Failed;
            None
        }
    });
    let totals = totals_of(events);
    show(&totals, console)?;
    Ok(exit)
}

/// Totals of what these lines of a log are about.
pub(crate) fn totals_of(events: impl Iterator<Item = Event>) -> Vec<HostTotals> {
    let mut totals = Totals::default();
    let mut rows = OneRowEach::default();
    for event in events {
        totals.add_all(&rows.add(event));
    }
    totals.add_all(&rows.end());
    totals.sorted()
}

/// Totals of many hosts, being added up.
#[derive(Debug, Default)]
struct Totals(BTreeMap<String, HostTotals>);

impl Totals {
    fn add_all(&mut self, rows: &[Event]) {
        rows.iter().for_each(|event| self.add(event));
    }

    fn add(&mut self, event: &Event) {
        let (host, decision, outcome, traffic) = match &event.what {
            EventBody::Connection(it) => (
                it.destination.host.as_ref().map(ToString::to_string),
                &it.decision,
                it.outcome,
                Some(&it.traffic),
            ),
            EventBody::Dns(it) => {
                (it.name.as_ref().map(ToString::to_string), &it.decision, it.outcome, None)
            }
            EventBody::Request(it) => (
                it.destination.host.as_ref().map(ToString::to_string),
                &it.decision,
                it.outcome,
                Some(&it.traffic),
            ),
            _ => return,
        };
        let host =
            host.map_or_else(|| "(no name)".to_owned(), |it| it.trim_end_matches('.').to_owned());
        let totals = self
            .0
            .entry(host.clone())
            .or_insert_with(|| HostTotals { host, ..HostTotals::default() });
        let is_refused = outcome == EntryOutcome::Refused
            || matches!(decision.verdict, Some(VerdictRecord::Deny | VerdictRecord::Ask));
        match (is_refused, outcome) {
            (true, _) => {
                totals.refused += 1;
                let reason = decision.reason.as_ref().map_or("refused", |reason| reason.as_str());
                *totals.counted_reasons.entry(reason.to_owned()).or_default() += 1;
            }
            (false, EntryOutcome::Failed | EntryOutcome::Abandoned) => totals.failed += 1,
            (false, EntryOutcome::Relayed | EntryOutcome::Refused) => totals.allowed += 1,
        }
        totals.sent += traffic.map_or(0, |traffic| traffic.sent);
        totals.received += traffic.map_or(0, |traffic| traffic.received);
        if totals.last_run.as_ref() != Some(&event.run) {
            totals.last_run = Some(event.run.clone());
            totals.runs += 1;
        }
    }

    /// Refused hosts first, then by what was sent: that is what a reviewer looks for.
    fn sorted(self) -> Vec<HostTotals> {
        let mut all: Vec<HostTotals> = self.0.into_values().collect();
        for totals in &mut all {
            let mut reasons: Vec<_> =
                std::mem::take(&mut totals.counted_reasons).into_iter().collect();
            reasons.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
            totals.reasons = reasons.into_iter().map(|(reason, _)| reason).collect();
        }
        all.sort_by(|a, b| {
            let key = |it: &HostTotals| (it.refused > 0, it.refused, it.sent);
            key(b).cmp(&key(a)).then(a.host.cmp(&b.host))
        });
        all
    }
}

fn show(totals: &[HostTotals], console: &mut Console) -> Result<(), Failure> {
    if console.format != Format::Table {
        return console.json_list(totals);
    }
    if totals.is_empty() {
        console.say("no requests were recorded");
        return Ok(());
    }
    let widest = console.columns().map_or(60, |columns| columns.saturating_sub(62).clamp(20, 60));
    let width = totals.iter().map(|it| it.host.chars().count()).max().unwrap_or(0).clamp(4, widest);
    let heading = format!(
        "{:width$}  {:>7}  {:>7}  {:>6}  {:>9}  {:>9}  REFUSED FOR",
        "HOST", "ALLOWED", "REFUSED", "FAILED", "SENT", "RECEIVED"
    );
    console.line(console.toned(Tone::Faint, heading))?;
    for it in totals {
        let reasons = if it.reasons.is_empty() { "-".to_owned() } else { it.reasons.join(", ") };
        let row = format!(
            "{:width$}  {:>7}  {:>7}  {:>6}  {:>9}  {:>9}  {}",
            shortened(&it.host, width),
            it.allowed,
            it.refused,
            it.failed,
            short_size(it.sent),
            short_size(it.received),
            Printable(&reasons),
        );
        let row = if it.refused > 0 { console.toned(Tone::Bad, row) } else { row };
        console.line(row)?;
    }
    Ok(())
}

/// The end of a long name says more than its beginning.
fn shortened(host: &str, most: usize) -> String {
    let shown = Printable(host).to_string();
    let count = shown.chars().count();
    if count <= most {
        return shown;
    }
    let kept: String = shown.chars().skip(count - most.saturating_sub(3)).collect();
    format!("...{kept}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_keeps_its_end() {
        assert_eq!(shortened("a.example", 9), "a.example");
        assert_eq!(shortened("secret.secret.evil.example", 15), "...evil.example");
    }
}
