//! `sluice session stop`.

use anyhow::Context as _;
use clap::Args;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::finish::{Why, finish};
use super::state::State;
use crate::console::{Console, Format, Tone};
use crate::exec::Signals;
use crate::exit::{Exit, Failure};
use crate::request::BackendKind;
use crate::shown::Shown;
use crate::work_budget::{self, WorkBudget};
use crate::{backend, sweep};

/// Stop sessions and close their evidence.
#[derive(Debug, Args)]
#[command(after_help = "What a session changed is kept: `sluice diff` shows it, `sluice apply` \
brings it home.")]
pub(crate) struct Stop {
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

pub(crate) fn run(asked: &Stop, console: &mut Console) -> Result<Exit, Failure> {
    let mut exit = Exit::Success;
    let mut records = Vec::new();
    for name in &asked.names {
        match stop(name) {
            Ok(finished) => {
                for left in &finished.left {
                    let word = console.toned_aside(Tone::Warn, "left behind:");
                    console.say(format_args!("{word} {left}; `sluice sweep` tries again"));
                    exit = Exit::Failed;
                }
                for missing in &finished.missing {
                    let word = console.toned_aside(Tone::Warn, "not in the evidence:");
                    console.say(format_args!("{word} {}", Shown(missing)));
                }
                for not_done in &finished.not_done {
                    let word = console.toned_aside(Tone::Warn, "not whole in the evidence:");
                    console.say(format_args!("{word} {not_done}"));
                }
                if console.format == Format::Table {
                    console.say(format_args!("stopped {}, run {}", Shown(name), finished.run));
                }
                records.push(finished.record);
            }
            Err(failure) => {
                let word = console.toned_aside(Tone::Bad, "error:");
                console.say(format_args!("{word} {}", failure.in_one_line()));
                exit = Exit::Failed;
            }
        }
    }
    if console.format != Format::Table {
        console.json_list::<Value>(&records)?;
    }
    Ok(exit)
}

fn stop(name: &str) -> Result<super::finish::Finished, Failure> {
    let state = State::find(name)?;
    let kind = <BackendKind as clap::ValueEnum>::from_str(&state.backend, false)
        .map_err(|_| anyhow::anyhow!("this build has no backend `{}`", state.backend))?;
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let finished = runtime.block_on(async {
        let backend = backend::open(kind).await?.backend;
        let held = sweep::try_hold(&state.folder());
        let held = held.context("somebody else is stopping it at this moment")?;
        let stop = work_budget::Stop::default();
        let listening = Signals::listen().stop(stop.clone());
        let budget = WorkBudget::attended(stop);
        let finished = finish(&state, Why::Stopped, &*backend, held, &budget).await;
        listening.abort();
        anyhow::Ok(finished)
    })?;
    Ok(finished)
}
