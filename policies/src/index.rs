//! Finds the few rules that can matter for a request among thousands.
//!
//! Rules are kept by host: by exact name, by the suffix of a wildcard, by
//! address. A name has as many suffixes as labels, so a look-up costs a handful
//! of hash probes whatever the policy's size. Within one host, path patterns
//! are compiled into one automaton per verdict, so that five thousand paths on
//! one host cost little more than five.
//!
//! An allow is compared with one reading of a path at a time. A pattern with
//! `%2F` or the like (`/@scope%2Fname`) is in the automaton together with its own
//! readings. They count only for a path in that spelling, because the author named
//! it. `/v1/*` has one reading only, so it does not allow what a server that
//! decodes makes of `/v1/a%2Fb`.

use std::collections::HashMap;
use std::net::IpAddr;

use globset::{Glob, GlobSet};

use crate::authority::Host;
use crate::case_fold::Folded;
use crate::host_pattern::HostPattern;
use crate::path::RequestPath;
use crate::python_package::PythonFiles;
use crate::rule::{Paths, Rule, Shape};
use crate::verdict::Verdict;

/// A shape of a rule: the rule's number, and the shape's number within it.
pub(crate) type ShapeId = (usize, usize);

#[derive(Debug, Default)]
pub(crate) struct Index {
    addresses: HashMap<IpAddr, HostRules>,
    exact: HashMap<Box<str>, HostRules>,
    suffixes: HashMap<Box<str>, HostRules>,
}

/// The rules about one host or suffix, by verdict.
#[derive(Debug, Default)]
pub(crate) struct HostRules {
    deny: VerdictIndex,
    ask: VerdictIndex,
    allow: VerdictIndex,
}

impl HostRules {
    pub(crate) fn of(&self, verdict: Verdict) -> &VerdictIndex {
        match verdict {
            Verdict::Allow => &self.allow,
            Verdict::Ask => &self.ask,
            Verdict::Deny => &self.deny,
        }
    }

    fn of_mut(&mut self, verdict: Verdict) -> &mut VerdictIndex {
        match verdict {
            Verdict::Allow => &mut self.allow,
            Verdict::Ask => &mut self.ask,
            Verdict::Deny => &mut self.deny,
        }
    }
}

/// The shapes of one verdict for one host, in the order of the policy.
#[derive(Debug, Default)]
pub(crate) struct VerdictIndex {
    all: Vec<ShapeId>,
    any_path: Vec<ShapeId>,
    /// Shapes about the files of certain packages.
    files: Vec<(ShapeId, PythonFiles)>,
    /// For asks and allows: a path must match exactly.
    exact: Patterns,
    /// For denies, asks and allows with a secret: in lower case, so that spelling
    /// cannot evade them.
    folded: Patterns,
}

/// Path patterns as one automaton.
#[derive(Debug, Default)]
struct Patterns {
    automaton: GlobSet,
    /// Where each pattern of the automaton comes from.
    origins: Vec<PatternOrigin>,
    /// Whether some of them stand for other readings of a pattern.
    has_readings: bool,
}

#[derive(Debug)]
struct PatternOrigin {
    shape_id: ShapeId,
    /// The pattern as written, if this is another reading of it. It then counts
    /// only for a path that is spelt as the pattern is.
    written: Option<usize>,
}

impl VerdictIndex {
    /// Every shape, whatever its paths.
    pub(crate) fn all(&self) -> &[ShapeId] {
        &self.all
    }

    /// Those whose patterns match one reading of a path; in no particular order.
    pub(crate) fn exactly(&self, path: &RequestPath, reading: &str, mut each: impl FnMut(ShapeId)) {
        self.any_path.iter().copied().for_each(&mut each);
        let files = self.files.iter().filter(|(_, files)| files.matches(reading));
        files.map(|(shape_id, _)| *shape_id).for_each(&mut each);
        self.exact.matching(path.as_str(), reading, each);
    }

    /// Those that match a reading of a path under some spelling; in no particular
    /// order.
    pub(crate) fn possibly(&self, reading: &mut PathReading<'_>, mut each: impl FnMut(ShapeId)) {
        self.any_path.iter().copied().for_each(&mut each);
        if self.files.is_empty() && self.folded.origins.is_empty() {
            return;
        }
        for form in reading.folded().forms() {
            let files = self.files.iter().filter(|(_, files)| files.matches_folded(form));
            files.map(|(shape_id, _)| *shape_id).for_each(&mut each);
            self.folded.matching(form, form, &mut each);
        }
    }
}

/// One reading of a path. It is folded on first use, because most policies have no
/// deny by path.
pub(crate) struct PathReading<'p> {
    pub(crate) text: &'p str,
    folded: Option<Folded>,
}

impl<'p> PathReading<'p> {
    pub(crate) fn new(text: &'p str) -> Self {
        Self { text, folded: None }
    }

    fn folded(&mut self) -> &Folded {
        self.folded.get_or_insert_with(|| Folded::of(self.text))
    }
}

impl Patterns {
    fn matching(&self, path: &str, reading: &str, mut each: impl FnMut(ShapeId)) {
        if self.origins.is_empty() {
            return;
        }
        let spelt_so = if self.has_readings && path != reading {
            self.automaton.matches(path)
        } else {
            Vec::new()
        };
        for matched in self.automaton.matches(reading) {
            if let Some(pattern) = self.origins.get(matched)
                && pattern.written.is_none_or(|written| spelt_so.contains(&written))
            {
                each(pattern.shape_id);
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

    /// The rules about `host`: its own, then those of its suffixes.
    pub(crate) fn rules_for<'i>(
        &'i self,
        host: &'i Host,
    ) -> impl Iterator<Item = &'i HostRules> + Clone {
        let (own, name) = match host {
            Host::Address(address) => (self.addresses.get(address), ""),
            Host::Name(name) => (self.exact.get(name.as_str()), name.as_str()),
        };
        // `a.b.c` is below `b.c` and below `c`, never below itself.
        let above = name.match_indices('.').filter_map(|(dot, _)| name.get(dot + 1..));
        own.into_iter().chain(above.filter_map(|suffix| self.suffixes.get(suffix)))
    }
}

impl VerdictIndex {
    fn compile(&mut self, verdict: Verdict, rules: &[Rule]) -> Result<(), globset::Error> {
        let (mut exact, mut folded) = (PatternsBuilder::default(), PatternsBuilder::default());
        let has_secret = |rule: usize| rules.get(rule).is_some_and(|rule| rule.secret.is_some());
        for shape_id in &self.all {
            let Some(shape) = shape_at(rules, *shape_id) else { continue };
            match &shape.paths {
                Paths::Any => self.any_path.push(*shape_id),
                Paths::PythonFiles(files) => self.files.push((*shape_id, files.clone())),
                Paths::Patterns(patterns) => {
                    for pattern in patterns {
                        if verdict != Verdict::Deny {
                            let written = exact.add(*shape_id, pattern.glob(), None);
                            for reading in pattern.other_globs() {
                                exact.add(*shape_id, reading, Some(written));
                            }
                        }
                        if verdict != Verdict::Allow || has_secret(shape_id.0) {
                            for spelling in pattern.folded() {
                                folded.add(*shape_id, spelling, None);
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
struct PatternsBuilder {
    globs: Vec<Glob>,
    origins: Vec<PatternOrigin>,
}

impl PatternsBuilder {
    /// Adds a pattern and returns its number.
    fn add(&mut self, shape_id: ShapeId, glob: Glob, written: Option<usize>) -> usize {
        self.globs.push(glob);
        self.origins.push(PatternOrigin { shape_id, written });
        self.globs.len() - 1
    }

    fn build(self) -> Result<Patterns, globset::Error> {
        if self.globs.is_empty() {
            return Ok(Patterns::default());
        }
        let has_readings = self.origins.iter().any(|pattern| pattern.written.is_some());
        Ok(Patterns { automaton: GlobSet::new(self.globs)?, origins: self.origins, has_readings })
    }
}

pub(crate) fn shape_at(rules: &[Rule], (rule, shape): ShapeId) -> Option<&Shape> {
    rules.get(rule)?.shapes.get(shape)
}
