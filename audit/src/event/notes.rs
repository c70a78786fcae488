//! The kinds that are one line: something happened, and that is all of it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::EventBody;
use super::entries::{ConnectionFacts, DnsFacts};
use super::groups::{DecisionRecord, DestinationRecord, Http};
use crate::secret_name::RecordedSecret;
use crate::text::{Name, Text};
use crate::time::Millis;

/// A policy took effect.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PolicyLoaded {
    #[serde(rename = "sluice.policy.hash")]
    pub hash: Name,
    #[serde(rename = "sluice.policy.name", skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    #[serde(rename = "sluice.policy.file", skip_serializing_if = "Option::is_none")]
    pub file: Option<Text>,
    #[serde(rename = "sluice.policy.rules")]
    pub rules: u64,
    /// The policy it replaced.
    #[serde(rename = "sluice.policy.replaced", skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Name>,
}

/// A policy was not taken; the one before it stays.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PolicyRefused {
    #[serde(rename = "sluice.policy.file", skip_serializing_if = "Option::is_none")]
    pub file: Option<Text>,
    #[serde(rename = "sluice.detail")]
    pub detail: Text<4096>,
    #[serde(rename = "sluice.policy.kept", skip_serializing_if = "Option::is_none")]
    pub kept: Option<Name>,
}

/// A request waits for a person, or waits no longer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Hold {
    #[serde(rename = "sluice.hold.state")]
    pub state: HoldState,
    /// The entry that waits.
    #[serde(rename = "sluice.entry")]
    pub entry: Uuid,
    /// Who decided.
    #[serde(rename = "user.name", skip_serializing_if = "Option::is_none", default)]
    pub user: Option<Name>,
    #[serde(rename = "sluice.timing.hold_ms", skip_serializing_if = "Option::is_none", default)]
    pub waited: Option<Millis>,
    #[serde(flatten)]
    pub destination: DestinationRecord,
    #[serde(flatten)]
    pub http: Http,
    #[serde(flatten)]
    pub decision: DecisionRecord,
}

/// Where a hold stands.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldState {
    Abandoned,
    Approved,
    Asked,
    Denied,
    Expired,
}

/// The leak scan saw something. Where and which pattern, never what.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FindingEvent {
    #[serde(rename = "sluice.finding.type")]
    pub sighting: Sighting,
    /// The pattern's name.
    #[serde(rename = "sluice.finding.pattern", skip_serializing_if = "Option::is_none", default)]
    pub pattern: Option<Name>,
    /// Which of our own secrets it was.
    #[serde(rename = "sluice.finding.secret", skip_serializing_if = "Option::is_none", default)]
    pub secret: Option<RecordedSecret>,
    /// `path`, `query`, `body`, or `header:` and its name.
    #[serde(rename = "sluice.finding.location")]
    pub location: Name,
    /// It was stopped, not only seen.
    #[serde(rename = "sluice.finding.stopped")]
    pub stopped: bool,
    /// The entry it was seen in.
    #[serde(rename = "sluice.entry", skip_serializing_if = "Option::is_none", default)]
    pub entry: Option<Uuid>,
    #[serde(flatten)]
    pub destination: DestinationRecord,
    #[serde(flatten)]
    pub decision: DecisionRecord,
}

/// What kind of thing the leak scan saw.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sighting {
    /// A bait value that nothing legitimate would send.
    Canary,
    /// A known token's shape.
    Pattern,
    /// A secret this gateway holds.
    Secret,
}

/// A limit was reached.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct LimitEvent {
    /// `upload`, `requests_per_minute`, `connections` and so on.
    #[serde(rename = "sluice.limit.name")]
    pub name: Name,
    #[serde(rename = "sluice.limit.value")]
    pub value: u64,
    #[serde(rename = "sluice.limit.reached")]
    pub reached: u64,
    #[serde(rename = "sluice.entry", skip_serializing_if = "Option::is_none")]
    pub entry: Option<Uuid>,
    #[serde(flatten)]
    pub destination: DestinationRecord,
}

/// A command starts. Its arguments are in `run.json`, not here.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct RunStarted {
    #[serde(rename = "process.executable.name")]
    pub executable: Name,
    #[serde(rename = "process.args_count", skip_serializing_if = "Option::is_none")]
    pub args: Option<u64>,
    #[serde(rename = "sluice.backend", skip_serializing_if = "Option::is_none")]
    pub backend: Option<Name>,
    #[serde(rename = "container.image.name", skip_serializing_if = "Option::is_none")]
    pub image: Option<Name>,
    #[serde(rename = "user.name", skip_serializing_if = "Option::is_none")]
    pub user: Option<Name>,
    #[serde(rename = "host.name", skip_serializing_if = "Option::is_none")]
    pub host: Option<Name>,
    #[serde(rename = "sluice.policy.hash", skip_serializing_if = "Option::is_none")]
    pub policy: Option<Name>,
    /// Policy is observed, not enforced.
    #[serde(rename = "sluice.observe")]
    pub observe: bool,
}

/// A command ended.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct RunEnded {
    #[serde(rename = "process.exit.code", skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(rename = "sluice.signal", skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why it ended, if not by itself: `timeout`, `out_of_memory` and so on.
    #[serde(rename = "sluice.reason", skip_serializing_if = "Option::is_none")]
    pub reason: Option<Name>,
    #[serde(rename = "sluice.detail", skip_serializing_if = "Option::is_none")]
    pub detail: Option<Text>,
    #[serde(rename = "sluice.timing.total_ms", skip_serializing_if = "Option::is_none")]
    pub total: Option<Millis>,
}

/// A person did something: a control-socket action, `--no-sandbox`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Operator {
    #[serde(rename = "sluice.action")]
    pub action: Name,
    #[serde(rename = "user.name", skip_serializing_if = "Option::is_none")]
    pub user: Option<Name>,
    #[serde(rename = "sluice.accepted")]
    pub accepted: bool,
    #[serde(rename = "sluice.detail", skip_serializing_if = "Option::is_none")]
    pub detail: Option<Text>,
}

/// A line that anyone may add: the kinds of this file, a [`DnsFacts`] question that
/// was answered on the spot, and a [`ConnectionFacts`] that never began.
///
/// What the log says about itself is not among them, so no caller can claim
/// that a log was recovered or closed.
///
/// ```compile_fail
/// use audit::event::{LogClosed, EventBody};
///
/// let forged: audit::event::Note = EventBody::LogClosed(LogClosed::default()).into();
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Note(EventBody);

impl Note {
    /// What it reports.
    pub fn into_what(self) -> EventBody {
        self.0
    }
}

macro_rules! noted {
    ($($kind:ident $type:ident,)*) => {
        $(impl From<$type> for Note {
            fn from(note: $type) -> Self {
                Self(EventBody::$kind(Box::new(note)))
            }
        })*
    };
}

noted! {
    Connection ConnectionFacts,
    Dns DnsFacts,
    Finding FindingEvent,
    Hold Hold,
    Limit LimitEvent,
    Operator Operator,
    PolicyLoaded PolicyLoaded,
    PolicyRefused PolicyRefused,
    RunEnded RunEnded,
    RunStarted RunStarted,
}
