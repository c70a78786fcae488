//! Where runs are kept, for the verbs that read one.

use std::path::PathBuf;

use clap::Args;

use crate::exit::Failure;
use crate::place;

/// The place where runs are kept.
#[derive(Debug, Args)]
pub struct Runs {
    /// Where runs are kept [default: $XDG_STATE_HOME/sluice/runs].
    #[arg(long, value_name = "DIR", env = "SLUICE_RUNS", hide_env_values = true)]
    runs: Option<PathBuf>,
}

impl Runs {
    pub(crate) fn place(&self) -> Result<PathBuf, Failure> {
        if let Some(runs) = &self.runs {
            return Ok(runs.clone());
        }
        let state = place::state(&place::environment).ok_or_else(|| {
            Failure::Usage(
                "neither XDG_STATE_HOME nor HOME is an absolute path; say where runs are kept with --runs DIR"
                    .to_owned(),
            )
        })?;
        Ok(place::runs(&state))
    }
}
