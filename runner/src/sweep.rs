//! `sluice sweep`: removes what runs left that were killed.
//!
//! A run is going on while its runner lives, and a runner that lives holds a
//! lock in its run's folder. Whatever is labelled with a run whose lock nobody
//! holds is removed; other people's runs are left to them.
//!
//! A session goes on without a runner, for as long as its first process answers
//! and its time is not over. Then its evidence is closed before it is removed.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use tokio::runtime::Runtime;

use crate::backend::{self, Backend, BackendError};
use crate::console::{Console, Format};
use crate::exit::{Exit, Failure};
use crate::place;
use crate::plan::RunId;
use crate::session::finish::{Why, finish, is_due};
use crate::session::state::State;
use crate::teardown::{Resource, remove};
use crate::workspace::removal::remove_folder;

/// Remove what runs left that were killed.
#[derive(Debug, Args)]
pub struct Sweep {}

/// What was found, and what came of it.
#[derive(Debug, Default, Serialize)]
pub struct Swept {
    pub removed: Vec<String>,
    pub left: Vec<String>,
}

pub fn run(_: &Sweep, console: &mut Console) -> Result<Exit, Failure> {
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let swept = runtime.block_on(async {
        let mut swept = Swept::default();
        for backend in backend::all().await {
            let Swept { removed, left } = sweep(&*backend).await?;
            swept.removed.extend(removed);
            swept.left.extend(left);
        }
        Ok::<_, BackendError>(swept)
    });
    let swept = swept.map_err(anyhow::Error::new)?;
    if console.format == Format::Table {
        for thing in &swept.removed {
            console.line(format_args!("removed {thing}"))?;
        }
        for thing in &swept.left {
            console.say(format_args!("left behind: {thing}"));
        }
        if swept.removed.is_empty() && swept.left.is_empty() {
            console.say("nothing is left over");
        }
    } else {
        console.json(&swept)?;
    }
    Ok(if swept.left.is_empty() { Exit::Success } else { Exit::Failed })
}

/// Removes everything of runs that nobody carries out any more.
pub async fn sweep(backend: &dyn Backend) -> Result<Swept, BackendError> {
    let us = rustix::process::getuid().as_raw();
    let runtime = place::runtime(&place::environment);
    let mut by_run: BTreeMap<RunId, Vec<Resource>> = BTreeMap::new();
    for found in backend.found().await? {
        if found.owner == us {
            by_run.entry(found.run).or_default().push(found.resource);
        }
    }
    for run in folders(&runtime) {
        by_run.entry(run).or_default();
    }
    remove_beginnings(&runtime);
    let mut swept = Swept::default();
    for (run, mut resources) in by_run {
        let folder = runtime.join(run.as_str());
        if is_held(&folder) {
            continue;
        }
        if let Some(state) = State::in_folder(&folder) {
            // Another backend's are for it to end.
            if state.backend == backend.name() && is_due(&state) {
                // Who holds it now is ending it.
                let Ok(held) = try_hold(&folder) else { continue };
                let finished = finish(&state, Why::Found, backend, held).await;
                swept.removed.extend(finished.removed);
                swept.left.extend(finished.left);
            }
            continue;
        }
        resources.push(Resource::Folder(folder));
        for resource in &resources {
            match remove(resource, backend).await {
                Ok(()) => swept.removed.push(resource.to_string()),
                Err(why) => swept.left.push(format!("{resource}: {why}")),
            }
        }
    }
    Ok(swept)
}

/// Where a run's folder is made, before it is held and gets its name.
pub(crate) fn beginning_of(folder: &Path) -> PathBuf {
    let run = folder.file_name().unwrap_or_default().to_string_lossy();
    folder.with_file_name(format!("{BEGINNING}{run}"))
}

/// Removes folders whose runner died before it held them.
fn remove_beginnings(runtime: &Path) {
    let entries = fs::read_dir(runtime).into_iter().flatten().flatten();
    for entry in entries {
        let begun = entry.file_name().to_string_lossy().starts_with(BEGINNING);
        let age = entry.metadata().and_then(|found| found.modified()).map(|time| time.elapsed());
        let old = matches!(age, Ok(Ok(age)) if age > LONGEST_BEGINNING);
        if begun && old && !is_held(&entry.path()) {
            // The next sweep tries again.
            drop(remove_folder(&entry.path()));
        }
    }
}

const BEGINNING: &str = ".new-";

/// To hold a folder takes a moment, even on a busy machine.
const LONGEST_BEGINNING: Duration = Duration::from_secs(60);

fn folders(runtime: &Path) -> Vec<RunId> {
    let entries = fs::read_dir(runtime).into_iter().flatten().flatten();
    entries.filter_map(|entry| RunId::parse(entry.file_name().to_str()?).ok()).collect()
}

/// Proof that a run is being carried out, for as long as its process lives.
#[derive(Debug)]
#[must_use]
pub struct Held {
    _lock: File,
}

/// Holds the run whose folder this is. The kernel lets go when we die, however
/// we die.
pub fn hold(folder: &Path) -> io::Result<Held> {
    let lock = File::create(lock_of(folder))?;
    lock.lock()?;
    Ok(Held { _lock: lock })
}

/// Holds it, unless somebody does.
pub(crate) fn try_hold(folder: &Path) -> io::Result<Held> {
    let lock = File::open(lock_of(folder))?;
    lock.try_lock()?;
    Ok(Held { _lock: lock })
}

/// Whether somebody carries out the run whose folder this is.
pub(crate) fn is_held(folder: &Path) -> bool {
    match File::open(lock_of(folder)).map(|lock| lock.try_lock()) {
        Ok(Err(TryLockError::WouldBlock)) => true,
        Ok(Ok(()) | Err(TryLockError::Error(_))) | Err(_) => false,
    }
}

fn lock_of(folder: &Path) -> PathBuf {
    folder.join("lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_begins_is_not_taken_for_what_a_crash_left() {
        let runtime = tempfile::tempdir().unwrap();
        let run = runtime.path().join("20261116-031045-7f3a2b");
        let new = beginning_of(&run);
        fs::create_dir(&new).unwrap();
        assert_eq!(folders(runtime.path()), [], "it has no run's name yet");
        remove_beginnings(runtime.path());
        assert!(new.exists(), "it is young");

        let held = hold(&new).unwrap();
        fs::rename(&new, &run).unwrap();
        assert_eq!(folders(runtime.path()).len(), 1);
        assert!(is_held(&run), "held under its new name too");
        drop(held);
    }

    #[test]
    fn a_run_is_held_for_as_long_as_somebody_carries_it_out() {
        let home = tempfile::tempdir().unwrap();
        assert!(!is_held(home.path()), "nobody ever held it");
        let held = hold(home.path()).unwrap();
        assert!(is_held(home.path()));
        drop(held);
        assert!(!is_held(home.path()));
    }
}
