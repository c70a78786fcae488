//! Answers one question: may this sandbox send this request?
//!
//! Deciding is pure. It borrows compiled rules and a [`PolicyQuestion`], reads no
//! clock and no network, and cannot fail: whatever it would not understand was
//! refused when the policy was read.
//!
//! **Invariant:** any deny beats any ask beats any allow, and when no rule
//! matches the answer is deny. The order of rules in the file says nothing; it
//! only settles which of several equal rules is named in the report.
//!
//! **Invariant:** where servers could read a request in several ways (its path,
//! a method that a header overrides), every reading is judged as though it were
//! the request, and the strictest answer counts: denied if any reading is, held
//! for a person if any is, allowed only if all are.
//!
//! **Invariant:** where a rule with a secret matches, no allow without it decides:
//! the request goes out with that secret, or after a person's word, or not at all.

use std::collections::{BTreeMap, BTreeSet};

use crate::authority::{Destination, Host};
use crate::decision::Decision;
use crate::host_pattern::HostPattern;
use crate::index::{HostRules, Index, PathReading, ShapeId, shape_at};
use crate::question::PolicyQuestion;
use crate::reach::Reach;
use crate::rule::{Carries, Mismatch, Rule, Shape};
use crate::verdict::Verdict;

/// What policy says of a destination, before anything is known of a request.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub enum Admission<'p> {
    /// A person must say yes before any byte is relayed.
    Ask(Decision<'p>),
    /// No request to this destination can be allowed.
    Deny(Decision<'p>),
    /// TLS is opened and each request judged.
    Inspect,
    /// TLS is relayed unopened.
    Passthrough(Decision<'p>),
    /// Bytes are relayed without inspection.
    Tcp(Decision<'p>),
}

/// How surely a request has to match a rule.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Match {
    /// In every way a server could read it. Required of rules that let requests pass.
    Exact,
    /// In some way a server could read it. Enough for rules that hold requests back.
    Possible,
}

impl Match {
    /// The verdict whose rules are compared in this way.
    fn verdict(self) -> Verdict {
        match self {
            Self::Exact => Verdict::Allow,
            Self::Possible => Verdict::Deny,
        }
    }
}

/// How far a request is from matching a rule; the greater, the nearer.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Nearness {
    matches: bool,
    /// The first condition that it does not meet.
    pub(crate) lacks: Option<Mismatch>,
    /// The reading of its path that does not fit, though the path as sent does.
    pub(crate) reading: Option<String>,
}

/// Compiled rules.
#[derive(Debug)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
    index: Index,
    /// Whether any rule asks, and whether any has a secret. Most policies have
    /// neither, and then need not be searched for them.
    some_ask: bool,
    some_bound: bool,
}

impl Rules {
    pub(crate) fn new(rules: Vec<Rule>) -> Result<Self, globset::Error> {
        let index = Index::new(&rules)?;
        let some_ask = rules.iter().any(|rule| rule.verdict == Verdict::Ask);
        let some_bound = rules.iter().any(has_secret);
        Ok(Self { rules, index, some_ask, some_bound })
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Rule> {
        self.rules.iter()
    }

    pub(crate) fn decide(&self, question: &PolicyQuestion<'_>) -> Decision<'_> {
        let as_sent = self.decide_method(question);
        let Some(method) = question.override_method else { return as_sent };
        // The server may act on either, so the stricter answer counts.
        as_sent.for_either(self.decide_method(&PolicyQuestion { method, ..*question }))
    }

    fn decide_method(&self, question: &PolicyQuestion<'_>) -> Decision<'_> {
        let as_sent = self.decide_reading(question, question.path.as_str());
        if question.path.has_one_reading() {
            return as_sent;
        }
        let others = question.path.readings().skip(1);
        let others = others.map(|reading| self.decide_reading(question, reading));
        let strictest = others.fold(as_sent, Decision::or_stricter);
        if strictest.verdict == Verdict::Allow {
            return self.allow_every_reading(question);
        }
        strictest
    }

    /// The answer to a request whose path is read in one way.
    pub(crate) fn decide_reading(
        &self,
        question: &PolicyQuestion<'_>,
        reading: &str,
    ) -> Decision<'_> {
        let mut reading = PathReading::new(reading);
        let mut first = |verdict: Verdict, how: Match, admit: &dyn Fn(&Rule) -> bool| {
            self.first(question, &mut reading, verdict, how, admit)
        };
        let any = |_: &Rule| true;
        let bound =
            if self.some_bound { first(Verdict::Allow, Match::Exact, &has_secret) } else { None };
        let exempt = |rule: &Rule| rule.exempts_secret_rules && bound.is_some();
        if let Some(deny) = first(Verdict::Deny, Match::Possible, &|rule| !exempt(rule)) {
            return deny;
        }
        if self.some_ask
            && let Some(ask) = first(Verdict::Ask, Match::Exact, &any)
        {
            return ask;
        }
        let allow = bound.or_else(|| first(Verdict::Allow, Match::Exact, &any));
        // Next to an allow, an ask is a restriction. Like a deny, it must hold for any
        // way a server could read the request.
        let ask = if self.some_ask && allow.is_some() {
            first(Verdict::Ask, Match::Possible, &any)
        } else {
            None
        };
        // So is a rule with a secret, next to one without.
        let restricted = bound.is_none() && self.may_be_bound(question, &mut reading);
        match allow {
            None => Decision { restricted, ..Decision::NO_RULE },
            Some(_) if restricted => Decision::TERMS_DIFFER,
            Some(allow) => ask.unwrap_or(allow),
        }
    }

    /// The first rule with this verdict that matches and is admitted.
    fn first(
        &self,
        question: &PolicyQuestion<'_>,
        reading: &mut PathReading<'_>,
        verdict: Verdict,
        how: Match,
        admit: &dyn Fn(&Rule) -> bool,
    ) -> Option<Decision<'_>> {
        let mut best: Option<ShapeId> = None;
        self.with_fitting_path(verdict, how, question, reading, |shape_id| {
            if best.is_some_and(|best| best <= shape_id) {
                return;
            }
            let Some((rule, shape)) = self.at(shape_id) else { return };
            if shape.first_mismatch(how.verdict(), question, true).is_none() && admit(rule) {
                best = Some(shape_id);
            }
        });
        let (rule, shape) = self.at(best?)?;
        Some(Decision::by(rule, shape))
    }

    /// Whether some server could read the request as one that a rule with a secret
    /// matches: in another spelling, or as no WebSocket where it ignores upgrades.
    fn may_be_bound(&self, question: &PolicyQuestion<'_>, reading: &mut PathReading<'_>) -> bool {
        let not_upgraded = PolicyQuestion { websocket: false, ..*question };
        let others = question.websocket.then_some(&not_upgraded);
        self.some_bound
            && std::iter::once(question).chain(others).any(|question| {
                self.first(question, reading, Verdict::Allow, Match::Possible, &has_secret)
                    .is_some()
            })
    }

    /// The answer when every reading of the path is allowed. If all their rules have
    /// the same terms, the rule for the path as sent decides. Otherwise the first
    /// rule that allows every reading by itself decides, which must have a secret if
    /// any reading's rule has.
    fn allow_every_reading(&self, question: &PolicyQuestion<'_>) -> Decision<'_> {
        let fitting = |reading: &str| -> BTreeSet<ShapeId> {
            let mut shape_ids = self.allowing_path(question, reading);
            shape_ids.retain(|shape_id| {
                let shape = shape_at(&self.rules, *shape_id);
                shape.is_some_and(|s| s.first_mismatch(Verdict::Allow, question, true).is_none())
            });
            shape_ids
        };
        let agreed = self.decide_reading(question, question.path.as_str());
        let mut common = fitting(question.path.as_str());
        let mut agree = true;
        let mut some_bound = agreed.rule.is_some_and(has_secret);
        for reading in question.path.readings().skip(1) {
            let other = self.decide_reading(question, reading);
            agree &= agreed.has_same_terms_as(&other);
            some_bound |= other.rule.is_some_and(has_secret);
            let shape_ids = fitting(reading);
            common.retain(|shape_id| shape_ids.contains(shape_id));
        }
        if agree {
            return agreed;
        }
        let common = common.iter().filter_map(|shape_id| self.at(*shape_id));
        let mut common = common.filter(|(rule, _)| !some_bound || has_secret(rule));
        common.next().map_or(Decision::TERMS_DIFFER, |(rule, shape)| Decision::by(rule, shape))
    }

    /// Every shape with this verdict that is about the host and matches a reading
    /// of the path.
    fn with_fitting_path(
        &self,
        verdict: Verdict,
        how: Match,
        question: &PolicyQuestion<'_>,
        reading: &mut PathReading<'_>,
        mut each: impl FnMut(ShapeId),
    ) {
        for shape_ids in self.index.rules_for(&question.to.host).map(|bucket| bucket.of(verdict)) {
            match how {
                Match::Exact => shape_ids.exactly(question.path, reading.text, &mut each),
                Match::Possible => shape_ids.possibly(reading, &mut each),
            }
        }
    }

    /// Every shape of an allow that is about the host and matches a reading.
    fn allowing_path(&self, question: &PolicyQuestion<'_>, reading: &str) -> BTreeSet<ShapeId> {
        let mut shape_ids = BTreeSet::new();
        let mut reading = PathReading::new(reading);
        self.with_fitting_path(Verdict::Allow, Match::Exact, question, &mut reading, |shape_id| {
            shape_ids.insert(shape_id);
        });
        shape_ids
    }

    /// Every allow that is about the host, and how far the request is from
    /// matching the shape that it comes nearest to.
    pub(crate) fn nearness(&self, question: &PolicyQuestion<'_>) -> Vec<(&Rule, Nearness)> {
        let readings: Vec<(String, BTreeSet<ShapeId>)> = question
            .path
            .readings()
            .map(|reading| (reading.to_owned(), self.allowing_path(question, reading)))
            .collect();
        let mut nearest: BTreeMap<usize, Nearness> = BTreeMap::new();
        for bucket in self.index.rules_for(&question.to.host) {
            for shape_id in bucket.of(Verdict::Allow).all() {
                let Some((_, shape)) = self.at(*shape_id) else { continue };
                let unfit = readings.iter().find(|(_, shape_ids)| !shape_ids.contains(shape_id));
                let lacks = shape.first_mismatch(Verdict::Allow, question, unfit.is_none());
                let reading = unfit
                    .filter(|_| lacks == Some(Mismatch::Path))
                    .map(|(reading, _)| reading.clone())
                    .filter(|reading| *reading != question.path.as_str());
                let nearness = Nearness { matches: lacks.is_none(), lacks, reading };
                let best = nearest.entry(shape_id.0).or_insert_with(|| nearness.clone());
                if nearness > *best {
                    *best = nearness;
                }
            }
        }
        let rule = |(number, nearness)| Some((self.rules.get(number)?, nearness));
        nearest.into_iter().filter_map(rule).collect()
    }

    pub(crate) fn admit(&self, to: &Destination) -> Admission<'_> {
        let find = |verdict: Verdict, wanted: &dyn Fn(&Rule, &Shape) -> bool| {
            self.index
                .rules_for(&to.host)
                .flat_map(|bucket: &HostRules| bucket.of(verdict).all())
                .filter_map(|shape_id| self.at(*shape_id))
                .find(|(rule, shape)| shape.fits_port(to) && wanted(rule, shape))
                .map(|(rule, shape)| Decision::by(rule, shape))
        };
        let opened = |shape: &Shape| !matches!(shape.carries, Carries::Passthrough | Carries::Tcp);

        let bound = find(Verdict::Allow, &|rule, shape| rule.secret.is_some() && opened(shape));
        let denied = find(Verdict::Deny, &|rule, shape| {
            shape.is_unconditional() && !(rule.exempts_secret_rules && bound.is_some())
        });
        if let Some(decision) = denied {
            return Admission::Deny(decision);
        }
        // Opening TLS is stricter than relaying it, so it wins.
        let inspect = find(Verdict::Ask, &|_, shape| opened(shape))
            .or_else(|| find(Verdict::Allow, &|_, shape| opened(shape)));
        if inspect.is_some() {
            return Admission::Inspect;
        }
        let tcp = |_: &Rule, shape: &Shape| shape.carries == Carries::Tcp;
        let passthrough = |_: &Rule, shape: &Shape| shape.carries == Carries::Passthrough;
        let unseen = find(Verdict::Ask, &tcp)
            .map(Admission::Ask)
            .or_else(|| find(Verdict::Allow, &tcp).map(Admission::Tcp))
            .or_else(|| find(Verdict::Allow, &passthrough).map(Admission::Passthrough));
        let Some(unseen) = unseen else {
            return Admission::Deny(Decision::NO_RULE);
        };
        // A deny's conditions cannot be checked in traffic that is not opened, so any
        // deny for the host counts.
        find(Verdict::Deny, &|_, _| true).map_or(unseen, Admission::Deny)
    }

    /// Every range that a rule about `to` lets its host resolve to.
    pub(crate) fn reach_of(&self, to: &Destination) -> Reach {
        let mut ranges = Vec::new();
        for bucket in self.index.rules_for(&to.host) {
            for verdict in [Verdict::Ask, Verdict::Allow] {
                for (rule, shape) in
                    bucket.of(verdict).all().iter().filter_map(|shape_id| self.at(*shape_id))
                {
                    if shape.fits_port(to) {
                        ranges.extend_from_slice(rule.reach.ranges());
                    }
                }
            }
        }
        Reach::with_ranges(ranges)
    }

    /// How many bytes of the name of `to` no rule writes out: what stands for the `*`
    /// of the narrowest pattern that lets requests to it, or the whole name if none does.
    pub(crate) fn chosen_name_bytes(&self, to: &Destination) -> usize {
        let Host::Name(name) = &to.host else { return 0 };
        let buckets = self.index.rules_for(&to.host);
        let shapes = buckets.flat_map(|bucket| {
            [Verdict::Ask, Verdict::Allow].into_iter().flat_map(|verdict| bucket.of(verdict).all())
        });
        let shapes = shapes.filter_map(|shape_id| self.at(*shape_id));
        let written = shapes.map(|(_, shape)| match &shape.host {
            HostPattern::Wildcard(suffix) => suffix.as_str().len() + 1,
            HostPattern::Address(_) | HostPattern::Exact(_) => name.as_str().len(),
        });
        name.as_str().len().saturating_sub(written.max().unwrap_or_default())
    }

    fn at(&self, shape_id: ShapeId) -> Option<(&Rule, &Shape)> {
        Some((self.rules.get(shape_id.0)?, shape_at(&self.rules, shape_id)?))
    }
}

fn has_secret(rule: &Rule) -> bool {
    rule.secret.is_some()
}

#[cfg(test)]
mod readings_tests;
#[cfg(test)]
mod tests;
