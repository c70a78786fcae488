//! Finds the few rules that can matter for a request among thousands.
//!
//! Rules are kept by host: by exact name, by the suffix of a wildcard, by
//! address. A name has as many suffixes as labels, so a look-up costs a handful
//! of hash probes whatever the policy's size. Within one host, path patterns
//! are compiled into one automaton per verdict, so that five thousand paths on
//! one host cost little more than five.
//!
//! What an allow admits is asked of one reading of a path at a time. A pattern
//! that holds `%2F` or the like (`/@scope%2Fname`) stands in the automaton with
//! its own readings, which count for a path that is spelt so: its author has
//! named that spelling. `/v1/*` has no other reading, and so does not admit what
//! `/v1/a%2Fb` is to a server that decodes it.

use std::collections::HashMap;
use std::net::IpAddr;

use globset::{Glob, GlobSet};

use crate::authority::Host;
use crate::capability::PythonFiles;
use crate::fold::Folded;
use crate::path::RequestPath;
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
    /// Shapes about the files of certain packages.
    files: Vec<(Spot, PythonFiles)>,
    /// For what must fit beyond doubt: asks and allows.
    exact: Patterns,
    /// For what must not be dodged: denies and asks. In lower case.
    folded: Patterns,
}

/// Path patterns as one automaton.
#[derive(Debug, Default)]
struct Patterns {
    automaton: GlobSet,
    /// What each pattern of the automaton stands for.
    of: Vec<PatternOf>,
    /// Whether some of them stand for other readings of a pattern.
    has_readings: bool,
}

#[derive(Debug)]
struct PatternOf {
    spot: Spot,
    /// The pattern as written, if this is another reading of it. It then counts
    /// only for a path that is spelt as the pattern is.
    written: Option<usize>,
}

impl Spots {
    /// Every shape, whatever its paths.
    pub(crate) fn all(&self) -> &[Spot] {
        &self.all
    }

    /// Those that admit one reading of a path beyond doubt; in no particular
    /// order.
    pub(crate) fn exactly(&self, path: &RequestPath, reading: &str, mut each: impl FnMut(Spot)) {
        self.any_path.iter().copied().for_each(&mut each);
        let files = self.files.iter().filter(|(_, files)| files.matches(reading));
        files.map(|(spot, _)| *spot).for_each(&mut each);
        self.exact.matching(path.as_str(), reading, each);
    }

    /// Those that a reading of a path might be meant by; in no particular order.
    pub(crate) fn possibly(&self, reading: &mut Reading<'_>, mut each: impl FnMut(Spot)) {
        self.any_path.iter().copied().for_each(&mut each);
        if self.files.is_empty() && self.folded.of.is_empty() {
            return;
        }
        for form in reading.folded().forms() {
            let files = self.files.iter().filter(|(_, files)| files.matches_folded(form));
            files.map(|(spot, _)| *spot).for_each(&mut each);
            self.folded.matching(form, form, &mut each);
        }
    }
}

/// One reading of a path, folded once somebody needs it: most policies have no
/// deny by path.
pub(crate) struct Reading<'p> {
    pub(crate) text: &'p str,
    folded: Option<Folded>,
}

impl<'p> Reading<'p> {
    pub(crate) fn new(text: &'p str) -> Self {
        Self { text, folded: None }
    }

    fn folded(&mut self) -> &Folded {
        self.folded.get_or_insert_with(|| Folded::of(self.text))
    }
}

impl Patterns {
    fn matching(&self, path: &str, reading: &str, mut each: impl FnMut(Spot)) {
        if self.of.is_empty() {
            return;
        }
        let spelt_so = if self.has_readings && path != reading {
            self.automaton.matches(path)
        } else {
            Vec::new()
        };
        for matched in self.automaton.matches(reading) {
            if let Some(pattern) = self.of.get(matched)
                && pattern.written.is_none_or(|written| spelt_so.contains(&written))
            {
                each(pattern.spot);
            }
        }
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
        let (mut exact, mut folded) = (Builder::default(), Builder::default());
        for spot in &self.all {
            let Some(shape) = shape_at(rules, *spot) else { continue };
            match &shape.paths {
                Paths::Any => self.any_path.push(*spot),
                Paths::PythonFiles(files) => self.files.push((*spot, files.clone())),
                Paths::Patterns(patterns) => {
                    for pattern in patterns {
                        if verdict != Verdict::Deny {
                            let written = exact.add(*spot, pattern.glob(), None);
                            for reading in pattern.other_globs() {
                                exact.add(*spot, reading, Some(written));
                            }
                        }
                        if verdict != Verdict::Allow {
                            for spelling in pattern.folded() {
                                folded.add(*spot, spelling, None);
                            }
                        }
                    }
                }
            }
        }
        self.exact = exact.build()?;
        self.folded = folded.build()?;
        Ok(())
    }
}

#[derive(Default)]
struct Builder {
    globs: Vec<Glob>,
    of: Vec<PatternOf>,
}

impl Builder {
    /// Adds a pattern and says which number it got.
    fn add(&mut self, spot: Spot, glob: Glob, written: Option<usize>) -> usize {
        self.globs.push(glob);
        self.of.push(PatternOf { spot, written });
        self.globs.len() - 1
    }

    fn build(self) -> Result<Patterns, globset::Error> {
        if self.globs.is_empty() {
            return Ok(Patterns::default());
        }
        let has_readings = self.of.iter().any(|pattern| pattern.written.is_some());
        Ok(Patterns { automaton: GlobSet::new(self.globs)?, of: self.of, has_readings })
    }
}

pub(crate) fn shape_at(rules: &[Rule], (rule, shape): Spot) -> Option<&Shape> {
    rules.get(rule)?.shapes.get(shape)
}
