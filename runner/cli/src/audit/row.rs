//! One event in one line, for a person.
//!
//! The columns are those of a request. Other kinds say what they are where a
//! request says its method, and put into the same columns what they have.
//! Whatever came from outside is made harmless here: a path cannot fake a row.
//!
//! On a terminal a row is as wide as the terminal, so times, runs and ids are
//! short there and what is least asked for is left out first. Elsewhere every
//! column is whole.

use std::fmt;

use audit::event::{DecisionRecord, DestinationRecord, EntryOutcome, Http, TrafficRecord};
use audit::{Event, EventBody, VerdictRecord};
use files::printable::Printable;

use crate::console::{Console, Tone};

/// A longer path is cut: `show` has the whole.
const MAX_TARGET_CHARS: usize = 100;
/// A terminal with fewer columns shows no bytes, or no ids.
const MIN_COLUMNS_FOR_BYTES: usize = 110;
const MIN_COLUMNS_FOR_IDS: usize = 90;
/// Less than this of a target says nothing: rather a row that is too wide.
const MIN_TARGET_CHARS: usize = 12;
/// So many characters of an id's end are shown; `show` takes them.
pub(super) const SHORT_ID_CHARS: usize = 8;

/// How rows are laid out.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct RowLayout {
    /// The terminal's; nothing where rows may be as long as they like.
    columns: Option<usize>,
    /// All rows are of one run, which therefore need not be named.
    one_run: bool,
}

impl RowLayout {
    pub(super) fn new(console: &Console, one_run: bool) -> Self {
        Self { columns: console.columns(), one_run }
    }
}

/// The line above the rows.
pub(super) fn heading(layout: RowLayout, console: &Console) -> String {
    let heading = EventRow {
        time: "TIME".to_owned(),
        run: "RUN".to_owned(),
        verdict: "VERDICT".to_owned(),
        what: "METHOD".to_owned(),
        target: "TARGET".to_owned(),
        status: "STATUS".to_owned(),
        rule: "RULE".to_owned(),
        reason: "REASON".to_owned(),
        bytes: "SENT/RECEIVED".to_owned(),
        id: "ID".to_owned(),
    };
    console.toned(Tone::Faint, heading.laid_out(layout))
}

/// One event's line.
pub(super) fn of(event: &Event, layout: RowLayout, console: &Console) -> String {
    let row = EventRow::of(event).laid_out(layout);
    match verdict_of(&event.what) {
        Some(VerdictRecord::Deny) => console.toned(Tone::Bad, row),
        Some(VerdictRecord::Ask | VerdictRecord::WouldDeny) => console.toned(Tone::Warn, row),
        Some(VerdictRecord::Allow) | None => row,
    }
}

#[derive(Debug, Default)]
struct EventRow {
    time: String,
    run: String,
    verdict: String,
    what: String,
    target: String,
    status: String,
    rule: String,
    reason: String,
    bytes: String,
    id: String,
}

impl EventRow {
    fn of(event: &Event) -> Self {
        let row = Self {
            time: format!("{:.3}", event.time.timestamp()),
            run: event.run.to_string(),
            verdict: verdict_of(&event.what).map_or("", VerdictRecord::as_str).to_owned(),
            what: event.what.kind().to_string(),
            id: event.id.to_string(),
            ..Self::default()
        };
        match &event.what {
            EventBody::Connection(it) => {
                row.to(&it.destination).by(&it.decision).moved(&it.traffic)
            }
            EventBody::Dns(it) => {
                // A refused name is answered all the same, with our own address: whoever
                // connects then is told why it is refused.
                let status = match it.outcome {
                    EntryOutcome::Refused => it.outcome.as_str().to_owned(),
                    EntryOutcome::Abandoned | EntryOutcome::Failed | EntryOutcome::Relayed => {
                        text(&it.response)
                    }
                };
                Self { target: text(&it.name), status, ..row.by(&it.decision) }
            }
            EventBody::Finding(it) => Self {
                reason: text(&it.pattern),
                status: if it.stopped { "stopped".to_owned() } else { "seen".to_owned() },
                ..row.to(&it.destination).by(&it.decision)
            },
            EventBody::Hold(it) => Self {
                status: format!("{:?}", it.state).to_lowercase(),
                ..row.asks(&it.http, &it.destination).by(&it.decision)
            },
            EventBody::Limit(it) => Self {
                reason: it.name.to_string(),
                status: format!("{}/{}", it.reached, it.value),
                ..row.to(&it.destination)
            },
            EventBody::LogClosed(it) => Self { target: format!("{} lines", it.lines), ..row },
            EventBody::LogResumed(it) => Self {
                target: format!(
                    "after {:.1} s without room, {} refused",
                    it.paused.as_f64() / 1000.0,
                    it.refused
                ),
                ..row
            },
            EventBody::LogStarted(it) => Self { target: it.writer.to_string(), ..row },
            EventBody::Opened(it) => Self {
                status: "opened".to_owned(),
                ..row.asks(&it.http, &it.destination).by(&it.decision)
            },
            EventBody::Operator(it) => Self {
                target: it.action.to_string(),
                status: if it.accepted { "done".to_owned() } else { "refused".to_owned() },
                reason: text(&it.user),
                ..row
            },
            EventBody::PolicyLoaded(it) => Self {
                target: it.name.as_ref().unwrap_or(&it.hash).to_string(),
                status: format!("{} rules", it.rules),
                ..row
            },
            EventBody::PolicyRefused(it) => Self {
                target: text(&it.file),
                reason: cut(it.detail.as_str(), MAX_TARGET_CHARS),
                ..row
            },
            EventBody::Recovered(it) => {
                Self { target: format!("{} bytes cut off", it.bytes), ..row }
            }
            EventBody::Request(it) => Self {
                status: match it.http.status {
                    Some(status) => status.to_string(),
                    None => it.outcome.as_str().to_owned(),
                },
                ..row.asks(&it.http, &it.destination).by(&it.decision).moved(&it.traffic)
            },
            EventBody::RunEnded(it) => Self {
                status: it.exit_code.map(|code| format!("exit {code}")).unwrap_or_default(),
                reason: text(&it.reason),
                ..row
            },
            EventBody::RunStarted(it) => Self { target: it.executable.to_string(), ..row },
            EventBody::SegmentStarted(it) => Self { target: it.previous.to_string(), ..row },
        }
    }

    fn to(self, destination: &DestinationRecord) -> Self {
        Self { target: place(destination, 443), ..self }
    }

    fn asks(self, http: &Http, destination: &DestinationRecord) -> Self {
        let mut target = match &http.scheme {
            Some(scheme) if scheme == "http" => format!("http://{}", place(destination, 80)),
            Some(_) | None => place(destination, 443),
        };
        let path = text(&http.path);
        // What is no path must not look like a part of the host.
        if !path.starts_with('/') && !path.is_empty() {
            target.push(' ');
        }
        target.push_str(&path);
        if let Some(query) = &http.query {
            target.push_str(&format!("?{query}"));
        }
        let what = http.method.as_ref().map_or(self.what, ToString::to_string);
        Self { target, what, ..self }
    }

    fn by(self, decision: &DecisionRecord) -> Self {
        Self { rule: text(&decision.rule), reason: text(&decision.reason), ..self }
    }

    fn moved(self, traffic: &TrafficRecord) -> Self {
        Self { bytes: format!("{}/{}", traffic.sent, traffic.received), ..self }
    }

    fn laid_out(&self, layout: RowLayout) -> String {
        match layout.columns {
            Some(columns) => self.fitted(columns, layout.one_run),
            None => self.to_string(),
        }
    }

    /// As wide as a terminal; the target takes what the others leave.
    fn fitted(&self, columns: usize, one_run: bool) -> String {
        // `2026-11-16T10:00:00.123Z` without year and fractions.
        let time = match self.time.get(5..19) {
            Some(time) => time.replace('T', " "),
            None => self.time.clone(),
        };
        let run = if one_run { "" } else { self.run.rsplit('-').next().unwrap_or_default() };
        let answer = match (self.verdict.as_str(), self.status.as_str()) {
            (verdict, "") => verdict.to_owned(),
            ("", status) => status.to_owned(),
            // The heading says one word for both.
            (verdict, "STATUS") => verdict.to_owned(),
            (verdict, status) => format!("{verdict} {status}"),
        };
        let why = if self.rule.is_empty() { &self.reason } else { &self.rule };
        let bytes = if columns < MIN_COLUMNS_FOR_BYTES { "" } else { &self.bytes };
        let from = self.id.len().saturating_sub(SHORT_ID_CHARS);
        let id = if columns < MIN_COLUMNS_FOR_IDS { "" } else { self.id.get(from..).unwrap_or("") };
        let has_bytes = columns >= MIN_COLUMNS_FOR_BYTES;
        let has_id = columns >= MIN_COLUMNS_FOR_IDS;
        let before = cells(&[
            (&time, 14, true),
            (run, 6, !one_run),
            (&answer, 10, true),
            (&self.what, 7, true),
        ]);
        let after = cells(&[(why, 16, true), (bytes, 13, has_bytes), (id, SHORT_ID_CHARS, has_id)]);
        let left = columns.saturating_sub(before.chars().count() + after.chars().count() + 2);
        let room = left.max(MIN_TARGET_CHARS);
        let target = Printable(&self.target).to_string();
        let target = cut(if target.is_empty() { "-" } else { &target }, room);
        format!("{before}{target:room$}  {after}").trim_end().to_owned()
    }
}

/// Cells of at least these widths, two blanks after each.
fn cells(cells: &[(&str, usize, bool)]) -> String {
    let shown = cells.iter().filter(|(_, _, is_shown)| *is_shown);
    shown.fold(String::new(), |row, (text, width, _)| {
        let text = if text.is_empty() { "-".to_owned() } else { Printable(text).to_string() };
        format!("{row}{text:width$}  ")
    })
}

impl fmt::Display for EventRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = [
            (&self.time, 24),
            (&self.run, 22),
            (&self.verdict, 7),
            (&self.what, 15),
            (&cut(&self.target, MAX_TARGET_CHARS), 44),
            (&self.status, 8),
            (&self.rule, 18),
            (&self.reason, 12),
            (&self.bytes, 13),
        ];
        for (text, width) in columns {
            let shown = if text.is_empty() { "-".to_owned() } else { Printable(text).to_string() };
            write!(f, "{shown:width$}  ")?;
        }
        write!(f, "{}", self.id)
    }
}

fn verdict_of(what: &EventBody) -> Option<VerdictRecord> {
    match what {
        EventBody::Connection(it) => it.decision.verdict,
        EventBody::Dns(it) => it.decision.verdict,
        EventBody::Finding(it) => it.decision.verdict,
        EventBody::Hold(it) => it.decision.verdict,
        EventBody::Opened(it) => it.decision.verdict,
        EventBody::Request(it) => it.decision.verdict,
        EventBody::Limit(_)
        | EventBody::LogClosed(_)
        | EventBody::LogResumed(_)
        | EventBody::LogStarted(_)
        | EventBody::Operator(_)
        | EventBody::PolicyLoaded(_)
        | EventBody::PolicyRefused(_)
        | EventBody::Recovered(_)
        | EventBody::RunEnded(_)
        | EventBody::RunStarted(_)
        | EventBody::SegmentStarted(_) => None,
    }
}

/// The host, and the port unless it is the usual one.
fn place(destination: &DestinationRecord, usual: u16) -> String {
    let port = destination.port.filter(|port| *port != usual);
    text(&destination.host) + &port.map(|port| format!(":{port}")).unwrap_or_default()
}

fn text(written: &Option<impl fmt::Display>) -> String {
    written.as_ref().map(ToString::to_string).unwrap_or_default()
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(3)).collect();
    format!("{kept}...")
}

#[cfg(test)]
mod tests {
    use audit::RequestFacts;
    use expect_test::expect;

    use super::*;

    fn row(name: &str) -> String {
        let file = format!("{}/../../audit/testdata/v1/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
        let line = std::fs::read(file).unwrap();
        EventRow::of(&audit::line::read(line.trim_ascii_end()).unwrap()).to_string()
    }

    #[test]
    fn every_kind_has_a_row() {
        let rows: Vec<String> =
            audit::EventKind::ALL.iter().map(|kind| row(kind.as_str())).collect();
        expect![[r#"
            2026-03-01T09:30:00.123Z  run-7f3a                allow    connection       api.github.com                                -         allow[1]            rule          1200/34567     01950000-0000-7000-8000-000000000042
            2026-03-01T09:30:00.123Z  run-7f3a                -        dns              api.github.com                                NOERROR   -                   -             -              01950000-0000-7000-8000-000000000042
            2026-03-01T09:30:00.123Z  run-7f3a                deny     finding          api.github.com                                stopped   allow[1]            injected      -              01950000-0000-7000-8000-000000000042
            2026-03-01T09:30:00.123Z  run-7f3a                ask      POST             api.github.com/repos/acme/widgets/issues?state=open&q=café  approved  allow[1]            rule          -              01950000-0000-7000-8000-000000000042
            2026-03-01T09:30:00.123Z  run-7f3a                -        limit            api.github.com                                601/600   -                   requests_per_minute  -              01950000-0000-7000-8000-000000000042
            2026-03-01T09:30:00.123Z  run-7f3a                -        log_closed       42 lines                                      -         -                   -             -              01950000-0000-7000-8000-000000000042
            2026-03-01T09:30:00.123Z  run-7f3a                -        log_resumed      after 61.2 s without room, 17 refused         -         -                   -             -              01950000-0000-7000-8000-000000000042
            2026-03-01T09:30:00.123Z  run-7f3a                -        log_started      sluice-gateway 0.1.0                          -         -                   -             -              01950000-0000-7000-8000-000000000042
            2026-03-01T09:30:00.123Z  run-7f3a                allow    POST             api.github.com/repos/acme/widgets/issues?state=open&q=café  opened    allow[1]            rule          -              01950000-0000-7000-8000-000000000042
            2026-03-01T09:30:00.123Z  run-7f3a                -        operator         no_sandbox                                    done      -                   ada           -              01950000-0000-7000-8000-000000000042
            2026-03-01T09:30:00.123Z  run-7f3a                -        policy_loaded    widgets-agent                                 12 rules  -                   -             -              01950000-0000-7000-8000-000000000042
            2026-03-01T09:30:00.123Z  run-7f3a                -        policy_refused   sandbox.policy.yaml                           -         -                   3:5: unknown field `alow`; write `allow`  -              01950000-0000-7000-8000-000000000042
            2026-03-01T09:30:00.123Z  run-7f3a                -        recovered        113 bytes cut off                             -         -                   -             -              01950000-0000-7000-8000-000000000042
            2026-03-01T09:30:00.123Z  run-7f3a                allow    POST             api.github.com/repos/acme/widgets/issues?state=open&q=café  201       allow[1]            rule          512/2048       01950000-0000-7000-8000-000000000042
            2026-03-01T09:30:00.123Z  run-7f3a                -        run_ended        -                                             exit 137  -                   timeout       -              01950000-0000-7000-8000-000000000042
            2026-03-01T09:30:00.123Z  run-7f3a                -        run_started      python3                                       -         -                   -             -              01950000-0000-7000-8000-000000000042
            2026-03-01T09:30:00.123Z  run-7f3a                -        segment_started  audit.000001.jsonl                            -         -                   -             -              01950000-0000-7000-8000-000000000042"#]].assert_eq(&rows.join("\n"));
    }

    #[test]
    fn a_row_is_as_wide_as_the_terminal() {
        let row = |columns, one_run| {
            let file =
                format!("{}/../../audit/testdata/v1/request.jsonl", env!("CARGO_MANIFEST_DIR"));
            let line = std::fs::read(file).unwrap();
            let event = audit::line::read(line.trim_ascii_end()).unwrap();
            EventRow::of(&event).laid_out(RowLayout { columns: Some(columns), one_run })
        };
        let rows = [row(120, false), row(100, false), row(80, false), row(80, true)];
        for (row, columns) in rows.iter().zip([120, 100, 80, 80]) {
            assert!(row.chars().count() <= columns, "{row}");
        }
        expect![[r#"
            03-01 09:30:00  7f3a    allow 201   POST     api.github.com/repos/acme/w...  allow[1]          512/2048       00000042
            03-01 09:30:00  7f3a    allow 201   POST     api.github.com/repos/a...  allow[1]          00000042
            03-01 09:30:00  7f3a    allow 201   POST     api.github.c...  allow[1]
            03-01 09:30:00  allow 201   POST     api.github.com/repos...  allow[1]"#]].assert_eq(&rows.join("\n"));
    }

    #[test]
    fn a_refused_name_does_not_look_answered() {
        let response = Some("NOERROR".into());
        let dns = audit::DnsFacts {
            response,
            outcome: EntryOutcome::Refused,
            ..audit::DnsFacts::default()
        };
        let event = audit::Event {
            v: 1,
            seq: 1,
            time: "2026-11-16T10:00:00Z".parse().unwrap(),
            id: uuid::Uuid::nil(),
            run: "run-1".into(),
            what: EventBody::Dns(Box::new(dns)),
            prev: audit::Digest::of(b""),
        };
        assert_eq!(EventRow::of(&event).status, "refused");
    }

    #[test]
    fn a_target_says_what_is_not_usual() {
        let target = |scheme: &'static str, port, path: &str| {
            let mut request = RequestFacts::default();
            request.http.scheme = Some(scheme.into());
            request.http.path = Some(path.into());
            request.destination.host = Some("a.example".into());
            request.destination.port = Some(port);
            EventRow::default().asks(&request.http, &request.destination).target
        };
        assert_eq!(target("https", 443, "/x"), "a.example/x");
        assert_eq!(target("https", 80, "/x"), "a.example:80/x");
        assert_eq!(target("http", 80, "/x"), "http://a.example/x");
        assert_eq!(target("http", 443, "/x"), "http://a.example:443/x");
        assert_eq!(target("http", 8080, "/x"), "http://a.example:8080/x");
        assert_eq!(target("https", 443, "http://b.example/"), "a.example http://b.example/");
        assert_eq!(target("https", 443, "*"), "a.example *");
    }

    #[test]
    fn a_path_cannot_fake_a_row_or_talk_to_the_terminal() {
        let mut request = RequestFacts::default();
        request.http.path = Some("/a\n2026  run-x  allow\u{1b}[2K\u{202e}".into());
        request.destination.host = Some("h\u{9b}31m.example".into());
        let row = EventRow::default().asks(&request.http, &request.destination).to_string();
        assert!(!row.chars().any(char::is_control) && !row.contains('\u{202e}'), "{row:?}");
        assert!(row.contains(r"h\u{9b}31m.example/a\n2026  run-x"), "{row}");
    }
}
