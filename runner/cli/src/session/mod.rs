//! `sluice session`: a sandbox that is kept for several commands.

mod copy;
mod exec;
mod ls;
mod start;
mod stop;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use engine::session::state::{self, State};

use crate::console::Console;
use crate::environment;
use crate::exit::{Exit, Failure};

/// Keep a sandbox for several commands.
#[derive(Debug, Args)]
pub struct Session {
    #[command(subcommand)]
    command: SessionCommand,
}

#[derive(Debug, Subcommand)]
enum SessionCommand {
    Cp(copy::Cp),
    Exec(exec::Exec),
    Ls(ls::Ls),
    Shell(exec::Shell),
    Start(Box<start::Start>),
    Stop(stop::Stop),
}

/// The names of all sessions.
pub(crate) fn names() -> Vec<String> {
    state::all(&environment::of_this_process().runtime())
        .into_iter()
        .map(|state| state.name)
        .collect()
}

pub fn run(asked: &Session, console: &mut Console) -> Result<Exit, Failure> {
    match &asked.command {
        SessionCommand::Cp(asked) => copy::run(asked, console),
        SessionCommand::Exec(asked) => exec::run(asked, console),
        SessionCommand::Ls(asked) => ls::run(asked, console),
        SessionCommand::Shell(asked) => exec::shell(asked, console),
        SessionCommand::Start(asked) => start::run(asked, console),
        SessionCommand::Stop(asked) => stop::run(asked, console),
    }
}

/// The session that a person means.
fn find(written: &str) -> Result<State, Failure> {
    State::find(written, &environment::of_this_process().runtime()).ok_or_else(|| {
        let written: String = written.chars().take(80).collect();
        anyhow!("there is no session `{written}`; `sluice session ls` lists them").into()
    })
}

/// The session that a run is, as long as it has not been closed.
pub(crate) fn living(run: &str) -> Option<State> {
    state::living(run, &environment::of_this_process().runtime())
}
