//! `sluice audit review`: is the log whole, and what happened.

use clap::Args;

use super::search::{self, SearchVerb};
use super::verify;
use crate::console::{Console, Format};
use crate::exit::{Exit, Failure};

/// Verify logs, then list their events.
#[derive(Debug, Args)]
#[command(
    long_about = "Verify logs, then list their events.

`sluice audit verify` and `sluice audit search` in one, for a person who reads. What a
broken log says is listed too, after the line that names the break.",
    after_help = "Examples:
  sluice audit review --run last
  sluice audit review --runs DIR --verdict deny

Exit codes: 0 whole and listed, 1 broken, not complete, or some line could not be read."
)]
pub(super) struct Review {
    #[command(flatten)]
    search: SearchVerb,
}

pub(super) fn run(asked: &Review, console: &mut Console) -> Result<Exit, Failure> {
    if console.format != Format::Table {
        let told = "a review is for people; programs take `sluice audit verify` and `sluice audit search`, each with -o json";
        return Err(Failure::Usage(told.to_owned()));
    }
    let checked = verify::all(&asked.search.folders()?, &verify::trusted(&[])?, false, console)?;
    console.line("")?;
    Ok(checked.max(search::run(&asked.search, console)?))
}
