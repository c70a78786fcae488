//! What later commands know of a session: `session.json` in its folder.
//!
//! It is written before the sandbox is made, by the one who holds the folder,
//! and goes with the folder. Whether the session lives is not written down; it
//! is asked.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use jiff::Timestamp;
use policies::{FileGlob, RelativePath};
use serde::{Deserialize, Serialize};

use super::call::{self, Answer};
use crate::evidence::RunFolder;
use crate::exit::Failure;
use crate::place;
use crate::plan::RunId;
use crate::run::unsealed::Unsealed;
use crate::workspace::changes::as_written;

/// One session, as plain data.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    pub(crate) name: String,
    pub(crate) run: RunId,
    pub(crate) backend: String,
    /// What the backend calls the sandbox.
    pub(crate) sandbox: Option<String>,
    pub(crate) image: String,
    /// Who commands are, as the host sees it.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) begun: Timestamp,
    pub(crate) until: Timestamp,
    /// Whether there is a gateway.
    pub(crate) network: bool,
    pub(crate) limits: CommandLimits,
    /// Where the evidence of all runs is.
    pub(crate) runs: PathBuf,
    /// The state directory, with the key that evidence is sealed with.
    pub(crate) state: PathBuf,
    pub(crate) workspace: Option<Layout>,
}

/// What each command may take.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandLimits {
    pub(crate) timeout_millis: u64,
    pub(crate) grace_millis: u64,
    /// Bytes it may print.
    pub(crate) output: u64,
    /// Bytes and files that all of them together may write to the project; and
    /// that may be copied in or out at once.
    pub(crate) disk: u64,
    pub(crate) files: u64,
}

impl CommandLimits {
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_millis)
    }

    pub(crate) fn grace(&self) -> Duration {
        Duration::from_millis(self.grace_millis)
    }
}

/// The project on the host, and what is kept of it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Layout {
    pub(crate) root: PathBuf,
    /// What the sandbox writes, if that is kept apart.
    pub(crate) upper: Option<PathBuf>,
    /// Whether it writes to the project itself.
    pub(crate) direct: bool,
    #[serde(serialize_with = "as_written")]
    pub(crate) protect: BTreeSet<RelativePath>,
    #[serde(serialize_with = "as_written")]
    pub(crate) deny: Vec<FileGlob>,
    #[serde(serialize_with = "as_written")]
    pub(crate) artifacts: Vec<FileGlob>,
}

impl State {
    pub(crate) fn folder(&self) -> PathBuf {
        folder(&self.run)
    }

    /// Where its first process answers.
    pub(crate) fn socket(&self) -> PathBuf {
        socket(&self.folder())
    }

    /// What closing its evidence takes.
    pub(crate) fn unsealed(&self) -> Unsealed {
        Unsealed {
            run: self.run.clone(),
            backend: self.backend.clone(),
            is_session: true,
            begun: self.begun,
            folder: self.folder(),
            runs: self.runs.clone(),
            state: self.state.clone(),
            workspace: self.workspace.clone(),
        }
    }

    pub(crate) fn evidence(&self) -> anyhow::Result<RunFolder> {
        Ok(RunFolder::open(&self.runs, self.run.as_str())?)
    }

    /// Asks whether it lives.
    pub(crate) fn answer(&self) -> Answer {
        call::hello(&self.socket())
    }

    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        self.until <= now
    }

    /// Writes it into the folder of its run.
    pub(crate) fn write(&self) -> io::Result<()> {
        let folder = self.folder();
        let draft = folder.join(".session.json");
        let mut file = OpenOptions::new();
        let mut file = file.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        let text = serde_json::to_string_pretty(self)?;
        file.write_all(text.as_bytes())?;
        fs::rename(draft, folder.join(FILE))
    }

    /// Writes it for the first time, unless a session that lives, or one that
    /// is being made, has its name.
    pub(crate) fn claim(&self) -> anyhow::Result<()> {
        let runtime = place::runtime(&place::environment);
        let lock = File::create(runtime.join(".names")).context("cannot reserve a name")?;
        lock.lock().context("cannot reserve a name")?;
        let mut others = all().into_iter().filter(|other| other.run != self.run);
        if let Some(other) = others.find(|other| other.name == self.name) {
            let gone = other.answer() == Answer::Gone && !crate::sweep::is_held(&other.folder());
            if !gone {
                return Err(anyhow!("there is a session `{}` already ({})", self.name, other.run));
            }
        }
        self.write().context("cannot write the session's state")
    }

    /// The state in a run's folder, if the run is a session.
    pub(crate) fn in_folder(folder: &Path) -> Option<Self> {
        let bytes = fs::read(folder.join(FILE)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    pub(crate) fn of_run(run: &RunId) -> Option<Self> {
        Self::in_folder(&folder(run))
    }

    /// The session that a person means: by its name, or by its run.
    pub(crate) fn find(written: &str) -> Result<Self, Failure> {
        let found = match RunId::parse(written) {
            Ok(run) => Self::of_run(&run),
            // The newest: one before it of the same name is dead.
            Err(_) => all().into_iter().rfind(|state| state.name == written),
        };
        found.ok_or_else(|| {
            let written: String = written.chars().take(80).collect();
            anyhow!("there is no session `{written}`; `sluice session ls` lists them").into()
        })
    }
}

/// The session that a run is, as long as it has not been closed.
pub(crate) fn living(run: &str) -> Option<State> {
    State::of_run(&RunId::parse(run).ok()?)
}

/// Every session there is a folder of, the oldest first.
pub(crate) fn all() -> Vec<State> {
    let runtime = place::runtime(&place::environment);
    let entries = fs::read_dir(runtime).into_iter().flatten().flatten();
    let is_run = |name: &std::ffi::OsStr| name.to_str().is_some_and(|n| RunId::parse(n).is_ok());
    let mut found: Vec<State> = entries
        .filter(|entry| is_run(&entry.file_name()))
        .filter_map(|entry| State::in_folder(&entry.path()))
        .collect();
    found.sort_by(|a, b| a.run.cmp(&b.run));
    found
}

fn folder(run: &RunId) -> PathBuf {
    place::runtime(&place::environment).join(run.as_str())
}

pub(super) fn socket(folder: &Path) -> PathBuf {
    folder.join("session.sock")
}

/// The name of a session, as a person may write it: short, and not a path, a
/// run or a place inside a sandbox.
pub(crate) fn name(written: &str) -> Result<String, String> {
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

const FILE: &str = "session.json";

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
