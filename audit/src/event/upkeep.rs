//! What a log says about itself.
//!
//! Only the writer makes these lines. They are part of the chain like any other,
//! so a reader can tell a crash that was recovered from a log that was cut.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::text::{Name, Text};

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

/// The writer ended in order: every entry was closed before this line.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct LogClosed {
    /// How many lines this writer wrote, this one included.
    #[serde(rename = "sluice.log.lines")]
    pub lines: u64,
}
