//! What policy answers, and why.

use std::fmt;

use crate::capability::BodyCheck;
use crate::rule::{Rule, Shape};

/// The three answers, from the strictest to the widest.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Verdict {
    Deny,
    Ask,
    Allow,
}

impl Verdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why the answer is what it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reason {
    /// The network is off: there is nothing to decide.
    NetworkOff,
    /// No rule matches.
    NoRule,
    /// The decision's rule matched.
    Rule,
}

impl Reason {
    /// Stable and documented: agents and reports branch on it.
    pub fn code(self, verdict: Verdict) -> &'static str {
        match (self, verdict) {
            (Self::NetworkOff, _) => "network_off",
            (Self::NoRule, _) => "no_rule",
            (Self::Rule, Verdict::Allow) => "allowed",
            (Self::Rule, Verdict::Ask) => "not_approved",
            (Self::Rule, Verdict::Deny) => "denied",
        }
    }
}

/// One answer. It borrows the rule that made it, so "why?" has an answer.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Decision<'p> {
    pub verdict: Verdict,
    pub rule: Option<&'p Rule>,
    pub reason: Reason,
    pub(crate) shape: Option<&'p Shape>,
}

impl<'p> Decision<'p> {
    pub(crate) const NO_RULE: Self =
        Self { verdict: Verdict::Deny, rule: None, reason: Reason::NoRule, shape: None };

    pub(crate) const NETWORK_OFF: Self =
        Self { verdict: Verdict::Deny, rule: None, reason: Reason::NetworkOff, shape: None };

    pub(crate) fn by(rule: &'p Rule, shape: &'p Shape) -> Self {
        let (verdict, reason) = (rule.verdict(), Reason::Rule);
        Self { verdict, rule: Some(rule), reason, shape: Some(shape) }
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

    /// Whether observing lets the request pass: it was denied only because
    /// nobody had said anything about it.
    pub fn yields_to_observing(&self) -> bool {
        self.reason == Reason::NoRule
    }
}

/// `deny: net.deny[0]`, or `deny: no rule matches`.
impl fmt::Display for Decision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let because = match (self.reason, self.rule) {
            (Reason::NetworkOff, _) => "the network is off",
            (Reason::Rule, Some(rule)) => rule.id(),
            (Reason::NoRule | Reason::Rule, _) => "no rule matches",
        };
        write!(f, "{}: {because}", self.verdict)
    }
}
