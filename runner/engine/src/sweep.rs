//! Cleans up after killed runs.
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
use std::fs;
use std::path::{Path, PathBuf};

use files::removal::remove_folder;
use serde::Serialize;

use crate::backend::{Backend, BackendError, MAX_BEGINNING_AGE};
use crate::environment::Environment;
use crate::resource::Resource;
use crate::run_id::RunId;
use crate::run_lock::{BEGINNING, is_locked, may_be_of, try_lock};
use crate::session::finish::{Why, finish, is_due};
use crate::session::state::State;
use crate::teardown::remove;
use crate::unsealed::Unsealed;
use crate::work_budget::WorkBudget;

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

/// Removes everything of runs that nobody carries out any more.
pub async fn sweep(
    backend: &dyn Backend,
    environment: &Environment,
) -> Result<Swept, BackendError> {
    let us = rustix::process::getuid().as_raw();
    let runtime = environment.runtime();
    let mut by_run: BTreeMap<(RunId, PathBuf), Vec<Resource>> = BTreeMap::new();
    for found in backend.labelled().await? {
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
        if is_locked(&folder) {
            continue;
        }
        if let Some(state) = State::in_folder(&folder) {
            // Another backend's, and those begun elsewhere, are for them to end.
            if is_here && state.plan().backend == backend.name() && is_due(&state) {
                // Who holds it now is ending it.
                let Ok(held) = try_lock(&folder) else { continue };
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
    close_lost(backend.name(), environment, &standing, &mut swept).await;
    Ok(swept)
}

/// Seals the evidence of runs that nobody carries out any more, once nothing of
/// them stands.
async fn close_lost(
    backend: &str,
    environment: &Environment,
    standing: &BTreeSet<RunId>,
    swept: &mut Swept,
) {
    let Some(state) = environment.state() else { return };
    for (unsealed, sealer) in Unsealed::abandoned(&state, &environment.runtime()) {
        let is_ours = unsealed.plan.backend == backend || unsealed.plan.backend == "none";
        if is_ours && !standing.contains(unsealed.run()) {
            let missing = unsealed.close_as_lost(sealer).await;
            swept.sealed.push(unsealed.run().to_string());
            let missing = missing.into_iter().map(|what| format!("{}: {what}", unsealed.run()));
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

/// Removes folders whose runner died before it held them.
fn remove_beginnings(runtime: &Path) {
    let entries = fs::read_dir(runtime).into_iter().flatten().flatten();
    for entry in entries {
        let begun = entry.file_name().to_string_lossy().starts_with(BEGINNING);
        let age = entry.metadata().and_then(|found| found.modified()).map(|time| time.elapsed());
        let old = matches!(age, Ok(Ok(age)) if age > MAX_BEGINNING_AGE);
        if begun && old && !is_locked(&entry.path()) {
            // The next sweep tries again.
            drop(remove_folder(&entry.path()));
        }
    }
}

fn folders(runtime: &Path) -> Vec<RunId> {
    let entries = fs::read_dir(runtime).into_iter().flatten().flatten();
    entries.filter_map(|entry| RunId::parse(entry.file_name().to_str()?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_lock::{beginning_of, lock};

    #[test]
    fn a_run_that_begins_is_not_taken_for_what_a_crash_left() {
        let runtime = tempfile::tempdir().unwrap();
        let run = runtime.path().join("20261116-031045-7f3a2b");
        let new = beginning_of(&run);
        fs::create_dir(&new).unwrap();
        assert_eq!(folders(runtime.path()), [], "it has no run's name yet");
        remove_beginnings(runtime.path());
        assert!(new.exists(), "it is young");

        let held = lock(&new).unwrap();
        fs::rename(&new, &run).unwrap();
        assert_eq!(folders(runtime.path()).len(), 1);
        assert!(is_locked(&run), "held under its new name too");
        drop(held);
    }
}
