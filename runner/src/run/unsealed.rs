//! Runs whose evidence is not sealed yet: `<state>/unsealed/<run>.json`.
//!
//! A runner that is killed, or whose machine goes down, cannot seal what it
//! recorded. So before the command starts it writes down what sealing takes,
//! beside the evidence and not in a folder that a restart empties, and holds a
//! lock on that file for as long as it lives. A sweep that gets the lock knows
//! that nobody else will seal the run: it closes the evidence as `lost`. A session
//! goes on without a runner; its file counts once its own folder is gone.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use audit::{Log, Options, Text};
use jiff::Timestamp;
use policies::Workspace;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::close::{self, Leavings, in_words};
use super::prepare::{self, Prepared};
use super::record::Record;
use crate::backend::Used;
use crate::evidence::{Collected, RunFolder};
use crate::outcome::{Outcome, Usage};
use crate::place;
use crate::plan::{Plan, RunId};
use crate::request::Understood;
use crate::session::state::{Layout, State};
use crate::sweep::is_held;
use crate::work_budget::WorkBudget;

/// What it takes to close the evidence of a run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Unsealed {
    pub(crate) run: RunId,
    pub(crate) backend: String,
    pub(crate) is_session: bool,
    pub(crate) begun: Timestamp,
    /// The folder that goes with the run.
    pub(crate) folder: PathBuf,
    /// Where the evidence of all runs is.
    pub(crate) runs: PathBuf,
    /// The state directory, with the key that evidence is sealed with.
    pub(crate) state: PathBuf,
    pub(crate) workspace: Option<Layout>,
}

/// Proof that somebody is going to seal the run, for as long as it is kept.
#[derive(Debug)]
#[must_use]
pub(crate) struct Sealer {
    path: PathBuf,
    _lock: File,
}

impl Sealer {
    /// The evidence is closed. The lock goes last: nobody finds the file unheld.
    pub(crate) fn done(self) {
        drop(fs::remove_file(&self.path));
    }
}

/// How a run ended that its own runner did not close.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) outcome: Outcome,
    pub(crate) usage: Option<Usage>,
    /// What could not be removed.
    pub(crate) left: Vec<String>,
    /// Unknown where nobody was there.
    pub(crate) ended: Option<Timestamp>,
    /// What a session's commands came to.
    pub(crate) commands: Option<Vec<Value>>,
    pub(crate) sealed_by: &'static str,
}

impl Unsealed {
    pub(crate) fn new(
        plan: &Plan,
        understood: &Understood,
        prepared: &Prepared,
        begun: Timestamp,
    ) -> Self {
        Self {
            run: plan.run.clone(),
            backend: plan.backend.to_owned(),
            is_session: plan.session.is_some(),
            begun,
            folder: prepare::folder(plan),
            runs: understood.request.runs.clone(),
            state: understood.state.clone(),
            workspace: layout(plan, understood, prepared),
        }
    }

    /// Writes down what has begun: the policy, the record, and what sealing takes.
    /// That a later sweep cannot seal it is no reason not to run.
    pub(crate) fn begin(
        &self,
        plan: &Plan,
        understood: &Understood,
        evidence: &RunFolder,
    ) -> Option<Sealer> {
        let (used, phases) = (Used::default(), &understood.phases);
        let record = Record::begun(plan, self.begun, &[], &used, phases);
        evidence.begin(&close::policy_text(understood), &record).ok()?;
        self.register().ok()
    }

    pub(crate) fn register(&self) -> io::Result<Sealer> {
        let all = place::unsealed(&self.state);
        DirBuilder::new().recursive(true).mode(0o700).create(&all)?;
        let path = all.join(format!("{}.json", self.run));
        // Under another name until it is held and whole.
        let draft = all.join(format!(".{}", self.run));
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.try_lock()?;
        file.write_all(serde_json::to_string_pretty(self)?.as_bytes())?;
        fs::rename(&draft, &path)?;
        Ok(Sealer { path, _lock: file })
    }

    /// Takes over sealing, unless somebody who lives will do it.
    pub(crate) fn take_over(&self) -> Option<Sealer> {
        let path = place::unsealed(&self.state).join(format!("{}.json", self.run));
        let file = File::open(&path).ok()?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => return None,
        }
        // Whoever had it may have been done in between.
        path.exists().then_some(Sealer { path, _lock: file })
    }

    /// Every run of this installation that nobody carries out any more.
    pub(crate) fn abandoned(state: &Path) -> Vec<(Self, Sealer)> {
        let entries = fs::read_dir(place::unsealed(state)).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        let all = paths.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
        all.filter_map(|path| {
            let unsealed: Self = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
            let goes_on = match unsealed.is_session {
                true => State::in_folder(&unsealed.folder).is_some(),
                false => is_held(&unsealed.folder),
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
    pub(crate) async fn close_as_lost(&self, sealer: Sealer) -> Vec<String> {
        let why = "its `sluice` was killed or the machine went down, so nobody saw its end";
        let ending = Ending {
            outcome: Outcome::Lost { why: why.to_owned() },
            usage: None,
            left: Vec::new(),
            ended: None,
            commands: None,
            sealed_by: "sweep",
        };
        let missing = match RunFolder::open(&self.runs, self.run.as_str()) {
            Ok(evidence) => self.close(ending, &evidence, &WorkBudget::unattended()).await.1,
            // Somebody removed it; there is nothing to seal.
            Err(_) => Vec::new(),
        };
        sealer.done();
        missing
    }

    /// Writes and seals what there is; the record, and what is missing.
    pub(crate) async fn close(
        &self,
        ending: Ending,
        evidence: &RunFolder,
        budget: &WorkBudget,
    ) -> (Value, Vec<String>) {
        if evidence.path().join(audit::seal::SEAL).exists() {
            // Closed before, by somebody who could not remove everything.
            return (evidence.read_run().unwrap_or_default(), Vec::new());
        }
        let (mut missing, collected) = self.keep(evidence, budget);
        let mut record = evidence.read_run::<Value>().unwrap_or_else(|err| {
            missing.push(format!("record: {}", in_words(&err)));
            json!({"run": self.run, "begun": self.begun})
        });
        if let Err(why) = mend_log(&self.run, evidence).await {
            missing.push(format!("log: {why:#}"));
        }
        let mut news = json!({
            "state": "ended",
            "ended": ending.ended,
            "exit_code": ending.outcome.code(),
            "outcome": ending.outcome,
            "usage": ending.usage,
            "left": ending.left,
            "missing": missing,
            "not_done": budget.not_done(),
            "artifacts_left_out": collected.left_out,
            "sealed_by": ending.sealed_by,
        });
        if let (Value::Object(news), Some(commands)) = (&mut news, ending.commands) {
            news.insert("commands".to_owned(), commands.into());
        }
        if let (Value::Object(record), Value::Object(news)) = (&mut record, news) {
            record.extend(news);
        }
        if let Err(err) = evidence.write_run(&record) {
            missing.push(format!("record: {}", in_words(&err)));
        }
        if let Err(err) = evidence.seal_with(&self.state, &collected.artifacts) {
            missing.push(format!("seal: {}", in_words(&err)));
        }
        (record, missing)
    }

    /// Keeps what changed and what was to be made; what is missing.
    fn keep(&self, evidence: &RunFolder, budget: &WorkBudget) -> (Vec<String>, Collected) {
        let Some(leavings) = self.leavings(evidence, budget) else { return Default::default() };
        let mut missing = Vec::new();
        if let Err(why) = leavings.changes() {
            missing.push(format!("changes: {why}"));
        }
        let collected = leavings.artifacts().unwrap_or_else(|why| {
            missing.push(format!("artifacts: {why}"));
            Collected::default()
        });
        (missing, collected)
    }

    /// What the sandbox left on the host's disk, if it had a project.
    pub(crate) fn leavings<'l>(
        &'l self,
        evidence: &'l RunFolder,
        budget: &'l WorkBudget,
    ) -> Option<Leavings<'l>> {
        let layout = self.workspace.as_ref()?;
        Some(Leavings {
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

/// The project on the host, and what is kept of it.
pub(crate) fn layout(plan: &Plan, understood: &Understood, prepared: &Prepared) -> Option<Layout> {
    let workspace = prepared.workspace.as_ref()?;
    Some(Layout {
        root: workspace.root.clone(),
        upper: workspace.overlay.as_ref().map(|overlay| overlay.upper.clone()),
        direct: plan.workspace.mode == Workspace::Direct,
        protect: prepare::protect(plan),
        deny: workspace.deny.clone(),
        artifacts: understood.policy.fs.artifacts.clone(),
    })
}

/// Cuts off a line that its writer did not finish, since a log with one cannot be
/// sealed; the log says so itself. A log that only breaks off is left as it is.
async fn mend_log(run: &RunId, evidence: &RunFolder) -> anyhow::Result<()> {
    let folder = evidence.path().join(audit::segment::WITH_GATEWAY);
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

    fn unsealed(home: &Path, run: &RunId) -> Unsealed {
        Unsealed {
            run: run.clone(),
            backend: "none".to_owned(),
            is_session: false,
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
        assert!(Unsealed::abandoned(home.path()).is_empty(), "its runner lives");
        // As when the process ends, however it ends.
        drop(sealer);
        let mut abandoned = Unsealed::abandoned(home.path());
        assert_eq!(abandoned.len(), 1);
        assert!(Unsealed::abandoned(home.path()).is_empty(), "somebody is sealing it");
        abandoned.pop().unwrap().1.done();
        assert!(Unsealed::abandoned(home.path()).is_empty());
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
            let (found, sealer) = Unsealed::abandoned(home.path()).pop().unwrap();
            assert_eq!(
                found.close_as_lost(sealer).await,
                ["record: cannot open \
                RUN/run.json: No such file or directory (os error 2)"
                    .replace("RUN", &evidence.path().display().to_string())]
            );
            let record: Value = evidence.read_run().unwrap();
            assert_eq!(record["outcome"]["kind"], "lost", "{record}");
            let key = audit::Key::load(&place::key(home.path())).unwrap();
            let verified = audit::verify(evidence.path(), &[key.public()]).unwrap();
            assert!(verified.seal.is_some());
            assert_eq!(verified.log.unwrap().recovered, u64::from(!torn.is_empty()));
        }
    }
}
