//! Answers one question: may this sandbox send this request?
//!
//! Deciding is pure. It borrows compiled rules and a [`Question`], reads no
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

use std::collections::{BTreeMap, BTreeSet};

use crate::authority::Destination;
use crate::fields::Headers;
use crate::index::{Bucket, Index, Reading, Spot, shape_at};
use crate::method::Method;
use crate::overridden::FurtherPath;
use crate::path::RequestPath;
use crate::query::Query;
use crate::reach::Reach;
use crate::rule::{Carries, Mismatch, Rule, Shape};
use crate::target::Scheme;
use crate::verdict::{Decision, Verdict};

/// One request, as policy sees it. Everything in it was parsed once.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub scheme: Scheme,
    pub to: &'a Destination,
    pub method: Method,
    /// The method that a header such as `X-HTTP-Method-Override` asks the
    /// server to use instead. Both must be allowed.
    pub overridden: Option<Method>,
    /// Paths that the server may serve instead, because a header or a parameter
    /// names them. All of them must be allowed.
    pub further: &'a [FurtherPath],
    pub path: &'a RequestPath,
    pub query: Option<&'a Query>,
    pub headers: &'a dyn Headers,
    /// Whether the request asks to become a WebSocket.
    pub websocket: bool,
}

/// What policy says of a destination, before anything is known of a request.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub enum Admission<'p> {
    /// A person must say yes before any byte is relayed.
    Ask(Decision<'p>),
    /// Nothing that could be asked there would be allowed.
    Deny(Decision<'p>),
    /// TLS is opened and each request judged.
    Inspect,
    /// TLS is relayed unopened.
    Passthrough(Decision<'p>),
    /// Bytes are relayed unseen.
    Tcp(Decision<'p>),
}

/// How surely a request has to match a rule.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Match {
    /// As what lets requests pass must: beyond doubt.
    Exact,
    /// As what holds requests back must: in whatever way a server could read it.
    Possible,
}

impl Match {
    /// The verdict that is compared in this way.
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
    /// Whether any of them asks, and whether any spares what carries a secret:
    /// most policies need not be searched for either.
    some_ask: bool,
    some_spare: bool,
}

impl Rules {
    pub(crate) fn new(rules: Vec<Rule>) -> Result<Self, globset::Error> {
        let index = Index::new(&rules)?;
        let some_ask = rules.iter().any(|rule| rule.verdict == Verdict::Ask);
        let some_spare = rules.iter().any(|rule| rule.spares_bound_secrets);
        Ok(Self { rules, index, some_ask, some_spare })
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Rule> {
        self.rules.iter()
    }

    pub(crate) fn decide(&self, question: &Question<'_>) -> Decision<'_> {
        let as_sent = self.decide_method(question);
        let Some(method) = question.overridden else { return as_sent };
        // The server may act on either, so the stricter answer counts.
        as_sent.for_either(self.decide_method(&Question { method, ..*question }))
    }

    fn decide_method(&self, question: &Question<'_>) -> Decision<'_> {
        let as_sent = self.decide_reading(question, question.path.as_str());
        if question.path.has_one_reading() {
            return as_sent;
        }
        let others = question.path.readings().skip(1);
        let others = others.map(|reading| self.decide_reading(question, reading));
        let strictest = others.fold(as_sent, Decision::or_stricter);
        if strictest.verdict == Verdict::Allow {
            return self.allowed_as_whole(question);
        }
        strictest
    }

    /// The answer to a request whose path is read in one way.
    pub(crate) fn decide_reading(&self, question: &Question<'_>, reading: &str) -> Decision<'_> {
        let mut reading = Reading::new(reading);
        let mut first = |verdict: Verdict, how: Match, admit: &dyn Fn(&Rule) -> bool| {
            let mut best: Option<Spot> = None;
            self.with_fitting_path(verdict, how, question, &mut reading, |spot| {
                if best.is_some_and(|best| best <= spot) {
                    return;
                }
                let Some((rule, shape)) = self.at(spot) else { return };
                if shape.first_mismatch(how.verdict(), question, true).is_none() && admit(rule) {
                    best = Some(spot);
                }
            });
            let (rule, shape) = self.at(best?)?;
            Some(Decision::by(rule, shape))
        };
        let any = |_: &Rule| true;
        let bound = if self.some_spare {
            first(Verdict::Allow, Match::Exact, &|rule| rule.secret.is_some())
        } else {
            None
        };
        let spared = |rule: &Rule| rule.spares_bound_secrets && bound.is_some();
        if let Some(deny) = first(Verdict::Deny, Match::Possible, &|rule| !spared(rule)) {
            return deny;
        }
        if self.some_ask
            && let Some(ask) = first(Verdict::Ask, Match::Exact, &any)
        {
            return ask;
        }
        // What a deny spares for its secret goes out with the secret, whichever
        // rule without one may stand before.
        let spares = bound.is_some() && first(Verdict::Deny, Match::Possible, &any).is_some();
        let allow = bound.filter(|_| spares).or_else(|| first(Verdict::Allow, Match::Exact, &any));
        let Some(allow) = allow else { return Decision::NO_RULE };
        // Where an allow would let a request pass, an ask is a restriction, and is
        // no more to be dodged than a deny.
        let ask = if self.some_ask { first(Verdict::Ask, Match::Possible, &any) } else { None };
        ask.unwrap_or(allow)
    }

    /// The answer when every reading of the path is allowed: that of the rule for
    /// the path as it is sent, if the rules for the others demand and grant the
    /// same; else of the first one that allows every reading by itself.
    fn allowed_as_whole(&self, question: &Question<'_>) -> Decision<'_> {
        let fitting = |reading: &str| -> BTreeSet<Spot> {
            let mut spots = self.allowing_path(question, reading);
            spots.retain(|spot| {
                let shape = shape_at(&self.rules, *spot);
                shape.is_some_and(|s| s.first_mismatch(Verdict::Allow, question, true).is_none())
            });
            spots
        };
        let agreed = self.decide_reading(question, question.path.as_str());
        let mut common = fitting(question.path.as_str());
        let mut agree = true;
        for reading in question.path.readings().skip(1) {
            let other = self.decide_reading(question, reading);
            agree &= agreed.demands_the_same_as(&other);
            let spots = fitting(reading);
            common.retain(|spot| spots.contains(spot));
        }
        if agree {
            return agreed;
        }
        let spares = self.some_spare;
        let common = common.iter().filter_map(|spot| self.at(*spot));
        let mut common = common.filter(|(rule, _)| !spares || rule.secret.is_some());
        common.next().map_or(Decision::NO_RULE, |(rule, shape)| Decision::by(rule, shape))
    }

    /// Every shape with this verdict that speaks of the host and admits a reading
    /// of the path.
    fn with_fitting_path(
        &self,
        verdict: Verdict,
        how: Match,
        question: &Question<'_>,
        reading: &mut Reading<'_>,
        mut each: impl FnMut(Spot),
    ) {
        for spots in self.index.buckets(&question.to.host).map(|bucket| bucket.of(verdict)) {
            match how {
                Match::Exact => spots.exactly(question.path, reading.text, &mut each),
                Match::Possible => spots.possibly(reading, &mut each),
            }
        }
    }

    /// Every shape of an allow that speaks of the host and admits a reading.
    fn allowing_path(&self, question: &Question<'_>, reading: &str) -> BTreeSet<Spot> {
        let mut spots = BTreeSet::new();
        let mut reading = Reading::new(reading);
        self.with_fitting_path(Verdict::Allow, Match::Exact, question, &mut reading, |spot| {
            spots.insert(spot);
        });
        spots
    }

    /// Every allow that speaks of the host, and how far the request is from
    /// matching the shape that it comes nearest to.
    pub(crate) fn nearness(&self, question: &Question<'_>) -> Vec<(&Rule, Nearness)> {
        let readings: Vec<(String, BTreeSet<Spot>)> = question
            .path
            .readings()
            .map(|reading| (reading.to_owned(), self.allowing_path(question, reading)))
            .collect();
        let mut nearest: BTreeMap<usize, Nearness> = BTreeMap::new();
        for bucket in self.index.buckets(&question.to.host) {
            for spot in bucket.of(Verdict::Allow).all() {
                let Some((_, shape)) = self.at(*spot) else { continue };
                let unfit = readings.iter().find(|(_, spots)| !spots.contains(spot));
                let lacks = shape.first_mismatch(Verdict::Allow, question, unfit.is_none());
                let reading = unfit
                    .filter(|_| lacks == Some(Mismatch::Path))
                    .map(|(reading, _)| reading.clone())
                    .filter(|reading| *reading != question.path.as_str());
                let nearness = Nearness { matches: lacks.is_none(), lacks, reading };
                let best = nearest.entry(spot.0).or_insert_with(|| nearness.clone());
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
                .buckets(&to.host)
                .flat_map(|bucket: &Bucket| bucket.of(verdict).all())
                .filter_map(|spot| self.at(*spot))
                .find(|(rule, shape)| shape.fits_port(to) && wanted(rule, shape))
                .map(|(rule, shape)| Decision::by(rule, shape))
        };
        let opened = |shape: &Shape| !matches!(shape.carries, Carries::Sealed | Carries::Tcp);

        let bound = find(Verdict::Allow, &|rule, shape| rule.secret.is_some() && opened(shape));
        let denied = find(Verdict::Deny, &|rule, shape| {
            shape.is_unconditional() && !(rule.spares_bound_secrets && bound.is_some())
        });
        if let Some(decision) = denied {
            return Admission::Deny(decision);
        }
        // Looking inside is the stricter of two ways to allow.
        let inspect = find(Verdict::Ask, &|_, shape| opened(shape))
            .or_else(|| find(Verdict::Allow, &|_, shape| opened(shape)));
        if inspect.is_some() {
            return Admission::Inspect;
        }
        let tcp = |_: &Rule, shape: &Shape| shape.carries == Carries::Tcp;
        let sealed = |_: &Rule, shape: &Shape| shape.carries == Carries::Sealed;
        let unseen = find(Verdict::Ask, &tcp)
            .map(Admission::Ask)
            .or_else(|| find(Verdict::Allow, &tcp).map(Admission::Tcp))
            .or_else(|| find(Verdict::Allow, &sealed).map(Admission::Passthrough));
        let Some(unseen) = unseen else {
            return Admission::Deny(Decision::NO_RULE);
        };
        // What cannot be looked into cannot be held to a deny's conditions.
        find(Verdict::Deny, &|_, _| true).map_or(unseen, Admission::Deny)
    }

    /// Every range that a rule about `to` lets its host resolve to.
    pub(crate) fn reach_of(&self, to: &Destination) -> Reach {
        let mut ranges = Vec::new();
        for bucket in self.index.buckets(&to.host) {
            for verdict in [Verdict::Ask, Verdict::Allow] {
                for (rule, shape) in
                    bucket.of(verdict).all().iter().filter_map(|spot| self.at(*spot))
                {
                    if shape.fits_port(to) {
                        ranges.extend_from_slice(rule.reach.ranges());
                    }
                }
            }
        }
        Reach::with_ranges(ranges)
    }

    fn at(&self, spot: Spot) -> Option<(&Rule, &Shape)> {
        Some((self.rules.get(spot.0)?, shape_at(&self.rules, spot)?))
    }
}

#[cfg(test)]
mod readings_tests;
#[cfg(test)]
mod tests;
