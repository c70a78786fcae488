//! The chain of lines: each names the digest of the one before.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

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
