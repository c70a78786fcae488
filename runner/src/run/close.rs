//! Closes the evidence of a run that has ended.
//!
//! What changed, what was declared as worth keeping, the record, the seal. One
//! part that cannot be had does not keep the others from being written; it is
//! named instead.

use std::collections::BTreeSet;
use std::path::Path;

use jiff::Timestamp;
use policies::{FileGlob, RelativePath};

use super::prepare::{Prepared, protect};
use super::record::Chain;
use super::{Record, Report};
use crate::evidence::{ArtifactLimits, RunFolder};
use crate::plan::Plan;
use crate::request::Understood;
use crate::settings;
use crate::workspace::{self, ChangeLimits, Marks, Overlaid};

/// Writes everything there is to write; returns what is missing.
pub(crate) fn close(
    plan: &Plan,
    understood: &Understood,
    prepared: &Prepared,
    report: &Report,
) -> Vec<String> {
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
        deny: &fs.deny,
        artifacts: &fs.artifacts,
    };
    had("changes", leavings.changes());
    had("artifacts", leavings.artifacts());
    let record = Record::new(plan, report, &understood.phases);
    had("record", prepared.evidence.write_run(&record).map_err(|err| in_words(&err)));
    had("seal", prepared.evidence.seal(&understood.state).map(drop).map_err(|err| in_words(&err)));
    missing
}

/// The policy's own file first, then what it extends, as they were read.
pub(crate) fn policy(understood: &Understood, evidence: &RunFolder) -> Result<(), String> {
    let mut text = settings::registries_meant(&understood.upstream.registries);
    for (path, part) in &understood.gateway_policy {
        text.push_str(&format!("# {}\n{part}", path.display()));
        if !part.ends_with('\n') {
            text.push('\n');
        }
    }
    evidence.write_policy(&text).map_err(|err| in_words(&err))
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
}

impl Leavings<'_> {
    pub(crate) fn changes(&self) -> Result<(), String> {
        let (Some(project), Some(upper)) = (self.root, self.upper) else { return Ok(()) };
        let overlaid = Overlaid {
            project,
            upper,
            marks: Marks::User,
            started: self.begun,
            protect: self.protect,
            deny: self.deny,
        };
        let changes = workspace::changes(&overlaid, &ChangeLimits::default());
        let changes = changes.map_err(|err| in_words(&err))?;
        self.evidence.write_changes(changes).map(drop).map_err(|err| in_words(&err))
    }

    /// From where the sandbox wrote: the upper layer, or the project itself.
    pub(crate) fn artifacts(&self) -> Result<(), String> {
        let Some(source) = self.upper.or(self.root) else { return Ok(()) };
        let limits = ArtifactLimits::default();
        let collected = self.evidence.collect_artifacts(source, self.artifacts, self.deny, &limits);
        collected.map(drop).map_err(|err| in_words(&err))
    }
}

pub(crate) fn in_words(err: &dyn std::error::Error) -> String {
    Chain(err).to_string()
}
