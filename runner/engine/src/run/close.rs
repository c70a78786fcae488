//! Closes the evidence of a run that has ended.
//!
//! What changed, what was declared as worth keeping, the record, the seal. One
//! part that cannot be had does not keep the others from being written; it is
//! named instead. Nor does one that takes too long, or that somebody stops: what
//! is there by then is recorded and sealed.

use crate::evidence::Collected;
use crate::leftovers::Leftovers;
use crate::plan::Plan;
use crate::prepare::Prepared;
use crate::record::{Record, in_words, write_policy};
use crate::report::RunReport;
use crate::spec::ResolvedRun;
use crate::spooled::finish_transcripts;
use crate::work_budget::WorkBudget;

/// Writes everything there is to write, and notes in the report what is missing.
pub fn close(
    plan: &Plan,
    resolved: &ResolvedRun,
    prepared: &Prepared,
    report: &mut RunReport,
    budget: &WorkBudget,
) {
    let mut missing = Vec::new();
    let mut had = |what: &str, had: Result<(), String>| {
        if let Err(why) = had {
            missing.push(format!("{what}: {why}"));
        }
    };
    had("policy", write_policy(resolved, &prepared.evidence));
    let finished = finish_transcripts(&prepared.evidence, &plan.command);
    had("transcript", finished.map_err(|err| in_words(&err)));
    let fs = &resolved.policy.fs;
    let workspace = prepared.workspace.as_ref();
    let leftovers = Leftovers {
        evidence: &prepared.evidence,
        begun: report.begun,
        root: workspace.map(|workspace| &*workspace.root),
        upper: workspace.and_then(|workspace| Some(&*workspace.overlay.as_ref()?.upper)),
        protect: &plan.workspace.protect,
        deny: workspace.map_or(&*fs.deny, |workspace| &workspace.deny),
        artifacts: &fs.artifacts,
        budget,
    };
    let changed = resolved.phases.now("changes", || leftovers.changes());
    report.changed = changed.as_ref().ok().copied().flatten();
    had("changes", changed.map(drop));
    let collected = resolved.phases.now("artifacts", || leftovers.artifacts());
    let collected = collected.unwrap_or_else(|why| {
        had("artifacts", Err(why));
        Collected::default()
    });
    report.missing.append(&mut missing);
    report.not_done = budget.not_done();
    report.artifacts_left_out = collected.left_out;
    let record = Record::new(plan, report, &resolved.phases);
    let evidence = &prepared.evidence;
    let written = evidence.write_run(&record).map_err(|err| format!("record: {}", in_words(&err)));
    let sealed = evidence.seal_with(&resolved.state, &collected.artifacts).map(drop);
    let sealed = sealed.map_err(|err| format!("seal: {}", in_words(&err)));
    report.missing.extend([written, sealed].into_iter().filter_map(Result::err));
}
