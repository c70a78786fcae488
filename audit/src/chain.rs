//! The chain of lines: each names the digest of the one before.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::event::FORMAT;
use crate::line::{LineError, describe};

/// The last line of a log: what the next one must name.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ChainHead {
    /// Its `seq`; 0 before the first line.
    pub seq: u64,
    /// The digest of its exact bytes, without the newline.
    pub hash: Digest,
}

impl ChainHead {
    /// Before the first line.
    pub const START: Self = Self { seq: 0, hash: Digest::ZERO };

    /// The head once `line`, given without its newline, has been appended.
    pub(crate) fn after(self, line: &[u8]) -> Self {
        Self { seq: self.seq + 1, hash: Digest::of(line) }
    }
}

/// The fields of a line that the chain needs. They are the same for every kind, so an
/// older program can check a newer one's log.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(crate) struct ChainLink {
    v: u32,
    pub(crate) seq: u64,
    pub(crate) id: uuid::Uuid,
    pub(crate) kind: String,
    #[serde(rename = "sluice.segment.previous")]
    pub(crate) previous_segment: Option<String>,
    #[serde(rename = "sluice.segment.previous.sha256")]
    pub(crate) previous_segment_sha256: Option<Digest>,
    pub(crate) prev: Digest,
}

impl ChainLink {
    pub(crate) fn read(line: &[u8]) -> Result<Self, LineError> {
        let link: Self = serde_json::from_slice(line)
            .map_err(|err| LineError::NotAnEvent { why: describe(&err) })?;
        if link.v != FORMAT {
            return Err(LineError::Version { found: link.v });
        }
        Ok(link)
    }
}
