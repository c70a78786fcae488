//! The kinds that a log writes about itself: started, resumed, closed, recovered.
//!
//! Only the writer makes these lines. They are part of the chain like any other,
//! so a reader can tell a crash that was recovered from a log that was cut.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::text::{Name, Text};
use crate::time::Millis;

/// A writer took the log over. The first line of every log, and one more each
/// time a log is opened again.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct LogStarted {
    /// The program that writes, with its version.
    #[serde(rename = "sluice.writer")]
    pub writer: Name,
    /// The line the earlier writer ended with; none in a new log.
    #[serde(rename = "sluice.log.previous.seq", skip_serializing_if = "Option::is_none")]
    pub previous_seq: Option<u64>,
    /// Whether the earlier writer closed the log. If not, it crashed or was killed.
    #[serde(rename = "sluice.log.previous.closed", skip_serializing_if = "Option::is_none")]
    pub previous_closed: Option<bool>,
    /// Names that lead to an address by an operator's word, as `NAME=ADDRESS`.
    #[serde(rename = "sluice.upstream.pins", skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<Name>,
    /// Files of authorities that upstreams are believed by, as `FILE=SHA256`.
    #[serde(rename = "sluice.upstream.roots", skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<Name>,
    /// What becomes of attempts that find no listener: `recorded`, or `not_seen` where
    /// nobody could see them.
    #[serde(rename = "sluice.unanswered", skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<Name>,
    #[serde(flatten)]
    pub origin: LogOrigin,
}

/// Who started what a log records, where, and for what.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct LogOrigin {
    #[serde(rename = "user.name", skip_serializing_if = "Option::is_none")]
    pub user: Option<Name>,
    #[serde(rename = "host.name", skip_serializing_if = "Option::is_none")]
    pub host: Option<Name>,
    /// The directory that the sandbox works on.
    #[serde(rename = "sluice.project", skip_serializing_if = "Option::is_none")]
    pub project: Option<Text>,
    #[serde(rename = "sluice.backend", skip_serializing_if = "Option::is_none")]
    pub backend: Option<Name>,
    /// Version of the program that started it.
    #[serde(rename = "sluice.version", skip_serializing_if = "Option::is_none")]
    pub version: Option<Name>,
}

/// The log goes on in this file. The first line of every segment but the first.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SegmentStarted {
    /// The file that was finished.
    #[serde(rename = "sluice.segment.previous")]
    pub previous: Text<64>,
    /// Digest of that whole file, newline at its end included.
    #[serde(rename = "sluice.segment.previous.sha256")]
    pub previous_sha256: Digest,
}

/// A line that a crash had left unfinished was cut off.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Recovered {
    #[serde(rename = "sluice.recovered.bytes")]
    pub bytes: u64,
    #[serde(rename = "sluice.recovered.sha256")]
    pub sha256: Digest,
}

/// The disk had no room for a while, and nothing passed meanwhile. No line is
/// missing: what had begun before was kept and is written.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct LogResumed {
    /// How long that was.
    #[serde(rename = "sluice.log.paused_ms")]
    pub paused: Millis,
    /// How many records could not be begun, and what they were for did not pass.
    #[serde(rename = "sluice.log.refused")]
    pub refused: u64,
    /// What the disk said.
    #[serde(rename = "error.message")]
    pub why: Text<1024>,
}

/// The writer ended in order: every entry was closed before this line.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct LogClosed {
    /// How many lines this writer wrote, this one included.
    #[serde(rename = "sluice.log.lines")]
    pub lines: u64,
}
