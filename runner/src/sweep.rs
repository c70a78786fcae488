//! `sluice sweep`: removes what runs left that were killed.
//!
//! A run is going on while its runner lives, and a runner that lives holds a
//! lock in its run's folder. Whatever is labelled with a run whose lock nobody
//! holds is removed; other people's runs are left to them.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use tokio::runtime::Runtime;

use crate::backend::docker::Docker;
use crate::backend::{Backend, BackendError};
use crate::console::{Console, Format};
use crate::exit::{Exit, Failure};
use crate::place;
use crate::plan::RunId;
use crate::teardown::{Resource, remove};

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
        let docker = Docker::connect().await?;
        sweep(&docker).await
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
    let mut swept = Swept::default();
    for (run, mut resources) in by_run {
        let folder = runtime.join(run.as_str());
        if is_held(&folder) {
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
    fn a_run_is_held_for_as_long_as_somebody_carries_it_out() {
        let home = tempfile::tempdir().unwrap();
        assert!(!is_held(home.path()), "nobody ever held it");
        let held = hold(home.path()).unwrap();
        assert!(is_held(home.path()));
        drop(held);
        assert!(!is_held(home.path()));
    }
}
