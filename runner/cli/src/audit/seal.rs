//! `sluice audit seal`: close a log that no run closed.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use audit::SigningKey;
use clap::Args;
use engine::state_folder;
use files::printable::Printable;

use super::logs::holds_a_log;
use crate::console::Console;
use crate::environment;
use crate::exit::{Exit, Failure};

/// Seal a folder of evidence with this installation's key.
#[derive(Debug, Args)]
#[command(
    long_about = "Seal a folder of evidence with this installation's key.

Runs and sessions seal their own. This is for a log that was written without them, such as
that of a gateway in a compose file, once it has ended. A folder is sealed once, and only
if its log is whole; `sluice audit verify DIR` checks it from then on.",
    after_help = "Exit codes: 0 sealed, 1 not: there is no log, it is broken or still written, or it is sealed already."
)]
pub(super) struct SealVerb {
    /// The folder that holds the log.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(super) fn run(asked: &SealVerb, console: &mut Console) -> Result<Exit, Failure> {
    let folder = &asked.folder;
    let shown = folder.to_string_lossy();
    let shown = Printable(&shown);
    if !holds_a_log(folder) {
        return Err(anyhow!("there is no log in {shown}").into());
    }
    let state = environment::of_this_process().state().ok_or_else(|| {
        let told =
            "neither XDG_STATE_HOME nor HOME is an absolute path, so there is no place for the key";
        Failure::Usage(told.to_owned())
    })?;
    let key = SigningKey::load_or_create(&state_folder::key(&state))
        .context("cannot load the key to seal with")?;
    let seal = audit::seal(folder, &key).map_err(anyhow::Error::from)?;
    let (time, id, files) = (seal.time, &seal.key.id, seal.files.len());
    console.line(format_args!("{shown}: sealed {time} by {id}, {files} files"))?;
    Ok(Exit::Success)
}
