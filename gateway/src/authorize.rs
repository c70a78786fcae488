//! Step 6 of 10: policy on the request.
//!
//! [`authorize`] is the only way to a [`RequestPermit`], and it takes the request's
//! open entry: what is not recorded is not permitted. `ConnectionContext::authorize`
//! leads there, for HTTP/1.1 and HTTP/2 alike.

use audit::{Entry, Name, Text, VerdictRecord};
use policies::{Decision, Mode, Policy, PolicyQuestion, Reach};

use crate::denial::Denial;
use crate::policy_cell::LoadedPolicy;

/// Proof that policy allowed this request. Made only in this file.
///
/// ```compile_fail
/// // Nobody else can.
/// let forged = gateway::RequestPermit(policies::Reach::public());
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct RequestPermit(Reach);

impl RequestPermit {
    /// Which addresses the destination may resolve to, for this request's rule.
    pub(crate) fn reach(&self) -> &Reach {
        &self.0
    }

    #[cfg(test)]
    pub(crate) fn for_test(reach: Reach) -> Self {
        Self(reach)
    }
}

/// Asks policy about a request, and notes the answer in its entry. Gives the
/// answer's code as well.
pub(crate) fn authorize(
    entry: &mut Entry<audit::RequestFacts>,
    loaded: &LoadedPolicy,
    question: &PolicyQuestion<'_>,
) -> Result<(RequestPermit, &'static str), Denial> {
    let granted = grant(&loaded.policy, question);
    entry.timing.decide = Some(entry.begun().elapsed().into());
    let decision = &mut entry.decision;
    decision.policy = Some(loaded.hash.clone());
    let Grant { permit, verdict, rule, reason } = granted?;
    decision.verdict = Some(verdict);
    decision.rule = rule;
    decision.reason = Some(Text::constant(reason));
    Ok((permit, reason))
}

/// Whether a policy would still allow a request that is under way.
pub(crate) fn reconsider(policy: &Policy, question: &PolicyQuestion<'_>) -> Result<(), Denial> {
    grant(policy, question).map(drop)
}

/// What policy said, without borrowing it.
struct Grant {
    permit: RequestPermit,
    verdict: VerdictRecord,
    rule: Option<Name>,
    reason: &'static str,
}

fn grant(policy: &Policy, question: &PolicyQuestion<'_>) -> Result<Grant, Denial> {
    let decision = policy.decide(question);
    match decision.verdict {
        policies::Verdict::Allow => allowed(&decision),
        policies::Verdict::Deny if decision.is_unmatched() && policy.net.mode == Mode::Observe => {
            Ok(Grant {
                permit: RequestPermit(Reach::public()),
                verdict: VerdictRecord::WouldDeny,
                rule: None,
                reason: decision.code(),
            })
        }
        policies::Verdict::Ask | policies::Verdict::Deny => {
            Err(Denial::of_request(&decision, question))
        }
    }
}

fn allowed(decision: &Decision<'_>) -> Result<Grant, Denial> {
    let rule = decision.rule_id().map(Name::from);
    if let (Some(lacking), Some(rule)) = (decision.not_done_yet(), &rule) {
        return Err(Denial::not_done_yet(lacking, rule.clone()));
    }
    let reach = decision.rule.map(|rule| rule.reach().clone()).unwrap_or_default();
    let permit = RequestPermit(reach);
    Ok(Grant { permit, verdict: VerdictRecord::Allow, rule, reason: decision.code() })
}
