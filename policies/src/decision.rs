//! What policy answers, and why.

use std::fmt;

use crate::rule::{BodyCheck, Rule, Shape};
use crate::verdict::Verdict;

/// Why the answer is what it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reason {
    /// The network is off: there is nothing to decide.
    NetworkOff,
    /// No rule matches.
    NoRule,
    /// Servers could read it in several ways, and rules allow those with another
    /// secret, to other addresses or after another check.
    TermsDiffer,
    /// The decision's rule matched.
    Rule,
}

impl Reason {
    /// Stable and documented: agents and reports branch on it.
    pub fn code(self, verdict: Verdict) -> &'static str {
        match (self, verdict) {
            (Self::NetworkOff, _) => "network_off",
            (Self::NoRule, _) => "no_rule",
            (Self::TermsDiffer, _) => "terms_differ",
            (Self::Rule, Verdict::Allow) => "allowed",
            (Self::Rule, Verdict::Ask) => "not_approved",
            (Self::Rule, Verdict::Deny) => "denied",
        }
    }
}

/// What a rule may ask for and no gateway can do yet. The gateway refuses such a
/// request: it never carries out part of an allow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NotDoneYet {
    /// Bodies are not looked into.
    Body,
    /// Secrets are not put into requests.
    Secret,
}

impl NotDoneYet {
    /// As refusals name it.
    pub fn code(self) -> &'static str {
        match self {
            Self::Body => "body_not_checkable",
            Self::Secret => "secret_unavailable",
        }
    }

    /// In a sentence.
    pub fn why(self) -> &'static str {
        match self {
            Self::Body => "bodies are not looked into yet, so the gateway refuses it",
            Self::Secret => "secrets are not put into requests yet, so the gateway refuses it",
        }
    }
}

/// One answer, with the rule that decided.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Decision<'p> {
    pub verdict: Verdict,
    pub rule: Option<&'p Rule>,
    pub reason: Reason,
    pub(crate) shape: Option<&'p Shape>,
    /// Some reading of the request must wait for a person or go out with a secret, so
    /// observe mode does not let it pass as it is.
    pub(crate) restricted: bool,
}

impl<'p> Decision<'p> {
    pub(crate) const NO_RULE: Self = Self {
        verdict: Verdict::Deny,
        rule: None,
        reason: Reason::NoRule,
        shape: None,
        restricted: false,
    };

    pub(crate) const NETWORK_OFF: Self = Self { reason: Reason::NetworkOff, ..Self::NO_RULE };

    pub(crate) const TERMS_DIFFER: Self = Self { reason: Reason::TermsDiffer, ..Self::NO_RULE };

    pub(crate) fn by(rule: &'p Rule, shape: &'p Shape) -> Self {
        let (verdict, reason) = (rule.verdict(), Reason::Rule);
        Self {
            verdict,
            rule: Some(rule),
            reason,
            shape: Some(shape),
            restricted: verdict == Verdict::Ask || rule.secret().is_some(),
        }
    }

    /// Stable and documented: agents and reports branch on it.
    pub fn code(&self) -> &'static str {
        self.reason.code(self.verdict)
    }

    /// The rule's name in reports, if a rule decided.
    pub fn rule_id(&self) -> Option<&'p str> {
        self.rule.map(Rule::id)
    }

    /// What must be found in the body before the request may go out.
    pub fn body_check(&self) -> Option<&'p BodyCheck> {
        self.shape.and_then(|shape| shape.body_check.as_ref())
    }

    /// What makes the gateway refuse a request that this allows, if anything does.
    pub fn not_done_yet(&self) -> Option<NotDoneYet> {
        let rule = self.rule.filter(|_| self.verdict == Verdict::Allow)?;
        if rule.secret().is_some() {
            return Some(NotDoneYet::Secret);
        }
        self.body_check().map(|_| NotDoneYet::Body)
    }

    /// Whether it was denied only because no rule matches. Observe mode lets such
    /// requests pass.
    pub fn is_unmatched(&self) -> bool {
        self.reason == Reason::NoRule && !self.restricted
    }

    /// The stricter of the answers to two readings of one request. A rule that
    /// denies is stricter than no rule, because observe mode lets the latter pass.
    pub(crate) fn or_stricter(self, other: Self) -> Self {
        let rank = |decision: &Self| (decision.verdict, decision.reason == Reason::NoRule);
        let stricter = if rank(&other) < rank(&self) { other } else { self };
        Self { restricted: self.restricted || other.restricted, ..stricter }
    }

    /// The answer to a request that a server may read in two ways: the stricter
    /// answer, or a denial if both allow it on different terms.
    pub(crate) fn for_either(self, other: Self) -> Self {
        let strictest = self.or_stricter(other);
        if strictest.verdict == Verdict::Allow && !self.has_same_terms_as(&other) {
            return Self::TERMS_DIFFER;
        }
        strictest
    }

    /// Whether both answers send the request with the same secret, to the same
    /// addresses, after the same check of its body.
    pub(crate) fn has_same_terms_as(&self, other: &Self) -> bool {
        let body_check = match (self.body_check(), other.body_check()) {
            (None, None) => true,
            (Some(one), Some(other)) => std::ptr::eq(one, other),
            (None, Some(_)) | (Some(_), None) => false,
        };
        let secret = |decision: &Self| decision.rule.and_then(Rule::secret);
        let reach = |decision: &Self| decision.rule.map(Rule::reach);
        body_check && secret(self) == secret(other) && reach(self) == reach(other)
    }
}

/// `deny: net.deny[0]`, or `deny: no rule matches`.
impl fmt::Display for Decision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let because = match (self.reason, self.rule) {
            (Reason::NetworkOff, _) => "the network is off",
            (Reason::Rule, Some(rule)) => rule.id(),
            (Reason::TermsDiffer, _) => "rules allow it on different terms",
            (Reason::NoRule | Reason::Rule, _) => "no rule matches",
        };
        write!(f, "{}: {because}", self.verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Agents and reports branch on these words.
    #[test]
    fn every_reason_has_its_documented_code() {
        for verdict in [Verdict::Allow, Verdict::Ask, Verdict::Deny] {
            assert_eq!(Reason::NetworkOff.code(verdict), "network_off");
            assert_eq!(Reason::NoRule.code(verdict), "no_rule");
            assert_eq!(Reason::TermsDiffer.code(verdict), "terms_differ");
        }
        assert_eq!(Reason::Rule.code(Verdict::Allow), "allowed");
        assert_eq!(Reason::Rule.code(Verdict::Ask), "not_approved");
        assert_eq!(Reason::Rule.code(Verdict::Deny), "denied");
        assert_eq!(Decision::NO_RULE.code(), "no_rule");
        assert_eq!(Decision::NETWORK_OFF.code(), "network_off");
    }
}
