//! Closes the evidence of a run that has ended.
//!
//! What changed, what was declared as worth keeping, the record, the seal. One
//! part that cannot be had does not keep the others from being written; it is
//! named instead.

use policies::Fs;

use super::prepare::{Prepared, protect};
use super::record::Chain;
use super::{Record, Report};
use crate::evidence::{ArtifactLimits, RunFolder};
use crate::plan::Plan;
use crate::request::Understood;
use crate::settings;
use crate::workspace::{self, ChangeLimits, Marks, Overlaid};

/// Writes everything there is to write; returns what is missing.
pub(super) fn close(
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
    had("changes", changes(plan, understood, prepared, report));
    had("artifacts", artifacts(&understood.policy.fs, prepared));
    let record = Record::new(plan, report, &understood.phases);
    had("record", prepared.evidence.write_run(&record).map_err(|err| in_words(&err)));
    had("seal", prepared.evidence.seal(&understood.state).map(drop).map_err(|err| in_words(&err)));
    missing
}

/// The policy's own file first, then what it extends, as they were read.
pub(super) fn policy(understood: &Understood, evidence: &RunFolder) -> Result<(), String> {
    let mut text = settings::registries_meant(&understood.upstream.registries);
    for (path, part) in &understood.gateway_policy {
        text.push_str(&format!("# {}\n{part}", path.display()));
        if !part.ends_with('\n') {
            text.push('\n');
        }
    }
    evidence.write_policy(&text).map_err(|err| in_words(&err))
}

fn changes(
    plan: &Plan,
    understood: &Understood,
    prepared: &Prepared,
    report: &Report,
) -> Result<(), String> {
    let Some(workspace) = &prepared.workspace else { return Ok(()) };
    let Some(overlay) = &workspace.overlay else { return Ok(()) };
    let overlaid = Overlaid {
        project: &workspace.root,
        upper: &overlay.upper,
        marks: Marks::User,
        started: report.begun,
        protect: &protect(plan),
        deny: &understood.policy.fs.deny,
    };
    let changes = workspace::changes(&overlaid, &ChangeLimits::default());
    let changes = changes.map_err(|err| in_words(&err))?;
    prepared.evidence.write_changes(changes).map(drop).map_err(|err| in_words(&err))
}

/// From where the run wrote: the upper layer, or the project itself.
fn artifacts(fs: &Fs, prepared: &Prepared) -> Result<(), String> {
    let Some(workspace) = &prepared.workspace else { return Ok(()) };
    let source = workspace.overlay.as_ref().map_or(&workspace.root, |overlay| &overlay.upper);
    let limits = ArtifactLimits::default();
    let collected = prepared.evidence.collect_artifacts(source, &fs.artifacts, &fs.deny, &limits);
    collected.map(drop).map_err(|err| in_words(&err))
}

pub(super) fn in_words(err: &dyn std::error::Error) -> String {
    Chain(err).to_string()
}
