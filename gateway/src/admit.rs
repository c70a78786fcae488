//! Step 3 of 10: policy on the destination.

use policies::Reach;

/// Proof that policy allowed this destination. Made only in this file.
#[derive(Clone, Debug)]
#[must_use]
pub struct HostPermit(Reach);

impl HostPermit {
    /// Which addresses the destination may resolve to.
    pub(crate) fn reach(&self) -> &Reach {
        &self.0
    }
}
