//! `sluice sweep`: removes what runs left that were killed.
//!
//! A run is going on while its runner lives, and a runner that lives holds a
//! lock in its run's folder. Whatever is labelled with a run whose lock nobody
//! holds is removed; other people's runs are left to them. Where that folder is
//! depends on who started the run (`XDG_RUNTIME_DIR`), so whatever was made says
//! so itself.
//!
//! A session goes on without a runner, for as long as its first process answers
//! and its time is not over. Then its evidence is closed before it is removed.
//! The evidence of a run that was killed is closed as `lost`, once nothing of the
//! run stands any more; also when a restart of the machine removed its folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
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
use crate::run::unsealed::Unsealed;
use crate::session::finish::{Why, finish, is_due};
use crate::session::state::State;
use crate::shown::Shown;
use crate::teardown::{Resource, remove};
use crate::work_budget::WorkBudget;
use crate::workspace::removal::remove_folder;

/// Remove what runs left that were killed.
#[derive(Debug, Args)]
pub struct Sweep {}

/// What was found, and what came of it.
#[derive(Debug, Default, Serialize)]
pub struct Swept {
    pub removed: Vec<String>,
    pub left: Vec<String>,
    /// Runs whose evidence was closed as `lost`.
    pub sealed: Vec<String>,
    /// What could not be had of it.
    pub missing: Vec<String>,
}

impl Swept {
    /// Notes what came of removing `resource`; whether it is gone.
    fn add<E: std::fmt::Display>(&mut self, resource: &Resource, removed: Result<(), E>) -> bool {
        match &removed {
            Ok(()) => self.removed.push(resource.to_string()),
            Err(why) => self.left.push(format!("{resource}: {why}")),
        }
        removed.is_ok()
    }
}

pub fn run(_: &Sweep, console: &mut Console) -> Result<Exit, Failure> {
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let swept = runtime.block_on(async {
        let mut swept = Swept::default();
        for backend in backend::all().await {
            let found = sweep(&*backend).await?;
            swept.removed.extend(found.removed);
            swept.left.extend(found.left);
            swept.sealed.extend(found.sealed);
            swept.missing.extend(found.missing);
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
        for run in &swept.sealed {
            console.line(format_args!("sealed {run} as lost"))?;
        }
        for what in &swept.missing {
            console.say(format_args!("not in the evidence: {}", Shown(what)));
        }
        if swept.removed.is_empty() && swept.left.is_empty() && swept.sealed.is_empty() {
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
    let mut by_run: BTreeMap<(RunId, PathBuf), Vec<Resource>> = BTreeMap::new();
    for found in backend.found().await? {
        if found.owner == us {
            let runtime = found.runtime.unwrap_or_else(|| folder_of(&found.run, us, &runtime));
            by_run.entry((found.run, runtime)).or_default().push(found.resource);
        }
    }
    for run in folders(&runtime) {
        by_run.entry((run, runtime.clone())).or_default();
    }
    remove_beginnings(&runtime);
    let mut swept = Swept::default();
    let mut standing = BTreeSet::new();
    for ((run, place), resources) in by_run {
        let (folder, is_here) = (place.join(run.as_str()), place == runtime);
        if is_held(&folder) {
            continue;
        }
        if let Some(state) = State::in_folder(&folder) {
            // Another backend's, and those begun elsewhere, are for them to end.
            if is_here && state.backend == backend.name() && is_due(&state) {
                // Who holds it now is ending it.
                let Ok(held) = try_hold(&folder) else { continue };
                let budget = WorkBudget::unattended();
                let finished = finish(&state, Why::Found, backend, held, &budget).await;
                swept.removed.extend(finished.removed);
                swept.left.extend(finished.left);
            }
            continue;
        }
        let mut is_all_removed = true;
        for resource in &resources {
            is_all_removed &= swept.add(resource, remove(resource, backend).await);
        }
        // The folder is what the rest is found by, so it goes last and not with
        // another backend's sweep; and a label is not enough to remove one by.
        if is_here && is_all_removed && may_be_of(&folder, backend.name()) {
            let folder = Resource::Folder(folder);
            swept.add(&folder, remove(&folder, backend).await);
        }
        if !is_all_removed {
            standing.insert(run);
        }
    }
    close_lost(backend.name(), &standing, &mut swept).await;
    Ok(swept)
}

/// Seals the evidence of runs that nobody carries out any more, once nothing of
/// them stands.
async fn close_lost(backend: &str, standing: &BTreeSet<RunId>, swept: &mut Swept) {
    let Some(state) = place::state(&place::environment) else { return };
    for (unsealed, sealer) in Unsealed::abandoned(&state) {
        let is_ours = unsealed.backend == backend || unsealed.backend == "none";
        if is_ours && !standing.contains(&unsealed.run) {
            let missing = unsealed.close_as_lost(sealer).await;
            swept.sealed.push(unsealed.run.to_string());
            let missing = missing.into_iter().map(|what| format!("{}: {what}", unsealed.run));
            swept.missing.extend(missing);
        }
    }
}

/// Where the folder of a run is that does not say so: here, or where it is for
/// who has another environment.
fn folder_of(run: &RunId, user: u32, here: &Path) -> PathBuf {
    let usual = [format!("/run/user/{user}/sluice"), format!("/tmp/sluice-{user}")];
    let elsewhere = usual.map(PathBuf::from).into_iter().find(|at| at.join(run.as_str()).exists());
    match elsewhere {
        Some(elsewhere) if !here.join(run.as_str()).exists() => elsewhere,
        Some(_) | None => here.to_owned(),
    }
}

/// Writes down which backend a run has, for sweeps of the others.
pub(crate) fn name_backend(folder: &Path, backend: &str) -> io::Result<()> {
    fs::write(folder.join(BACKEND), backend)
}

/// Whether a run's folder may be of this backend: it says so, or says nothing.
fn may_be_of(folder: &Path, backend: &str) -> bool {
    fs::read_to_string(folder.join(BACKEND)).map_or(true, |named| named == backend)
}

const BACKEND: &str = "backend";

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
pub(crate) const LONGEST_BEGINNING: Duration = Duration::from_secs(60);

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

/// Holds it, unless somebody does. Whoever asks [`is_held`] has it for an instant
/// too, so it is tried more than once.
pub(crate) fn try_hold(folder: &Path) -> io::Result<Held> {
    let lock = File::open(lock_of(folder))?;
    for _ in 1..HOLDING_TRIES {
        match lock.try_lock() {
            Ok(()) => return Ok(Held { _lock: lock }),
            Err(TryLockError::WouldBlock) => thread::sleep(BETWEEN_TRIES),
            Err(TryLockError::Error(err)) => return Err(err),
        }
    }
    lock.try_lock()?;
    Ok(Held { _lock: lock })
}

const HOLDING_TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// Whether somebody carries out the run whose folder this is. Any number may ask
/// at once: they share what they try to take.
pub(crate) fn is_held(folder: &Path) -> bool {
    match File::open(lock_of(folder)).map(|lock| lock.try_lock_shared()) {
        Ok(Err(TryLockError::WouldBlock)) => true,
        Ok(Ok(()) | Err(TryLockError::Error(_))) | Err(_) => false,
    }
}

fn lock_of(folder: &Path) -> PathBuf {
    folder.join("lock")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

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
    fn who_asks_whether_a_run_is_held_is_not_taken_for_who_holds_it() {
        let home = tempfile::tempdir().unwrap();
        drop(hold(home.path()).unwrap());
        let asking = File::open(lock_of(home.path())).unwrap();
        asking.try_lock_shared().unwrap();
        assert!(!is_held(home.path()), "somebody else is only asking");
        drop(asking);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    is_held(home.path());
                }
            });
            for _ in 0..20 {
                drop(try_hold(home.path()).expect("they only ask"));
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_folder_is_left_to_the_sweep_of_its_own_backend() {
        let home = tempfile::tempdir().unwrap();
        assert!(may_be_of(home.path(), "docker"), "nobody knows");
        name_backend(home.path(), "namespaces").unwrap();
        assert!(may_be_of(home.path(), "namespaces"));
        assert!(!may_be_of(home.path(), "docker"));
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
