//! `sluice rm`: removes a run, evidence and all.

use anyhow::Context as _;
use clap::Args;
use engine::backend::{self, BackendError};
use engine::evidence::RunFolder;
use engine::plan::RunId;

use crate::caller;
use crate::console::Console;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::runs::{RunName, Runs};
use crate::session::living;

/// Remove runs that have ended, with their evidence.
#[derive(Debug, Args)]
pub struct Rm {
    #[command(flatten)]
    runs: Runs,
    /// The runs: `last`, ids, or the beginning of an id.
    #[arg(required = true, value_name = "RUN")]
    which: Vec<RunName>,
}

pub fn run(asked: &Rm, console: &mut Console) -> Result<Exit, Failure> {
    let place = asked.runs.place()?;
    let mut exit = Exit::Success;
    for name in &asked.which {
        let run = &asked.runs.find(name)?;
        match remove(&place, run) {
            Ok(()) => console.say(format_args!("removed {run}")),
            Err(err) => {
                console.say(format_args!("{run} was not removed: {err:#}"));
                exit = Exit::Failed;
            }
        }
    }
    Ok(exit)
}

fn remove(place: &std::path::Path, run: &RunId) -> anyhow::Result<()> {
    let folder = RunFolder::open(place, run.as_str())?;
    let runtime = caller::runtime()?;
    if runtime.block_on(is_running(run)).context("cannot tell whether it is running")? {
        anyhow::bail!("it is running; stop it first");
    }
    if living(run.as_str()).is_some() {
        anyhow::bail!("it is a session that was not closed; `sluice sweep` closes it");
    }
    Ok(folder.remove()?)
}

async fn is_running(run: &RunId) -> Result<bool, BackendError> {
    for backend in backend::all(environment::of_this_process()).await {
        if backend.labelled().await?.iter().any(|one| one.running && one.run == *run) {
            return Ok(true);
        }
    }
    Ok(false)
}
