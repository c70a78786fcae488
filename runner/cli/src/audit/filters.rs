//! Which events a verb shows.

use audit::search::{HostFilter, SearchQuery, StatusFilter};
use audit::{EventKind, Time, VerdictRecord};
use clap::Args;
use jiff::Timestamp;
use policies::{Size, Span};

use crate::runs::Origins;

/// An event is shown when it fits every filter.
#[derive(Debug, Args)]
#[command(next_help_heading = "Filters")]
pub(super) struct Filters {
    /// From this time: `2026-11-16T10:00:00Z`, `2026-11-16`, or `2h` for two hours ago.
    #[arg(long, value_name = "TIME", value_parser = time, env = "SLUICE_AUDIT_SINCE")]
    since: Option<Time>,
    /// Before this time.
    #[arg(long, value_name = "TIME", value_parser = time, env = "SLUICE_AUDIT_UNTIL")]
    until: Option<Time>,
    /// For this host; `*.example.com` for all its subdomains.
    #[arg(long, value_name = "HOST", env = "SLUICE_AUDIT_HOST")]
    host: Option<HostFilter>,
    /// With this verdict: allow, ask, deny or would_deny.
    #[arg(long, value_name = "VERDICT", value_parser = verdict, env = "SLUICE_AUDIT_VERDICT")]
    verdict: Option<VerdictRecord>,
    /// Decided by this rule.
    #[arg(long, value_name = "RULE", env = "SLUICE_AUDIT_RULE")]
    rule: Option<String>,
    /// For this reason, such as no_rule.
    #[arg(long, value_name = "CODE", env = "SLUICE_AUDIT_REASON")]
    reason: Option<String>,
    /// With this method, such as POST.
    #[arg(long, value_name = "METHOD", env = "SLUICE_AUDIT_METHOD")]
    method: Option<String>,
    /// Answered with this status: `404`, or `4xx`.
    #[arg(long, value_name = "STATUS", env = "SLUICE_AUDIT_STATUS")]
    status: Option<StatusFilter>,
    /// Of this kind, such as request or dns; may be given several times.
    #[arg(long, value_name = "KIND", env = "SLUICE_AUDIT_KIND")]
    kind: Vec<EventKind>,
    /// At least this much sent, such as 1MiB.
    #[arg(long, value_name = "SIZE", value_parser = Size::parse, env = "SLUICE_AUDIT_MIN_SENT")]
    min_sent: Option<Size>,
    /// At least this much received.
    #[arg(long, value_name = "SIZE", value_parser = Size::parse, env = "SLUICE_AUDIT_MIN_RECEIVED")]
    min_received: Option<Size>,
    #[command(flatten)]
    pub(super) origins: Origins,
}

impl Filters {
    /// Whether somebody asked for kinds of events by name.
    pub(super) fn names_kinds(&self) -> bool {
        !self.kind.is_empty()
    }

    pub(super) fn query(&self, text: Option<&str>) -> SearchQuery {
        SearchQuery {
            since: self.since,
            until: self.until,
            host: self.host.clone(),
            verdict: self.verdict,
            rule: self.rule.clone(),
            reason: self.reason.clone(),
            method: self.method.clone(),
            status: self.status,
            kinds: self.kind.clone(),
            min_sent: self.min_sent.map(Size::bytes),
            min_received: self.min_received.map(Size::bytes),
            text: text.map(str::to_owned),
            ..SearchQuery::default()
        }
    }
}

fn verdict(written: &str) -> Result<VerdictRecord, String> {
    let all =
        [VerdictRecord::Allow, VerdictRecord::Ask, VerdictRecord::Deny, VerdictRecord::WouldDeny];
    let found = all.into_iter().find(|verdict| verdict.as_str() == written);
    found.ok_or_else(|| "write allow, ask, deny or would_deny".to_owned())
}

fn time(written: &str) -> Result<Time, String> {
    time_at(Timestamp::now(), written)
}

/// A moment, the beginning of a day in UTC, or so long before `now`.
fn time_at(now: Timestamp, written: &str) -> Result<Time, String> {
    if let Ok(time) = written.parse::<Time>() {
        return Ok(time);
    }
    if let Ok(time) = format!("{written}T00:00:00Z").parse::<Time>() {
        return Ok(time);
    }
    let long_ago = Span::parse(written).ok().and_then(|span| now.checked_sub(span.get()).ok());
    long_ago.map(Time::from).ok_or_else(|| {
        "write a time such as 2026-11-16T10:00:00Z, a day such as 2026-11-16, or 2h for two hours ago"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_moment_a_day_or_so_long_ago() {
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        let read = |written| time_at(now, written).map(|time| time.to_string());
        assert_eq!(read("2026-11-16T10:00:00+01:00").unwrap(), "2026-11-16T09:00:00.000000Z");
        assert_eq!(read("2026-11-15").unwrap(), "2026-11-15T00:00:00.000000Z");
        assert_eq!(read("1h30m").unwrap(), "2026-11-16T10:30:00.000000Z");
        assert_eq!(read("7d").unwrap(), "2026-11-09T12:00:00.000000Z");
        for wrong in ["yesterday", "", "10", "-2h", "2026-13-01"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
