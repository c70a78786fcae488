//! What the audit log says.
//!
//! Reads the lines as anyone would who was handed the file: the field names here
//! are the format. A record is written when its subject has ended, a moment after
//! a client has its answer, so questions wait for what they ask about.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::deadline::until;

/// The log of one gateway.
#[derive(Debug)]
pub struct Evidence {
    folder: PathBuf,
    /// Refusals that a test has asked about, by their place in the log.
    claimed: Mutex<Vec<(u64, Refused)>>,
}

/// What a refusal was about.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Refused {
    host: String,
    code: String,
}

impl Evidence {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, claimed: Mutex::default() }
    }

    /// Every line so far.
    pub fn events(&self) -> Vec<Value> {
        let Ok(found) = audit::search::search(&self.folder, &audit::search::SearchQuery::default())
        else {
            return Vec::new();
        };
        found.map(|found| serde_json::from_str(found.unwrap().line()).unwrap()).collect()
    }

    /// Closing lines of one kind: `request`, `connection` or `dns`.
    pub fn of_kind(&self, kind: &str) -> Vec<Value> {
        self.events().into_iter().filter(|event| event["kind"] == kind).collect()
    }

    /// Waits for the first line that fits.
    #[track_caller]
    pub fn find(&self, what: &str, fits: impl Fn(&Value) -> bool) -> impl Future<Output = Value> {
        until(what, move || self.events().into_iter().find(&fits))
    }

    /// Waits for the record of a refusal that was not asked about before. It is
    /// the request's if there was one, else the connection's.
    #[track_caller]
    pub fn refused(&self, host: &str, code: &str) -> impl Future<Output = Value> {
        let what = format!("a record that `{host}` was refused with `{code}`");
        let (host, code) = (host.to_owned(), code.to_owned());
        until(&what, move || {
            let mut claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
            let (refused, event) =
                refusals(self.events()).into_iter().find(|(refused, event)| {
                    refused.host == host
                        && refused.code == code
                        && !claimed.iter().any(|(seq, _)| event["seq"] == *seq)
                })?;
            claimed.push((event["seq"].as_u64()?, refused));
            Some(event)
        })
    }

    /// Asserts, once the gateway has ended, that the log is whole and that
    /// everything in it ended exactly once.
    #[track_caller]
    pub fn assert_whole(&self) {
        self.assert_closed_once();
        for event in self.events() {
            assert_ne!(event["sluice.outcome"], "abandoned", "nobody ended it: {event}");
        }
        self.assert_no_refusal_was_recorded_twice();
    }

    /// The same for a gateway that had to cut what did not end.
    #[track_caller]
    pub fn assert_closed_once(&self) {
        let verified = audit::verify(&self.folder, &[]).unwrap_or_else(|err| panic!("{err}"));
        let log = verified.log.unwrap();
        assert!(log.closed, "the log was not closed");
        assert_eq!(log.recovered, 0);
        assert_eq!(log.unclosed, 0, "something was opened and never closed");

        let mut closed = HashSet::new();
        for event in self.events() {
            if matches!(event["kind"].as_str(), Some("connection" | "dns" | "request")) {
                let id = event["id"].as_str().unwrap().to_owned();
                assert!(closed.insert(id), "closed twice: {event}");
            }
        }
    }

    #[track_caller]
    fn assert_no_refusal_was_recorded_twice(&self) {
        let claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts: BTreeMap<&Refused, (usize, usize)> = BTreeMap::new();
        for (_, refused) in claimed.iter() {
            counts.entry(refused).or_default().0 += 1;
        }
        for (refused, _) in &refusals(self.events()) {
            if let Some(count) = counts.get_mut(refused) {
                count.1 += 1;
            }
        }
        for (refused, (expected, recorded)) in counts {
            assert_eq!(recorded, expected, "recorded more often than it happened: {refused:?}");
        }
    }
}

/// Everything that did not go through, once: a request, or a connection that
/// was refused without one.
fn refusals(events: Vec<Value>) -> Vec<(Refused, Value)> {
    let ended = |event: &&Value, kind: &str| {
        let outcome = event["sluice.outcome"].as_str();
        event["kind"] == kind && matches!(outcome, Some("failed" | "refused"))
    };
    let requests = events.iter().filter(|event| ended(event, "request"));
    let told: HashSet<&str> =
        requests.clone().filter_map(|request| request["sluice.connection"].as_str()).collect();
    let connections = events.iter().filter(|event| ended(event, "connection"));
    let untold =
        connections.filter(|event| event["id"].as_str().is_none_or(|id| !told.contains(id)));
    let read = |event: &Value| {
        let host = event["server.address"].as_str().unwrap_or_default().to_owned();
        (Refused { host, code: code(event).to_owned() }, event.clone())
    };
    requests.clone().chain(untold).map(read).collect()
}

/// Why something was refused or failed: policy's reason, or what went wrong.
pub fn code(event: &Value) -> &str {
    let failure = event["error.type"].as_str();
    failure.or(event["sluice.reason"].as_str()).unwrap_or_default()
}
