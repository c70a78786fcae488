//! One row for each request, out of the several lines that a log has for it.
//!
//! A request over TLS leaves up to four lines: the question for its name, the
//! connection, an `opened` line and the request itself. A table shows the last
//! of these; the others only where nothing else tells of them: a refused name
//! that nobody then connected to, a connection that carried no request, an
//! `opened` line that was never closed.
//!
//! **Invariant:** memory is bounded by what is open and by [`MAX_WAITING`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use audit::event::{ConnectionFacts, EntryOutcome, Handling};
use audit::{Event, EventBody, RunName};
use uuid::Uuid;

/// A name that is asked for is connected to within this time, or not at all.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// More than this is not kept waiting for the sake of one row.
const MAX_WAITING: usize = 10_000;

/// When a line has a row of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum OwnRow {
    Always,
    /// A refused name, unless a row of the same host follows.
    IfNoHostFollows,
    /// An `opened` line, unless its closing line follows.
    IfNotClosed,
    /// A refused connection, unless a row of its refused request came before.
    IfNoRequestToldOfIt,
    Never,
}

fn own_row(what: &EventBody) -> OwnRow {
    match what {
        EventBody::Connection(it) => of_connection(it),
        EventBody::Dns(it) if it.outcome == EntryOutcome::Refused => OwnRow::IfNoHostFollows,
        EventBody::Dns(it) if it.outcome == EntryOutcome::Relayed => OwnRow::Never,
        EventBody::Opened(_) => OwnRow::IfNotClosed,
        EventBody::LogClosed(_) | EventBody::LogStarted(_) | EventBody::SegmentStarted(_) => {
            OwnRow::Never
        }
        // Every run ends so.
        EventBody::Operator(it) if it.accepted && it.action == "drain" => OwnRow::Never,
        EventBody::Dns(_)
        | EventBody::Finding(_)
        | EventBody::Hold(_)
        | EventBody::Limit(_)
        | EventBody::LogResumed(_)
        | EventBody::Operator(_)
        | EventBody::PolicyLoaded(_)
        | EventBody::PolicyRefused(_)
        | EventBody::Recovered(_)
        | EventBody::Request(_)
        | EventBody::RunEnded(_)
        | EventBody::RunStarted(_) => OwnRow::Always,
    }
}

/// A tunnel has no requests to tell of it; a refused request may have been too
/// broken for a record of its own.
fn of_connection(connection: &ConnectionFacts) -> OwnRow {
    let is_tunnel = matches!(connection.handling, Some(Handling::Passthrough | Handling::Tcp));
    let has_requests = connection.requests.is_some_and(|count| count > 0);
    match connection.outcome {
        _ if is_tunnel => OwnRow::Always,
        EntryOutcome::Refused => OwnRow::IfNoRequestToldOfIt,
        EntryOutcome::Abandoned | EntryOutcome::Failed if !has_requests => OwnRow::Always,
        EntryOutcome::Abandoned | EntryOutcome::Failed | EntryOutcome::Relayed => OwnRow::Never,
    }
}

/// Whether a line has a row where nobody knows what follows.
pub(super) fn has_row_now(what: &EventBody) -> bool {
    !matches!(own_row(what), OwnRow::IfNotClosed | OwnRow::Never)
}

/// The rows of one log after the other.
#[derive(Debug, Default)]
pub(super) struct OneRowEach {
    run: Option<RunName>,
    open: BTreeMap<Uuid, Event>,
    /// Open connections with a refused request that has a row.
    refused: BTreeSet<Uuid>,
    /// Rows in order, behind a refused name that waits for its connection.
    waiting: VecDeque<Event>,
}

impl OneRowEach {
    /// Takes the next line; what is certain to have a row comes back.
    pub(super) fn add(&mut self, event: Event) -> Vec<Event> {
        let mut rows = Vec::new();
        if self.run.as_ref() != Some(&event.run) {
            rows = self.end();
            self.run = Some(event.run.clone());
        }
        let told = self.refused.remove(&event.id);
        match own_row(&event.what) {
            OwnRow::Never => {
                self.open.remove(&event.id);
            }
            OwnRow::IfNoRequestToldOfIt if told => {
                self.open.remove(&event.id);
            }
            OwnRow::IfNotClosed => {
                self.open.insert(event.id, event);
            }
            OwnRow::Always | OwnRow::IfNoRequestToldOfIt => {
                self.open.remove(&event.id);
                self.refused.extend(refused_on(&event.what));
                if let Some(host) = host(&event.what) {
                    self.waiting.retain(|waiting| asked_for(&waiting.what) != Some(host));
                }
                self.waiting.push_back(event);
            }
            OwnRow::IfNoHostFollows => self.waiting.push_back(event),
        }
        self.release(&mut rows);
        rows
    }

    /// The log has ended: everything that waited has a row.
    pub(super) fn end(&mut self) -> Vec<Event> {
        let mut rows: Vec<Event> = self.waiting.drain(..).collect();
        let mut open: Vec<Event> = std::mem::take(&mut self.open).into_values().collect();
        open.sort_by_key(|event| event.seq);
        rows.extend(open);
        self.refused.clear();
        rows
    }

    fn release(&mut self, rows: &mut Vec<Event>) {
        let Some(newest) = self.waiting.back().map(|event| event.time) else { return };
        while let Some(first) = self.waiting.front() {
            let waited = newest.timestamp().duration_since(first.time.timestamp());
            let waits = asked_for(&first.what).is_some()
                && waited.unsigned_abs() < MAX_WAIT
                && self.waiting.len() <= MAX_WAITING;
            if waits {
                break;
            }
            rows.extend(self.waiting.pop_front());
        }
    }
}

/// The connection of a refused request.
fn refused_on(what: &EventBody) -> Option<Uuid> {
    match what {
        EventBody::Request(it) if it.outcome == EntryOutcome::Refused => it.connection,
        _ => None,
    }
}

/// The refused name, if this is a question for one.
fn asked_for(what: &EventBody) -> Option<&str> {
    match what {
        EventBody::Dns(it) if it.outcome == EntryOutcome::Refused => {
            it.name.as_ref().map(|name| name.as_str().trim_end_matches('.'))
        }
        _ => None,
    }
}

fn host(what: &EventBody) -> Option<&str> {
    let destination = match what {
        EventBody::Connection(it) => &it.destination,
        EventBody::Request(it) => &it.destination,
        _ => return None,
    };
    destination.host.as_ref().map(|host| host.as_str())
}

#[cfg(test)]
mod tests {
    use audit::event::{DestinationRecord, DnsFacts, LogStarted, OpenedEvent};
    use audit::{Digest, RequestFacts};

    use super::*;

    fn event(second: u32, id: u128, what: EventBody) -> Event {
        Event {
            v: 1,
            seq: u64::from(second),
            time: format!("2026-11-16T10:00:{second:02}Z").parse().unwrap(),
            id: Uuid::from_u128(id),
            run: "run-1".into(),
            what,
            prev: Digest::of(b""),
        }
    }

    fn dns(name: &str, outcome: EntryOutcome) -> EventBody {
        EventBody::Dns(Box::new(DnsFacts {
            name: Some(name.into()),
            outcome,
            ..DnsFacts::default()
        }))
    }

    fn request(host: &str) -> EventBody {
        let destination = DestinationRecord::new(host, 443);
        EventBody::Request(Box::new(RequestFacts { destination, ..RequestFacts::default() }))
    }

    fn connection(host: &str, outcome: EntryOutcome, requests: u64) -> EventBody {
        let destination = DestinationRecord::new(host, 443);
        let requests = Some(requests);
        EventBody::Connection(Box::new(ConnectionFacts {
            destination,
            outcome,
            requests,
            ..ConnectionFacts::default()
        }))
    }

    fn opened() -> EventBody {
        EventBody::Opened(Box::new(OpenedEvent {
            opens: "request".into(),
            ..OpenedEvent::default()
        }))
    }

    /// The ids of the rows, in their order.
    fn rows(events: Vec<Event>) -> Vec<u128> {
        let mut collapsed = OneRowEach::default();
        let mut rows: Vec<Event> =
            events.into_iter().flat_map(|event| collapsed.add(event)).collect();
        rows.extend(collapsed.end());
        rows.iter().map(|event| event.id.as_u128()).collect()
    }

    #[test]
    fn a_request_has_one_row_out_of_four_lines() {
        let lines = vec![
            event(1, 1, EventBody::LogStarted(LogStarted::default())),
            event(2, 2, dns("a.example", EntryOutcome::Relayed)),
            event(3, 3, opened()),
            event(4, 3, request("a.example")),
            event(5, 4, connection("a.example", EntryOutcome::Relayed, 1)),
        ];
        assert_eq!(rows(lines), [3]);
    }

    #[test]
    fn a_refused_host_has_one_row_although_its_name_was_refused_too() {
        let lines = vec![
            event(1, 1, dns("bad.example.", EntryOutcome::Refused)),
            event(1, 2, request("good.example")),
            event(2, 3, connection("bad.example", EntryOutcome::Refused, 0)),
        ];
        assert_eq!(rows(lines), [2, 3]);
    }

    #[test]
    fn a_refused_name_that_nobody_connected_to_has_a_row_in_its_place() {
        let lines = vec![
            event(1, 1, dns("secret.bad.example", EntryOutcome::Refused)),
            event(2, 2, request("good.example")),
            event(9, 3, request("good.example")),
            event(10, 4, dns("last.bad.example", EntryOutcome::Refused)),
        ];
        assert_eq!(rows(lines), [1, 2, 3, 4]);
    }

    #[test]
    fn a_refused_request_has_one_row_although_its_connection_was_refused_too() {
        let mut refused =
            RequestFacts { outcome: EntryOutcome::Refused, ..RequestFacts::default() };
        refused.connection = Some(Uuid::from_u128(2));
        let lines = vec![
            event(1, 1, EventBody::Request(Box::new(refused))),
            event(2, 2, connection("bad.example", EntryOutcome::Refused, 1)),
            event(3, 3, connection("bad.example", EntryOutcome::Refused, 1)),
        ];
        assert_eq!(rows(lines), [1, 3]);
    }

    #[test]
    fn what_was_never_closed_and_what_carried_no_request_has_a_row() {
        let lines = vec![
            event(1, 1, opened()),
            event(2, 2, connection("a.example", EntryOutcome::Failed, 0)),
            event(3, 3, connection("a.example", EntryOutcome::Failed, 2)),
            event(4, 4, connection("a.example", EntryOutcome::Relayed, 0)),
            event(5, 5, connection("a.example", EntryOutcome::Refused, 2)),
        ];
        assert_eq!(rows(lines), [2, 5, 1]);
    }

    #[test]
    fn the_end_of_a_run_releases_what_waits() {
        let mut later = event(1, 3, request("bad.example"));
        later.run = "run-2".into();
        let lines = vec![
            event(1, 1, dns("bad.example", EntryOutcome::Refused)),
            event(1, 2, opened()),
            later,
        ];
        assert_eq!(rows(lines), [1, 2, 3]);
    }
}
