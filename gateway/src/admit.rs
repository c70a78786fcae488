//! Step 3 of 10: policy on the destination.
//!
//! Comes after the opening said whom the connection is for, and before a byte is
//! read or sent on its behalf. What comes out is a [`HostPermit`] and how the
//! connection is to be handled, or a refusal.

use audit::{Handling, Name};
use policies::{Admission, Decision, Destination, Reach};

use crate::gateway::Gateway;
use crate::refuse::{Denial, Refusal};

/// Proof that policy allowed this destination. Made only in this file.
///
/// ```compile_fail
/// // Nobody else can.
/// let forged = gateway::HostPermit(policies::Reach::public());
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use]
pub struct HostPermit(Reach);

impl HostPermit {
    /// Which addresses the destination may resolve to.
    pub(crate) fn reach(&self) -> &Reach {
        &self.0
    }
}

/// A destination that policy lets in.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) permit: HostPermit,
    pub(crate) handling: Handling,
    /// The rule that said so. Where requests are judged, each has its own.
    pub(crate) rule: Option<Name>,
    pub(crate) policy: Name,
}

/// Asks the policy of this moment about a destination.
pub(crate) fn admit(gateway: &Gateway, to: &Destination) -> Result<Admitted, Refusal> {
    let loaded = gateway.policy.load();
    let unseen = |decision: &Decision<'_>| {
        let reach = decision.rule.map(|rule| rule.reach().clone()).unwrap_or_default();
        (HostPermit(reach), decision.rule_id().map(Name::from))
    };
    let (handling, (permit, rule)) = match loaded.policy.admit(to) {
        Admission::Ask(decision) | Admission::Deny(decision) => {
            return Err(Refusal::Policy(Denial::of_host(&decision, to)));
        }
        Admission::Inspect => (Handling::Inspect, (HostPermit(loaded.policy.reach_of(to)), None)),
        Admission::Passthrough(decision) => (Handling::Passthrough, unseen(&decision)),
        Admission::Tcp(decision) => (Handling::Tcp, unseen(&decision)),
    };
    Ok(Admitted { permit, handling, rule, policy: loaded.hash.clone() })
}

impl Admitted {
    /// Whether the policy of this moment would admit it in the same way. A tunnel
    /// cannot be held to new conditions, so any change of its conditions ends it.
    pub(crate) fn check_again(&self, gateway: &Gateway, to: &Destination) -> Result<(), Refusal> {
        let now = admit(gateway, to)?;
        if now.handling == self.handling && now.permit == self.permit {
            return Ok(());
        }
        Err(Refusal::PolicyChanged)
    }
}
