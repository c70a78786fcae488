//! `sluice session stop`.

use anyhow::Context as _;
use clap::Args;
use engine::backend;
use engine::run::stop_by;
use engine::run_lock;
use engine::session::finish::{Why, finish};
use engine::spec::BackendKind;
use engine::work_budget::{self, WorkBudget};
use files::printable::Printable;

use super::find;
use crate::caller;
use crate::console::{Console, Format, recording_takes_a_while};
use crate::environment;
use crate::exit::{Exit, Failure};

/// Stop sessions and seal their evidence.
#[derive(Debug, Args)]
#[command(after_help = "What a session changed is kept: `sluice diff` shows it, `sluice apply` \
applies it to the project.")]
pub(crate) struct Stop {
    /// Names of the sessions.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

pub(crate) fn run(asked: &Stop, console: &mut Console) -> Result<Exit, Failure> {
    let mut exit = Exit::Success;
    let mut records = Vec::new();
    for name in &asked.names {
        match stop(name) {
            Ok(finished) => {
                if !finished.left.is_empty() {
                    exit = Exit::Failed;
                }
                console.say_unfinished(&finished.left, &finished.missing, &finished.not_done);
                if console.format == Format::Table {
                    console.say(format_args!("stopped {}, run {}", Printable(name), finished.run));
                }
                records.push(finished.record);
            }
            Err(failure) => {
                console.error(failure.in_one_line());
                exit = Exit::Failed;
            }
        }
    }
    if console.format != Format::Table {
        console.json_list(&records)?;
    }
    Ok(exit)
}

fn stop(name: &str) -> Result<engine::session::finish::Finished, Failure> {
    let state = find(name)?;
    let kind = BackendKind::named(&state.plan().backend)
        .ok_or_else(|| anyhow::anyhow!("this build has no backend `{}`", state.plan().backend))?;
    let runtime = caller::runtime()?;
    let finished = runtime.block_on(async {
        let backend = backend::open(kind, environment::of_this_process()).await?.backend;
        let held = run_lock::try_lock(state.folder());
        let held = held.context("another process is stopping it right now")?;
        let stop = work_budget::StopToken::default();
        let listening = stop_by(caller::listen(), stop.clone());
        let budget = WorkBudget::attended(stop).announcing(recording_takes_a_while);
        let finished = finish(&state, Why::Stopped, &*backend, held, &budget).await;
        listening.abort();
        anyhow::Ok(finished)
    })?;
    Ok(finished)
}
