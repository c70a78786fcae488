//! `sluice audit`: read what happened.
//!
//! One file per verb. [`logs`] says which logs a verb looks at, [`filters`]
//! which of their events, and [`row`] how an event looks to a person.

mod export;
mod filters;
mod logs;
mod one_row;
mod review;
mod row;
mod seal;
mod search;
mod show;
mod summary;
mod tail;
mod verify;

use clap::{Args, Subcommand};
pub(crate) use summary::{HostTotals, totals_of};

use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Read the audit log: follow, search, show, verify, export.
#[derive(Debug, Args)]
pub struct Audit {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Export(export::Export),
    Review(review::Review),
    Seal(seal::Seal),
    Search(search::Search),
    Show(show::Show),
    Summary(summary::Summary),
    Tail(tail::Tail),
    Verify(verify::Verify),
}

/// Carries out one verb.
pub fn run(asked: &Audit, console: &mut Console) -> Result<Exit, Failure> {
    match &asked.verb {
        Verb::Export(asked) => export::run(asked, console),
        Verb::Review(asked) => review::run(asked, console),
        Verb::Seal(asked) => seal::run(asked, console),
        Verb::Search(asked) => search::run(asked, console),
        Verb::Show(asked) => show::run(asked, console),
        Verb::Summary(asked) => summary::run(asked, console),
        Verb::Tail(asked) => tail::run(asked, console),
        Verb::Verify(asked) => verify::run(asked, console),
    }
}
