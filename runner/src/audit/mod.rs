//! `sluice audit`: read what happened.
//!
//! One file per verb. [`logs`] says which logs a verb looks at, [`filters`]
//! which of their events, and [`row`] how an event looks to a person.

mod export;
mod filters;
mod logs;
mod row;
mod search;
mod show;
mod tail;
mod verify;

use clap::{Args, Subcommand};

use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Read what happened: follow, search, show, verify, export.
#[derive(Debug, Args)]
pub struct Audit {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Export(export::Export),
    Search(search::Search),
    Show(show::Show),
    Tail(tail::Tail),
    Verify(verify::Verify),
}

/// Carries out one verb.
pub fn run(asked: &Audit, console: &mut Console) -> Result<Exit, Failure> {
    match &asked.verb {
        Verb::Export(asked) => export::run(asked, console),
        Verb::Search(asked) => search::run(asked, console),
        Verb::Show(asked) => show::run(asked, console),
        Verb::Tail(asked) => tail::run(asked, console),
        Verb::Verify(asked) => verify::run(asked, console),
    }
}
