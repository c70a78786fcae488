//! The audit log's vocabulary.
//!
//! These types *are* the log's format, version 1: a field added here is a field
//! someone will parse, so names are chosen once. Where OpenTelemetry's semantic
//! conventions have a name we use it (`http.request.method`, `server.address`),
//! else the Elastic Common Schema's, from which they grow (`dns.response_code`);
//! ours begin with `sluice.`.
//!
//! What is absent matters as much. There is no field for a header's value, a
//! body, a URL with its user part, or a command's arguments: those are where
//! credentials travel. A secret appears by its [`RecordedSecret`]. Queries are
//! recorded, because a reviewer cannot judge an exfiltration without them; the
//! gateway replaces placeholders only after the record has its copy.
//!
//! [`groups`] has the facts that several kinds share, [`entries`] the kinds that
//! are opened and closed, [`notes`] those that are one line, [`log_events`] what the
//! log says about itself.

pub mod entries;
pub mod groups;
pub mod log_events;
pub mod notes;

#[cfg(test)]
pub(crate) mod golden;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::digest::Digest;
use crate::text::Text;
use crate::time::Time;
pub use entries::{ConnectionFacts, DnsFacts, EntryFacts, EntryOutcome, OpenedEvent, RequestFacts};
pub use groups::{
    ClientRecord, DecisionRecord, DestinationRecord, FailureRecord, Handling, Http, NegotiatedTls,
    NotAVerdict, PeerRecord, Timing, TrafficRecord, VerdictRecord, WayIn,
};
pub use log_events::{LogClosed, LogOrigin, LogResumed, LogStarted, Recovered, SegmentStarted};
pub use notes::{
    FindingEvent, Hold, HoldState, LimitEvent, Note, Operator, PolicyLoaded, PolicyRefused,
    RunEnded, RunStarted, Sighting,
};

#[cfg(doc)]
use crate::secret_name::RecordedSecret;

/// The version of the format these types describe.
pub const FORMAT: u32 = 1;

/// A run's name.
pub type RunName = Text<128>;

/// One line of the log.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Event {
    /// [`FORMAT`].
    pub v: u32,
    /// Counts up by one per log, from 1; a gap means a lost line.
    pub seq: u64,
    /// When it happened. Lines are in the order they were handed over, so two
    /// neighbours may be a few microseconds out of order.
    pub time: Time,
    /// The entry's id. An `opened` line and its closing line share it.
    pub id: Uuid,
    pub run: RunName,
    #[serde(flatten)]
    pub what: EventBody,
    /// Digest of the exact bytes of the line before, without its newline.
    pub prev: Digest,
}

/// What a line reports: its `kind`, and the fields that belong to it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EventBody {
    Connection(Box<ConnectionFacts>),
    Dns(Box<DnsFacts>),
    Finding(Box<FindingEvent>),
    Hold(Box<Hold>),
    Limit(Box<LimitEvent>),
    LogClosed(LogClosed),
    LogResumed(Box<LogResumed>),
    LogStarted(LogStarted),
    Opened(Box<OpenedEvent>),
    Operator(Box<Operator>),
    PolicyLoaded(Box<PolicyLoaded>),
    PolicyRefused(Box<PolicyRefused>),
    Recovered(Recovered),
    Request(Box<RequestFacts>),
    RunEnded(Box<RunEnded>),
    RunStarted(Box<RunStarted>),
    SegmentStarted(SegmentStarted),
}

macro_rules! kinds {
    ($($kind:ident $name:literal,)*) => {
        /// The kinds of line, as the field `kind` spells them.
        #[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum EventKind {
            $($kind,)*
        }

        impl EventKind {
            /// Every kind, in alphabetical order.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// The name in the log.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }

        impl EventBody {
            /// Which kind this is.
            pub fn kind(&self) -> EventKind {
                match self {
                    $(Self::$kind(_) => EventKind::$kind,)*
                }
            }
        }
    };
}

kinds! {
    Connection "connection",
    Dns "dns",
    Finding "finding",
    Hold "hold",
    Limit "limit",
    LogClosed "log_closed",
    LogResumed "log_resumed",
    LogStarted "log_started",
    Opened "opened",
    Operator "operator",
    PolicyLoaded "policy_loaded",
    PolicyRefused "policy_refused",
    Recovered "recovered",
    Request "request",
    RunEnded "run_ended",
    RunStarted "run_started",
    SegmentStarted "segment_started",
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The text names no kind of line.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{written}` is not a kind of event; write one of: {}", spelled_out())]
pub struct NotAKind {
    written: Text<64>,
}

fn spelled_out() -> String {
    let names: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
    names.join(", ")
}

impl FromStr for EventKind {
    type Err = NotAKind;

    fn from_str(written: &str) -> Result<Self, NotAKind> {
        let named = Self::ALL.iter().find(|kind| kind.as_str() == written);
        named.copied().ok_or_else(|| NotAKind { written: written.into() })
    }
}
