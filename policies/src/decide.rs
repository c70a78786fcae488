//! Answers one question: may this sandbox send this request?
//!
//! Deciding is pure. It borrows compiled rules and a [`Question`], reads no
//! clock and no network, and cannot fail: whatever it would not understand was
//! refused when the policy was read.
//!
//! **Invariant:** any deny beats any ask beats any allow, and when no rule
//! matches the answer is deny. The order of rules in the file says nothing; it
//! only settles which of several equal rules is named in the report.

use crate::authority::Destination;
use crate::fold::Folded;
use crate::index::{Bucket, Index, Spot, shape_at};
use crate::method::Method;
use crate::path::RequestPath;
use crate::query::Query;
use crate::reach::Reach;
use crate::rule::{Carries, Rule, Shape};
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
    pub path: &'a RequestPath,
    pub query: Option<&'a Query>,
    pub headers: &'a dyn Headers,
    /// Whether the request asks to become a WebSocket.
    pub websocket: bool,
}

/// A request's headers, whatever holds them.
pub trait Headers {
    /// Calls `each` with every value of the header `name`, which is lower case.
    fn values(&self, name: &str, each: &mut dyn FnMut(&[u8]));
}

impl std::fmt::Debug for dyn Headers + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values may be credentials; their number and names are nobody's business here.
        f.write_str("Headers")
    }
}

/// No headers.
impl Headers for () {
    fn values(&self, _name: &str, _each: &mut dyn FnMut(&[u8])) {}
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

/// Compiled rules.
#[derive(Debug)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
    index: Index,
}

impl Rules {
    pub(crate) fn new(rules: Vec<Rule>) -> Result<Self, globset::Error> {
        let index = Index::new(&rules)?;
        Ok(Self { rules, index })
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Rule> {
        self.rules.iter()
    }

    pub(crate) fn decide(&self, question: &Question<'_>) -> Decision<'_> {
        let as_sent = self.decide_method(question);
        let Some(method) = question.overridden else { return as_sent };
        // The server may act on either, so the stricter answer counts.
        let as_meant = self.decide_method(&Question { method, ..*question });
        if as_meant.verdict < as_sent.verdict { as_meant } else { as_sent }
    }

    fn decide_method(&self, question: &Question<'_>) -> Decision<'_> {
        // Most policies have no deny by path: then nothing is folded.
        let mut folded = None;
        let mut first = |verdict: Verdict, admit: &dyn Fn(&Rule) -> bool| -> Option<Spot> {
            let mut best: Option<Spot> = None;
            let mut consider = |spot: Spot| {
                if best.is_some_and(|best| best <= spot) {
                    return;
                }
                let Some((rule, shape)) = self.at(spot) else { return };
                if shape.fits(verdict, question) && admit(rule) {
                    best = Some(spot);
                }
            };
            for spots in self.index.buckets(&question.to.host).map(|bucket| bucket.of(verdict)) {
                spots.any_path().iter().copied().for_each(&mut consider);
                if verdict == Verdict::Deny && spots.has_patterns() {
                    let folded = folded.get_or_insert_with(|| Folded::of(question.path));
                    folded.forms().for_each(|form| spots.by_pattern(form, &mut consider));
                } else {
                    spots.by_pattern(question.path.as_str(), &mut consider);
                }
            }
            best
        };
        let bound = first(Verdict::Allow, &|rule| rule.secret.is_some()).is_some();
        [Verdict::Deny, Verdict::Ask, Verdict::Allow]
            .into_iter()
            .find_map(|verdict| first(verdict, &|rule| !(rule.spares_bound_secrets && bound)))
            .and_then(|spot| self.at(spot))
            .map_or(Decision::NO_RULE, |(rule, shape)| Decision::by(rule, shape))
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
mod tests;
