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
    verb: AuditCommand,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    Export(export::Export),
    Review(review::Review),
    Seal(seal::SealVerb),
    Search(search::SearchVerb),
    Show(show::ShowVerb),
    Summary(summary::Summary),
    Tail(tail::Tail),
    Verify(verify::Verify),
}

/// Carries out one verb.
pub fn run(asked: &Audit, console: &mut Console) -> Result<Exit, Failure> {
    match &asked.verb {
        AuditCommand::Export(asked) => export::run(asked, console),
        AuditCommand::Review(asked) => review::run(asked, console),
        AuditCommand::Seal(asked) => seal::run(asked, console),
        AuditCommand::Search(asked) => search::run(asked, console),
        AuditCommand::Show(asked) => show::run(asked, console),
        AuditCommand::Summary(asked) => summary::run(asked, console),
        AuditCommand::Tail(asked) => tail::run(asked, console),
        AuditCommand::Verify(asked) => verify::run(asked, console),
    }
}
