//! Closes the evidence of a run that has ended.
//!
//! What changed, what was declared as worth keeping, the record, the seal. One
//! part that cannot be had does not keep the others from being written; it is
//! named instead. Nor does one that takes too long, or that somebody stops: what
//! is there by then is recorded and sealed.

use std::collections::BTreeSet;
use std::path::Path;

use jiff::Timestamp;
use policies::{FileGlob, RelativePath};

use super::prepare::{Prepared, protect};
use super::record::Chain;
use super::{Record, Report};
use crate::evidence::{ArtifactLimits, Collected, RunFolder};
use crate::plan::Plan;
use crate::request::Understood;
use crate::settings;
use crate::work_budget::{self, WorkBudget};
use crate::workspace::{self, ChangeLimits, Marks, Overlaid};

/// Writes everything there is to write, and notes in the report what is missing.
pub(crate) fn close(
    plan: &Plan,
    understood: &Understood,
    prepared: &Prepared,
    report: &mut Report,
    budget: &WorkBudget,
) {
    let mut missing = Vec::new();
    let mut had = |what: &str, had: Result<(), String>| {
        if let Err(why) = had {
            missing.push(format!("{what}: {why}"));
        }
    };
    had("policy", policy(understood, &prepared.evidence));
    let (fs, protect) = (&understood.policy.fs, protect(plan));
    let workspace = prepared.workspace.as_ref();
    let leavings = Leavings {
        evidence: &prepared.evidence,
        begun: report.begun,
        root: workspace.map(|workspace| &*workspace.root),
        upper: workspace.and_then(|workspace| Some(&*workspace.overlay.as_ref()?.upper)),
        protect: &protect,
        deny: workspace.map_or(&*fs.deny, |workspace| &workspace.deny),
        artifacts: &fs.artifacts,
        budget,
    };
    let changed = understood.phases.now("changes", || leavings.changes());
    report.changed = changed.as_ref().ok().copied().flatten();
    had("changes", changed.map(drop));
    let collected = understood.phases.now("artifacts", || leavings.artifacts());
    let collected = collected.unwrap_or_else(|why| {
        had("artifacts", Err(why));
        Collected::default()
    });
    report.missing.append(&mut missing);
    report.not_done = budget.not_done();
    report.artifacts_left_out = collected.left_out;
    let record = Record::new(plan, report, &understood.phases);
    let evidence = &prepared.evidence;
    let written = evidence.write_run(&record).map_err(|err| format!("record: {}", in_words(&err)));
    let sealed = evidence.seal_with(&understood.state, &collected.artifacts).map(drop);
    let sealed = sealed.map_err(|err| format!("seal: {}", in_words(&err)));
    report.missing.extend([written, sealed].into_iter().filter_map(Result::err));
}

/// The policy's own file first, then what it extends, as they were read.
pub(crate) fn policy_text(understood: &Understood) -> String {
    let mut text = settings::registries_meant(&understood.upstream.registries);
    for host in &understood.for_gateway.allow {
        text.push_str(&format!("# this run may also reach {host}\n"));
    }
    for (path, part) in &understood.for_gateway.texts {
        text.push_str(&format!("# {}\n{part}", path.display()));
        if !part.ends_with('\n') {
            text.push('\n');
        }
    }
    text
}

pub(crate) fn policy(understood: &Understood, evidence: &RunFolder) -> Result<(), String> {
    evidence.write_policy(&policy_text(understood)).map_err(|err| in_words(&err))
}

/// What a sandbox left on the host's disk, and what of it is evidence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leavings<'l> {
    pub(crate) evidence: &'l RunFolder,
    pub(crate) begun: Timestamp,
    /// The project, if there was one.
    pub(crate) root: Option<&'l Path>,
    /// What was written over it, if that was kept apart.
    pub(crate) upper: Option<&'l Path>,
    pub(crate) protect: &'l BTreeSet<RelativePath>,
    pub(crate) deny: &'l [FileGlob],
    pub(crate) artifacts: &'l [FileGlob],
    pub(crate) budget: &'l WorkBudget,
}

impl Leavings<'_> {
    /// How many there are, if what was written was kept apart.
    pub(crate) fn changes(&self) -> Result<Option<usize>, String> {
        let (Some(project), Some(upper)) = (self.root, self.upper) else { return Ok(None) };
        let overlaid = Overlaid {
            project,
            upper,
            marks: Marks::User,
            started: self.begun,
            protect: self.protect,
            deny: self.deny,
        };
        self.budget.begin("changes", work_budget::CHANGES);
        let changes = workspace::changes(&overlaid, &ChangeLimits::default(), self.budget);
        let changes = changes.map_err(|err| in_words(&err))?;
        let written = self.evidence.write_changes(changes, self.budget);
        written.map(|written| Some(written.changes.len())).map_err(|err| in_words(&err))
    }

    /// From where the sandbox wrote: the upper layer, or the project itself.
    pub(crate) fn artifacts(&self) -> Result<Collected, String> {
        let Some(source) = self.upper.or(self.root) else { return Ok(Collected::default()) };
        self.budget.begin("artifacts", work_budget::ARTIFACTS);
        let (limits, budget) = (ArtifactLimits::default(), self.budget);
        let collected =
            self.evidence.collect_artifacts(source, self.artifacts, self.deny, &limits, budget);
        collected.map_err(|err| in_words(&err))
    }
}

pub(crate) fn in_words(err: &dyn std::error::Error) -> String {
    Chain(err).to_string()
}
