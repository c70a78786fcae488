//! Step 6 of 10: policy on the request.

use policies::Reach;

/// Proof that policy allowed this request. Made only in this file.
#[derive(Clone, Debug)]
#[must_use]
pub struct RequestPermit(Reach);

impl RequestPermit {
    /// Which addresses the destination may resolve to, for this request's rule.
    pub(crate) fn reach(&self) -> &Reach {
        &self.0
    }
}
