//! Sandboxes that are kept for several commands.
//!
//! A session is a run without a command of its own. [`start`] makes its sandbox
//! as `sluice run` does, up to the moment where the command would begin; there
//! it hands the first process a listening socket and ends. From then on nothing
//! on the host is needed: the first process and the gateway keep the time by
//! themselves, and every later verb finds the session by its folder ([`state`])
//! and speaks with the first process over that socket ([`call`]).
//!
//! A session is over when somebody stops it or when its time is. Either way
//! [`finish`] closes the evidence as for a run; after an expiry that is done by
//! the next `sluice` that sweeps.
//!
//! **Invariant:** the socket is in a folder that only its owner can enter, and
//! is never mounted into a sandbox.
//! **Invariant:** what comes out of a sandbox is bytes, and is read with limits.

mod call;
pub(crate) mod commands;
mod copy;
mod exec;
pub(crate) mod finish;
mod flow;
mod ls;
mod start;
pub(crate) mod state;
mod stop;

use clap::{Args, Subcommand};

use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Keep a sandbox for several commands.
#[derive(Debug, Args)]
pub struct Session {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Cp(copy::Cp),
    Exec(exec::Exec),
    Ls(ls::Ls),
    Shell(exec::Shell),
    Start(Box<start::Start>),
    Stop(stop::Stop),
}

/// The names of all sessions.
pub(crate) fn names() -> Vec<String> {
    state::all().into_iter().map(|state| state.name).collect()
}

pub fn run(asked: &Session, console: &mut Console) -> Result<Exit, Failure> {
    match &asked.command {
        Verb::Cp(asked) => copy::run(asked, console),
        Verb::Exec(asked) => exec::run(asked, console),
        Verb::Ls(asked) => ls::run(asked, console),
        Verb::Shell(asked) => exec::shell(asked, console),
        Verb::Start(asked) => start::run(asked, console),
        Verb::Stop(asked) => stop::run(asked, console),
    }
}
