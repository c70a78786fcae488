//! Finds the few rules that can matter for a request among thousands.
//!
//! Rules are kept by host: by exact name, by the suffix of a wildcard, by
//! address. A name has as many suffixes as labels, so a look-up costs a handful
//! of hash probes whatever the policy's size. Within one host, path patterns
//! are compiled into one automaton per verdict, so that five thousand paths on
//! one host cost little more than five.

use std::collections::HashMap;
use std::net::IpAddr;

use globset::{GlobSet, GlobSetBuilder};

use crate::authority::Host;
use crate::pattern::HostPattern;
use crate::rule::{Paths, Rule, Shape};
use crate::verdict::Verdict;

/// A rule's number and its shape's number within it.
pub(crate) type Spot = (usize, usize);

#[derive(Debug, Default)]
pub(crate) struct Index {
    addresses: HashMap<IpAddr, Bucket>,
    exact: HashMap<Box<str>, Bucket>,
    suffixes: HashMap<Box<str>, Bucket>,
}

/// All that is said of one host or suffix.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    deny: Spots,
    ask: Spots,
    allow: Spots,
}

impl Bucket {
    pub(crate) fn of(&self, verdict: Verdict) -> &Spots {
        match verdict {
            Verdict::Allow => &self.allow,
            Verdict::Ask => &self.ask,
            Verdict::Deny => &self.deny,
        }
    }

    fn of_mut(&mut self, verdict: Verdict) -> &mut Spots {
        match verdict {
            Verdict::Allow => &mut self.allow,
            Verdict::Ask => &mut self.ask,
            Verdict::Deny => &mut self.deny,
        }
    }
}

/// The shapes of one verdict in one bucket, in the order of the policy.
#[derive(Debug, Default)]
pub(crate) struct Spots {
    all: Vec<Spot>,
    any_path: Vec<Spot>,
    by_pattern: GlobSet,
    /// The shape behind each pattern of the automaton.
    patterns: Vec<Spot>,
}

impl Spots {
    /// Every shape, whatever its paths.
    pub(crate) fn all(&self) -> &[Spot] {
        &self.all
    }

    /// Those that name no path pattern.
    pub(crate) fn any_path(&self) -> &[Spot] {
        &self.any_path
    }

    /// Those whose path patterns admit `path`; in no particular order. Denies
    /// are compiled in lower case: see [`crate::fold`].
    pub(crate) fn by_pattern(&self, path: &str, mut each: impl FnMut(Spot)) {
        if self.patterns.is_empty() {
            return;
        }
        for matched in self.by_pattern.matches(path) {
            if let Some(spot) = self.patterns.get(matched) {
                each(*spot);
            }
        }
    }

    /// Whether a path has to be looked at here at all.
    pub(crate) fn has_patterns(&self) -> bool {
        !self.patterns.is_empty()
    }
}

impl Index {
    /// # Errors
    /// When the patterns of one host together are too large for an automaton.
    pub(crate) fn new(rules: &[Rule]) -> Result<Self, globset::Error> {
        let mut index = Self::default();
        for (number, rule) in rules.iter().enumerate() {
            for (part, shape) in rule.shapes.iter().enumerate() {
                let bucket = match &shape.host {
                    HostPattern::Address(address) => index.addresses.entry(*address).or_default(),
                    HostPattern::Exact(name) => {
                        index.exact.entry(name.as_str().into()).or_default()
                    }
                    HostPattern::Wildcard(suffix) => {
                        index.suffixes.entry(suffix.as_str().into()).or_default()
                    }
                };
                bucket.of_mut(rule.verdict).all.push((number, part));
            }
        }
        let buckets = index.addresses.values_mut();
        let buckets = buckets.chain(index.exact.values_mut()).chain(index.suffixes.values_mut());
        for bucket in buckets {
            for verdict in [Verdict::Deny, Verdict::Ask, Verdict::Allow] {
                bucket.of_mut(verdict).compile(verdict, rules)?;
            }
        }
        Ok(index)
    }

    /// The buckets that speak of `host`: its own, then those of its suffixes.
    pub(crate) fn buckets<'i>(
        &'i self,
        host: &'i Host,
    ) -> impl Iterator<Item = &'i Bucket> + Clone {
        let (own, name) = match host {
            Host::Address(address) => (self.addresses.get(address), ""),
            Host::Name(name) => (self.exact.get(name.as_str()), name.as_str()),
        };
        // `a.b.c` is below `b.c` and below `c`, never below itself.
        let above = name.match_indices('.').filter_map(|(dot, _)| name.get(dot + 1..));
        own.into_iter().chain(above.filter_map(|suffix| self.suffixes.get(suffix)))
    }
}

impl Spots {
    fn compile(&mut self, verdict: Verdict, rules: &[Rule]) -> Result<(), globset::Error> {
        let mut builder = GlobSetBuilder::new();
        for spot in &self.all {
            let Some(shape) = shape_at(rules, *spot) else { continue };
            match &shape.paths {
                Paths::Any | Paths::PythonFiles(_) => self.any_path.push(*spot),
                Paths::Patterns(patterns) => {
                    for pattern in patterns {
                        builder.add(match verdict {
                            Verdict::Allow | Verdict::Ask => pattern.glob(),
                            Verdict::Deny => pattern.folded(),
                        });
                        self.patterns.push(*spot);
                    }
                }
            }
        }
        if !self.patterns.is_empty() {
            self.by_pattern = builder.build()?;
        }
        Ok(())
    }
}

pub(crate) fn shape_at(rules: &[Rule], (rule, shape): Spot) -> Option<&Shape> {
    rules.get(rule)?.shapes.get(shape)
}
