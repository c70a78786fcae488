//! What later commands know of a session: `session.json` in its folder.
//!
//! It is written before the sandbox is made, by the one who holds the folder,
//! and goes with the folder. Whether the session lives is not written down; it
//! is asked.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::backend::GatewayLog;
use crate::control;
use crate::disk::{Watch, Watched};
use crate::evidence::RunFolder;
use crate::first_process::{self, Answer};
use crate::outcome::StopReason;
use crate::plan::Plan;
use crate::run_id::RunId;
use crate::run_lock::is_locked;
use crate::supervise::GatewayWatch;
use crate::unsealed::{SESSION_FILE, Unsealed};

/// Why its command was ended, beside it.
const STOPPED_FILE: &str = "stopped.json";

/// A sandbox that outlives whoever started it, as plain data.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct State {
    pub name: String,
    /// What the backend calls the sandbox.
    pub sandbox: Option<String>,
    #[serde(flatten)]
    pub unsealed: Unsealed,
}

impl State {
    /// Where its first process answers.
    pub fn socket(&self) -> PathBuf {
        first_process::socket_in(self.folder())
    }

    pub fn run(&self) -> &RunId {
        self.unsealed.run()
    }

    pub fn plan(&self) -> &Plan {
        &self.unsealed.plan
    }

    /// The folder that goes with it, in which this stands.
    pub fn folder(&self) -> &Path {
        &self.unsealed.folder
    }

    /// When its time is over.
    pub fn until(&self) -> Timestamp {
        self.plan().session.as_ref().map_or(self.unsealed.begun, |session| session.until)
    }

    pub fn evidence(&self) -> anyhow::Result<RunFolder> {
        Ok(RunFolder::open(&self.unsealed.runs, self.run().as_str())?)
    }

    /// Asks whether it lives.
    pub fn answer(&self) -> Answer {
        first_process::hello(&self.socket())
    }

    pub fn is_over(&self, now: Timestamp) -> bool {
        self.until() <= now
    }

    /// Notices that its gateway died, which says nothing to us. One that keeps the time
    /// may go when that is over.
    pub fn gateway(&self) -> Option<GatewayWatch> {
        let wanted = self.plan().network.is_some() && !self.is_over(Timestamp::now());
        let log = GatewayLog::default();
        log.end();
        wanted.then(|| GatewayWatch { log, control: control::connector_in(self.folder()) })
    }

    /// Whether it writes to the project itself.
    pub fn is_direct(&self) -> bool {
        self.unsealed.workspace.as_ref().is_some_and(|layout| layout.direct)
    }

    /// Why whoever was attached ended its command, if they did.
    pub fn stop_reason(&self) -> Option<StopReason> {
        serde_json::from_slice(&fs::read(self.folder().join(STOPPED_FILE)).ok()?).ok()
    }

    /// Writes down why its command was ended, for whoever finishes it.
    pub fn write_stop_reason(&self, reason: StopReason) -> io::Result<()> {
        audit::write_whole_file(&self.folder().join(STOPPED_FILE), &serde_json::to_vec(&reason)?)
    }

    /// Looks after what was written to the project, by whatever has run so far.
    pub fn watch(&self) -> Watch {
        let Some(layout) = &self.unsealed.workspace else { return Watch::nothing() };
        let (directory, growth_alone) = match (&layout.upper, layout.direct) {
            (Some(upper), _) => (upper, false),
            (None, true) => (&layout.root, true),
            (None, false) => return Watch::nothing(),
        };
        Watch::over(Watched::new(directory, &self.plan().limits, growth_alone))
    }

    /// Writes it into the folder of its run.
    pub fn write(&self) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        let path = self.folder().join(SESSION_FILE);
        audit::put_whole_file(&path, 0o600, |file| file.write_all(text.as_bytes())).map(drop)
    }

    /// Writes it for the first time, unless a session that lives, or one that
    /// is being made, has its name.
    pub fn claim(&self) -> anyhow::Result<()> {
        let runtime = self.folder().parent().unwrap_or(self.folder());
        let lock = File::create(runtime.join(".names")).context("cannot reserve a name")?;
        lock.lock().context("cannot reserve a name")?;
        let mut others = all(runtime).into_iter().filter(|other| other.run() != self.run());
        if let Some(other) = others.find(|other| other.name == self.name) {
            let gone = other.answer() == Answer::Gone && !is_locked(other.folder());
            if !gone {
                return Err(anyhow!(
                    "there is a session `{}` already ({})",
                    self.name,
                    other.run()
                ));
            }
        }
        self.write().context("cannot write the session's state")
    }

    /// The state in a run's folder, if the run is a session.
    pub fn in_folder(folder: &Path) -> Option<Self> {
        let bytes = fs::read(folder.join(SESSION_FILE)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    pub fn of_run(run: &RunId, runtime: &Path) -> Option<Self> {
        Self::in_folder(&runtime.join(run.as_str()))
    }

    /// The session with this name, or this run.
    pub fn find(written: &str, runtime: &Path) -> Option<Self> {
        match RunId::parse(written) {
            Ok(run) => Self::of_run(&run, runtime),
            // The newest: one before it of the same name is dead.
            Err(_) => all(runtime).into_iter().rfind(|state| state.name == written),
        }
    }
}

/// The session that a run is, as long as it has not been closed.
pub fn living(run: &str, runtime: &Path) -> Option<State> {
    State::of_run(&RunId::parse(run).ok()?, runtime)
}

/// Every session there is a folder of, the oldest first.
pub fn all(runtime: &Path) -> Vec<State> {
    let entries = fs::read_dir(runtime).into_iter().flatten().flatten();
    let is_run = |name: &std::ffi::OsStr| name.to_str().is_some_and(|n| RunId::parse(n).is_ok());
    let mut found: Vec<State> = entries
        .filter(|entry| is_run(&entry.file_name()))
        .filter_map(|entry| State::in_folder(&entry.path()))
        .collect();
    found.sort_by(|a, b| a.run().cmp(b.run()));
    found
}

/// The name of a session, as a person may write it: short, and not a path, a
/// run or a place inside a sandbox.
pub fn name(written: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let fits = (1..=40).contains(&written.len())
        && written.bytes().all(plain)
        && written.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
    if !fits {
        return Err("a name has letters, digits, `-`, `_` and `.`, 40 at most".to_owned());
    }
    if RunId::parse(written).is_ok() {
        return Err("that is how runs are called".to_owned());
    }
    Ok(written.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_never_a_path_or_a_run() {
        for good in ["a", "work", "Agent-2_b.c"] {
            assert_eq!(name(good).as_deref(), Ok(good));
        }
        for bad in ["", ".", "..", "a/b", "-x", "a:b", "a b", "20261116-031045-7f3a2b"] {
            assert!(name(bad).is_err(), "{bad}");
        }
        assert!(name(&"a".repeat(41)).is_err());
    }
}
