//! What a sandbox left on the host's disk, and what of it is evidence: what changed
//! in the project, and what was declared as worth keeping.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use policies::{FileGlob, RelativePath, Workspace};
use serde::{Deserialize, Serialize};

use crate::evidence::{ArtifactLimits, Collected, RunFolder};
use crate::plan::Plan;
use crate::prepare::Prepared;
use crate::record::in_words;
use crate::spec::ResolvedRun;
use crate::work_budget::{self, WorkBudget};
use crate::workspace::{self, ChangeLimits, Marks, Overlaid};

/// The project on the host, and what is kept of it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    pub root: PathBuf,
    /// What the sandbox writes, if that is kept apart.
    pub upper: Option<PathBuf>,
    /// Whether it writes to the project itself.
    pub direct: bool,
    #[serde(serialize_with = "crate::record_format::as_written")]
    pub protect: BTreeSet<RelativePath>,
    #[serde(serialize_with = "crate::record_format::as_written")]
    pub deny: Vec<FileGlob>,
    #[serde(serialize_with = "crate::record_format::as_written")]
    pub artifacts: Vec<FileGlob>,
}

/// The project on the host, and what is kept of it.
pub fn layout(plan: &Plan, resolved: &ResolvedRun, prepared: &Prepared) -> Option<Layout> {
    let workspace = prepared.workspace.as_ref()?;
    Some(Layout {
        root: workspace.root.clone(),
        upper: workspace.overlay.as_ref().map(|overlay| overlay.upper.clone()),
        direct: plan.workspace.mode == Workspace::Direct,
        protect: plan.workspace.protect.clone(),
        deny: workspace.deny.clone(),
        artifacts: resolved.policy.fs.artifacts.clone(),
    })
}

/// What a sandbox left on the host's disk, and what of it is evidence.
#[derive(Clone, Copy, Debug)]
pub struct Leftovers<'l> {
    pub evidence: &'l RunFolder,
    pub begun: Timestamp,
    /// The project, if there was one.
    pub root: Option<&'l Path>,
    /// What was written over it, if that was kept apart.
    pub upper: Option<&'l Path>,
    pub protect: &'l BTreeSet<RelativePath>,
    pub deny: &'l [FileGlob],
    pub artifacts: &'l [FileGlob],
    pub budget: &'l WorkBudget,
}

impl Leftovers<'_> {
    /// How many there are, if what was written was kept apart.
    pub fn changes(&self) -> Result<Option<usize>, String> {
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
    pub fn artifacts(&self) -> Result<Collected, String> {
        let Some(source) = self.upper.or(self.root) else { return Ok(Collected::default()) };
        self.budget.begin("artifacts", work_budget::ARTIFACTS);
        let (limits, budget) = (ArtifactLimits::default(), self.budget);
        let collected =
            self.evidence.collect_artifacts(source, self.artifacts, self.deny, &limits, budget);
        collected.map_err(|err| in_words(&err))
    }
}
