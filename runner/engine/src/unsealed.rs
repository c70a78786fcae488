//! Runs whose evidence is not sealed yet: `<state>/unsealed/<run>.json`.
//!
//! A runner that is killed, or whose machine goes down, cannot seal what it
//! recorded. So before the command starts it writes down what sealing takes,
//! beside the evidence and not in a folder that a restart empties, and holds a
//! lock on that file for as long as it lives. A sweep that gets the lock knows
//! that nobody else will seal the run: it closes the evidence as `lost`. A session
//! goes on without a runner; its file counts once its own folder is gone.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use audit::{Log, Options, Text};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::evidence::{Collected, RunFolder};
use crate::leftovers::{Layout, Leftovers, layout};
use crate::origin::Origin;
use crate::outcome::{Outcome, Usage};
use crate::plan::Plan;
use crate::prepare::{self, Prepared};
use crate::record::{self, CommandRecord, Record, RunState, in_words};
use crate::run_id::RunId;
use crate::run_lock::is_locked;
use crate::spec::ResolvedRun;
use crate::spooled::finish_transcripts;
use crate::state_folder;
use crate::work_budget::WorkBudget;

/// What it takes to close the evidence of a run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Unsealed {
    /// Its environment is not written down.
    pub plan: Plan,
    pub origin: Origin,
    pub begun: Timestamp,
    /// The folder that goes with the run.
    pub folder: PathBuf,
    /// Where the evidence of all runs is.
    pub runs: PathBuf,
    /// The state directory, with the key that evidence is sealed with.
    pub state: PathBuf,
    pub workspace: Option<Layout>,
}

/// In the folder of a sandbox that outlives whoever started it.
pub const SESSION_FILE: &str = "session.json";

/// Proof that somebody is going to seal the run, for as long as it is kept.
#[derive(Debug)]
#[must_use]
pub struct Sealer {
    path: PathBuf,
    _lock: File,
}

impl Sealer {
    /// The evidence is closed. The lock goes last: nobody finds the file unheld.
    pub fn done(self) {
        drop(fs::remove_file(&self.path));
    }
}

/// How a run ended that its own runner did not close.
#[derive(Debug)]
pub struct Ending {
    pub outcome: Outcome,
    pub usage: Option<Usage>,
    /// What could not be removed.
    pub left: Vec<String>,
    /// Unknown where nobody was there.
    pub ended: Option<Timestamp>,
    /// What a session's commands came to.
    pub commands: Option<Vec<CommandRecord>>,
    pub sealed_by: &'static str,
}

impl Unsealed {
    pub fn new(plan: &Plan, resolved: &ResolvedRun, prepared: &Prepared, begun: Timestamp) -> Self {
        let workspace = layout(plan, resolved, prepared);
        Self { workspace, ..Self::without_project(plan, resolved, begun) }
    }

    /// Of a run that has no project, or the project itself.
    pub fn without_project(plan: &Plan, resolved: &ResolvedRun, begun: Timestamp) -> Self {
        Self {
            plan: plan.clone(),
            origin: plan.origin.clone(),
            begun,
            folder: prepare::folder(plan, &resolved.environment),
            runs: resolved.request.runs.clone(),
            state: resolved.state.clone(),
            workspace: None,
        }
    }

    pub fn run(&self) -> &RunId {
        &self.plan.run
    }

    /// Writes down what has begun: the policy, the record, and what sealing takes.
    /// That a later sweep cannot seal it is no reason not to run.
    pub fn begin(&self, resolved: &ResolvedRun, evidence: &RunFolder) -> Option<Sealer> {
        let record = Record::begun(&self.plan, self.begun);
        evidence.begin(&record::policy_text(resolved), &record).ok()?;
        self.register().ok()
    }

    pub fn register(&self) -> io::Result<Sealer> {
        let all = state_folder::unsealed(&self.state);
        DirBuilder::new().recursive(true).mode(0o700).create(&all)?;
        let path = all.join(format!("{}.json", self.run()));
        let text = serde_json::to_string_pretty(self)?;
        // Under another name until it is held and whole.
        let lock = audit::put_whole_file(&path, 0o600, |file| {
            file.try_lock()?;
            file.write_all(text.as_bytes())
        })?;
        Ok(Sealer { path, _lock: lock })
    }

    /// Takes over sealing, unless somebody who lives will do it.
    pub fn take_over(&self) -> Option<Sealer> {
        let path = state_folder::unsealed(&self.state).join(format!("{}.json", self.run()));
        let file = File::open(&path).ok()?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => return None,
        }
        // Whoever had it may have been done in between.
        path.exists().then_some(Sealer { path, _lock: file })
    }

    /// Every run of this installation that nobody carries out any more. Those whose folder
    /// is in `runtime` and held are not even read: at a start there may be a hundred.
    pub fn abandoned(state: &Path, runtime: &Path) -> Vec<(Self, Sealer)> {
        let entries = fs::read_dir(state_folder::unsealed(state)).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        let all = paths.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
        let is_held =
            |path: &PathBuf| path.file_stem().is_some_and(|run| is_locked(&runtime.join(run)));
        all.filter(|path| !is_held(path))
            .filter_map(|path| {
                let unsealed: Self = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
                let goes_on = match unsealed.plan.session.is_some() {
                    true => unsealed.folder.join(SESSION_FILE).exists(),
                    false => is_locked(&unsealed.folder),
                };
                if goes_on {
                    return None;
                }
                let sealer = unsealed.take_over()?;
                Some((unsealed, sealer))
            })
            .collect()
    }

    /// Closes the evidence of a run whose runner is gone; what is missing in it.
    pub async fn close_as_lost(&self, sealer: Sealer) -> Vec<String> {
        let why = "its `sluice` was killed or the machine went down, so nobody saw its end";
        let ending = Ending {
            outcome: Outcome::Lost { why: why.to_owned() },
            usage: None,
            left: Vec::new(),
            ended: None,
            commands: None,
            sealed_by: "sweep",
        };
        let missing = match RunFolder::open(&self.runs, self.run().as_str()) {
            Ok(evidence) => self.close(ending, &evidence, &WorkBudget::unattended()).await.1,
            // Somebody removed it; there is nothing to seal.
            Err(_) => Vec::new(),
        };
        sealer.done();
        missing
    }

    /// Writes and seals what there is; the record, and what is missing.
    pub async fn close(
        &self,
        ending: Ending,
        evidence: &RunFolder,
        budget: &WorkBudget,
    ) -> (Option<Record>, Vec<String>) {
        if evidence.path().join(audit::seal::SEAL).exists() {
            // Closed before, by somebody who could not remove everything.
            return (evidence.read_run().ok(), Vec::new());
        }
        let (mut missing, collected) = self.keep(evidence, budget);
        let record = evidence.read_run::<Record>().unwrap_or_else(|err| {
            missing.push(format!("record: {}", in_words(&err)));
            let origin = self.origin.clone();
            Record { origin, ..Record::begun(&self.plan, self.begun) }
        });
        if let Err(err) = finish_transcripts(evidence, &self.plan.command) {
            missing.push(format!("transcript: {}", in_words(&err)));
        }
        if let Err(why) = mend_log(self.run(), evidence).await {
            missing.push(format!("log: {why:#}"));
        }
        let record = Record {
            state: RunState::Ended,
            ended: ending.ended,
            exit_code: ending.outcome.code(),
            outcome: Some(ending.outcome),
            usage: ending.usage,
            left: ending.left,
            missing: missing.clone(),
            not_done: budget.not_done(),
            artifacts_left_out: collected.left_out,
            sealed_by: Some(ending.sealed_by.into()),
            commands: ending.commands,
            ..record
        };
        if let Err(err) = evidence.write_run(&record) {
            missing.push(format!("record: {}", in_words(&err)));
        }
        if let Err(err) = evidence.seal_with(&self.state, &collected.artifacts) {
            missing.push(format!("seal: {}", in_words(&err)));
        }
        (Some(record), missing)
    }

    /// Keeps what changed and what was to be made; what is missing.
    fn keep(&self, evidence: &RunFolder, budget: &WorkBudget) -> (Vec<String>, Collected) {
        let Some(leftovers) = self.leftovers(evidence, budget) else { return Default::default() };
        let mut missing = Vec::new();
        if let Err(why) = leftovers.changes() {
            missing.push(format!("changes: {why}"));
        }
        let collected = leftovers.artifacts().unwrap_or_else(|why| {
            missing.push(format!("artifacts: {why}"));
            Collected::default()
        });
        (missing, collected)
    }

    /// What the sandbox left on the host's disk, if it had a project.
    pub fn leftovers<'l>(
        &'l self,
        evidence: &'l RunFolder,
        budget: &'l WorkBudget,
    ) -> Option<Leftovers<'l>> {
        let layout = self.workspace.as_ref()?;
        Some(Leftovers {
            evidence,
            begun: self.begun,
            root: Some(&layout.root),
            upper: layout.upper.as_deref(),
            protect: &layout.protect,
            deny: &layout.deny,
            artifacts: &layout.artifacts,
            budget,
        })
    }
}

/// Cuts off a line that its writer did not finish, since a log with one cannot be
/// sealed; the log says so itself. A log that only breaks off is left as it is.
async fn mend_log(run: &RunId, evidence: &RunFolder) -> anyhow::Result<()> {
    let folder = evidence.path().join(audit::segment::GATEWAY_FOLDER);
    if !folder.is_dir() {
        return Ok(());
    }
    let torn = match audit::verify(&folder, &[]) {
        Err(audit::VerifyError::Broken(at)) => {
            matches!(at.fault, audit::Fault::TornTail { .. })
        }
        Ok(_) | Err(_) => false,
    };
    if torn {
        let writer = Text::constant(concat!("sluice ", env!("CARGO_PKG_VERSION")));
        let (log, _) = Log::open(&folder, Options { writer, ..Options::new(run.as_str()) })?;
        log.close().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::{planned, request};

    fn unsealed(home: &Path, run: &RunId) -> Unsealed {
        let mut plan = planned("version: 1\n", &request());
        plan.run = run.clone();
        plan.session = None;
        Unsealed {
            origin: Origin::default(),
            plan,
            begun: Timestamp::now(),
            folder: home.join("runtime").join(run.as_str()),
            runs: home.join("runs"),
            state: home.to_owned(),
            workspace: None,
        }
    }

    #[test]
    fn a_run_is_abandoned_only_when_nobody_holds_it_any_more() {
        let home = tempfile::tempdir().unwrap();
        let sealer = unsealed(home.path(), &RunId::now()).register().unwrap();
        assert!(Unsealed::abandoned(home.path(), home.path()).is_empty(), "its runner lives");
        // As when the process ends, however it ends.
        drop(sealer);
        let mut abandoned = Unsealed::abandoned(home.path(), home.path());
        assert_eq!(abandoned.len(), 1);
        assert!(Unsealed::abandoned(home.path(), home.path()).is_empty(), "somebody is sealing it");
        abandoned.pop().unwrap().1.done();
        assert!(Unsealed::abandoned(home.path(), home.path()).is_empty());
    }

    #[tokio::test]
    async fn a_lost_run_is_sealed_with_its_log_also_when_its_last_line_is_torn() {
        for torn in ["", r#"{"v":1,"se"#] {
            let home = tempfile::tempdir().unwrap();
            let run = RunId::now();
            let unsealed = unsealed(home.path(), &run);
            let evidence = RunFolder::create(&unsealed.runs, run.as_str()).unwrap();
            let log = evidence.gateway_log().unwrap();
            let (writer, _) = Log::open(&log, Options::new(run.as_str())).unwrap();
            writer.close().await.unwrap();
            let file = log.join("audit.jsonl");
            let text = fs::read_to_string(&file).unwrap();
            // Without its closing line, as a killed gateway leaves it.
            let first = text.lines().next().unwrap();
            fs::write(&file, format!("{first}\n{torn}")).unwrap();

            drop(unsealed.register().unwrap());
            let (found, sealer) = Unsealed::abandoned(home.path(), home.path()).pop().unwrap();
            assert_eq!(
                found.close_as_lost(sealer).await,
                ["record: cannot open \
                RUN/run.json: No such file or directory (os error 2)"
                    .replace("RUN", &evidence.path().display().to_string())]
            );
            let record: Record = evidence.read_run().unwrap();
            let outcome = record.outcome.as_ref().map(Outcome::kind);
            assert_eq!(outcome, Some("lost"), "{record:?}");
            let key = audit::SigningKey::load(&state_folder::key(home.path())).unwrap();
            let verified = audit::verify(evidence.path(), &[key.public()]).unwrap();
            assert!(verified.seal.is_some());
            assert_eq!(verified.log.unwrap().recovered, u64::from(!torn.is_empty()));
        }
    }
}
