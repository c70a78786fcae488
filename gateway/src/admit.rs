//! Step 3 of 10: policy on the destination.
//!
//! Comes after the opening named the destination, and before a byte is read or
//! sent on its behalf. What comes out is a [`HostPermit`] and how the
//! connection is to be handled, or a [`Denial`]; and the host is counted among those
//! that the sandbox has reached.

use audit::{Handling, Name};
use policies::{Admission, Decision, Destination, Reach};

use crate::denial::Denial;
use crate::limits::{GatewayLimits, HostCount, LimitReached};
use crate::policy_cell::{LoadedPolicy, PolicyCell};

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

    #[cfg(test)]
    pub(crate) fn for_test(reach: Reach) -> Self {
        Self(reach)
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
    /// What the host was sent, on all connections.
    pub(crate) host: HostCount,
}

/// Why nothing may be sent to a destination.
#[derive(Debug)]
pub(crate) enum NotAdmitted {
    BudgetSpent(LimitReached),
    Denied(Denial),
}

/// Asks the policy of this moment about a destination, and counts its host.
pub(crate) fn admit(
    policy: &PolicyCell,
    limits: &GatewayLimits,
    to: &Destination,
) -> Result<Admitted, NotAdmitted> {
    let loaded = policy.load();
    let HostAnswer { permit, handling, rule } = ask(&loaded, to).map_err(NotAdmitted::Denied)?;
    let chosen = loaded.policy.chosen_name_bytes(to);
    let host = limits.reach(&to.host, chosen).map_err(NotAdmitted::BudgetSpent)?;
    Ok(Admitted { permit, handling, rule, policy: loaded.hash.clone(), host })
}

/// What a policy says of a destination that it lets in.
struct HostAnswer {
    permit: HostPermit,
    handling: Handling,
    rule: Option<Name>,
}

fn ask(loaded: &LoadedPolicy, to: &Destination) -> Result<HostAnswer, Denial> {
    let unseen = |decision: &Decision<'_>| {
        let reach = decision.rule.map(|rule| rule.reach().clone()).unwrap_or_default();
        (HostPermit(reach), decision.rule_id().map(Name::from))
    };
    let (handling, (permit, rule)) = match loaded.policy.admit(to) {
        Admission::Ask(decision) | Admission::Deny(decision) => {
            return Err(Denial::of_host(&decision, to));
        }
        Admission::Inspect => (Handling::Inspect, (HostPermit(loaded.policy.reach_of(to)), None)),
        Admission::Passthrough(decision) => (Handling::Passthrough, unseen(&decision)),
        Admission::Tcp(decision) => (Handling::Tcp, unseen(&decision)),
    };
    Ok(HostAnswer { permit, handling, rule })
}

impl Admitted {
    /// Whether the policy of this moment would admit it in the same way. A tunnel
    /// cannot be held to new conditions, so any change of its conditions ends it.
    pub(crate) fn still_holds(
        &self,
        policy: &PolicyCell,
        to: &Destination,
    ) -> Result<bool, Denial> {
        let now = ask(&policy.load(), to)?;
        Ok(now.handling == self.handling && now.permit == self.permit)
    }
}

#[cfg(test)]
mod tests {
    use policies::{NoFiles, Source};

    use super::*;
    use crate::testing::Stage;

    const PRIVATE: &str = "version: 1\nnet:\n  enabled: true\n  allow:\n    \
        - {host: inside.test, addresses: [10.1.0.0/16]}\n    \
        - {host: inside.test, paths: [/b], addresses: [10.2.0.0/16]}\n    \
        - {name: database, host: db.test, port: 5432, protocol: tcp, addresses: [10.3.0.0/16]}\n  \
        passthrough:\n    - {name: sealed, host: sealed.test, addresses: [10.4.0.0/16]}\n";

    fn admitted(stage: &Stage, to: &str) -> (Handling, Vec<String>, Option<Name>) {
        let Admitted { permit, handling, rule, .. } =
            admit(&stage.gateway.policy, &stage.gateway.limits, &Destination::parse(to).unwrap())
                .unwrap();
        let ranges = permit.reach().ranges().iter().map(|range| range.net().to_string());
        (handling, ranges.collect(), rule)
    }

    #[tokio::test]
    async fn a_permit_holds_the_private_ranges_of_the_rules_that_made_it() {
        let stage = Stage::new(PRIVATE);
        let ranges = |ranges: &[&str]| ranges.iter().map(|range| range.to_string()).collect();
        assert_eq!(
            admitted(&stage, "inside.test:443"),
            (Handling::Inspect, ranges(&["10.1.0.0/16", "10.2.0.0/16"]), None)
        );
        assert_eq!(
            admitted(&stage, "db.test:5432"),
            (Handling::Tcp, ranges(&["10.3.0.0/16"]), Some("database".into()))
        );
        assert_eq!(
            admitted(&stage, "sealed.test:443"),
            (Handling::Passthrough, ranges(&["10.4.0.0/16"]), Some("sealed".into()))
        );
    }

    #[tokio::test]
    async fn a_tunnel_ends_when_its_ranges_or_its_handling_change() {
        for (changed, stays) in [
            (PRIVATE.to_owned(), true),
            (PRIVATE.replace("10.3.0.0/16", "10.9.0.0/16"), false),
            (PRIVATE.replace("port: 5432, protocol: tcp", "port: 5432"), false),
            (PRIVATE.replace("db.test", "other.test"), false),
        ] {
            let stage = Stage::new(PRIVATE);
            let to = Destination::parse("db.test:5432").unwrap();
            let admitted = admit(&stage.gateway.policy, &stage.gateway.limits, &to).unwrap();
            let policy = policies::read(&Source::new("new.yaml", changed.as_str()), &NoFiles);
            stage.gateway.load_policy(policy.unwrap(), "new");
            let holds = matches!(admitted.still_holds(&stage.gateway.policy, &to), Ok(true));
            assert_eq!(holds, stays, "{changed}");
        }
    }
}
