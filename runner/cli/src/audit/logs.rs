//! Which logs a verb looks at.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use audit::search::Search;
use audit::segment::Segment;
use clap::Args;

use super::filters::Filters;
use crate::exit::Failure;
use crate::runs::{self, Origins, RunName, Runs};

/// The place where runs are kept, and one run of it.
#[derive(Debug, Args)]
pub(super) struct Logs {
    #[command(flatten)]
    runs: Runs,
    /// Only this run: `last`, its id, or the beginning of its id.
    #[arg(long, value_name = "RUN", env = "SLUICE_RUN")]
    run: Option<RunName>,
}

impl Logs {
    /// What to search: the directory with all runs, or the folder of one.
    pub(super) fn place(&self) -> Result<PathBuf, Failure> {
        let above = self.runs.place()?;
        let place = match &self.run {
            None => above,
            Some(run) => above.join(run.find_in(&above)?),
        };
        if !place.exists() {
            return Err(
                anyhow!("nothing is recorded there: {} does not exist", place.display()).into()
            );
        }
        Ok(place)
    }

    /// The events that fit, run after run.
    pub(super) fn search(
        &self,
        filters: &Filters,
        text: Option<&str>,
    ) -> Result<impl Iterator<Item = <Search as Iterator>::Item>, Failure> {
        let query = filters.query(text);
        let places = match filters.origins.is_any() {
            true => vec![self.place()?],
            false => self.folders_of(&filters.origins)?,
        };
        let searches = places.iter().map(|place| audit::search::search(place, &query));
        let searches: Vec<Search> =
            searches.collect::<Result<_, _>>().map_err(anyhow::Error::from)?;
        Ok(searches.into_iter().flatten())
    }

    /// [`Logs::folders`] of the runs that somebody asked for.
    pub(super) fn folders_of(&self, origins: &Origins) -> Result<Vec<PathBuf>, Failure> {
        let mut folders = self.folders()?;
        folders.retain(|folder| origins.is_any() || origins.fit(&runs::record(folder)));
        Ok(folders)
    }

    /// Whether all that is looked at is of one run.
    pub(super) fn is_one_run(&self) -> bool {
        self.run.is_some()
    }

    /// The folder of the run that a person means, whatever `--run` says.
    pub(super) fn folder_of(&self, run: &RunName) -> Result<PathBuf, Failure> {
        let above = self.runs.place()?;
        Ok(above.join(run.find_in(&above)?))
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

pub(super) fn holds_a_log(folder: &Path) -> bool {
    Segment::list_wherever(folder).is_ok_and(|segments| !segments.is_empty())
}
