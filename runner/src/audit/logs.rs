//! Which logs a verb looks at.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, anyhow};
use audit::segment::Segment;
use clap::Args;

use crate::exit::Failure;
use crate::place;

/// The place where runs are kept, and one run of it.
#[derive(Debug, Args)]
pub(super) struct Logs {
    /// Where runs are kept [default: $XDG_STATE_HOME/sluice/runs].
    #[arg(long, value_name = "DIR", env = "SLUICE_RUNS", hide_env_values = true)]
    runs: Option<PathBuf>,
    /// Only this run.
    #[arg(long, value_name = "RUN", env = "SLUICE_RUN", hide_env_values = true)]
    run: Option<String>,
}

impl Logs {
    /// The directory with all runs.
    fn above(&self) -> Result<PathBuf, Failure> {
        if let Some(runs) = &self.runs {
            return Ok(runs.clone());
        }
        let state = place::state(&place::environment);
        let state = state.ok_or_else(|| Failure::Usage(NO_STATE.to_owned()))?;
        Ok(place::runs(&state))
    }

    /// What to search: the directory with all runs, or the folder of one.
    pub(super) fn place(&self) -> Result<PathBuf, Failure> {
        let above = self.above()?;
        let place = match &self.run {
            None => above,
            Some(run) => above.join(folder_name(run)?),
        };
        if !place.exists() {
            return Err(
                anyhow!("nothing is recorded there: {} does not exist", place.display()).into()
            );
        }
        Ok(place)
    }

    /// The folders of the runs to look at, sorted by name.
    pub(super) fn folders(&self) -> Result<Vec<PathBuf>, Failure> {
        let place = self.place()?;
        if self.run.is_some() || holds_a_log(&place) {
            return Ok(vec![place]);
        }
        let read = || format!("cannot read {}", place.display());
        let mut folders = Vec::new();
        for entry in place.read_dir().with_context(read)? {
            let path = entry.with_context(read)?.path();
            if path.is_dir() {
                folders.push(path);
            }
        }
        folders.sort();
        Ok(folders)
    }
}

const NO_STATE: &str =
    "neither XDG_STATE_HOME nor HOME is an absolute path; say where runs are kept with --runs DIR";

/// A run's name is the name of its folder, and leads nowhere else.
fn folder_name(run: &str) -> Result<&Path, Failure> {
    let path = Path::new(run);
    let mut components = path.components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(only)), None) if only == run => Ok(path),
        _ => Err(Failure::Usage(format!("`{run}` is not the name of a run"))),
    }
}

pub(super) fn holds_a_log(folder: &Path) -> bool {
    Segment::list_wherever(folder).is_ok_and(|segments| !segments.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runs_name_leads_nowhere_else() {
        assert!(folder_name("run-7f3a").is_ok());
        for wrong in ["", ".", "..", "../x", "a/b", "/etc", "a/", "./a"] {
            assert!(folder_name(wrong).is_err(), "{wrong}");
        }
    }
}
