//! Where runs are kept, and which one a person means.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use engine::evidence::RunFolder;
use engine::plan::RunId;
use files::printable::Printable;
use serde_json::Value;

use crate::environment;
use crate::exit::Failure;

/// The place where runs are kept.
#[derive(Debug, Args)]
pub struct Runs {
    /// Directory of all runs [default: $XDG_STATE_HOME/sluice/runs].
    #[arg(long, value_name = "DIR", env = "SLUICE_RUNS")]
    runs: Option<PathBuf>,
}

impl Runs {
    pub(crate) fn place(&self) -> Result<PathBuf, Failure> {
        if let Some(runs) = &self.runs {
            return Ok(runs.clone());
        }
        environment::of_this_process().runs().ok_or_else(|| {
            Failure::Usage(
                "neither XDG_STATE_HOME nor HOME is an absolute path; say where runs are kept with --runs DIR"
                    .to_owned(),
            )
        })
    }

    /// The folder of the run that a person means.
    pub(crate) fn open(&self, name: &RunName) -> Result<RunFolder, Failure> {
        let place = self.place()?;
        let run = name.find_in(&place)?;
        Ok(RunFolder::open(&place, &run).map_err(anyhow::Error::from)?)
    }

    /// The run that a person means, one of ours.
    pub(crate) fn find(&self, name: &RunName) -> Result<RunId, Failure> {
        let run = name.find_in(&self.place()?)?;
        RunId::parse(&run).map_err(|err| anyhow::Error::from(err).into())
    }
}

/// Whose runs, where, and on what.
#[derive(Debug, Default, Args)]
pub struct Origins {
    /// Only runs that this user started.
    #[arg(long, value_name = "USER", env = "SLUICE_FIND_USER")]
    user: Option<String>,
    /// Only runs on this machine.
    #[arg(long, value_name = "NAME", env = "SLUICE_FIND_MACHINE")]
    machine: Option<String>,
    /// Only runs in this directory, or below it.
    #[arg(long, value_name = "DIR", env = "SLUICE_FIND_PROJECT")]
    project: Option<PathBuf>,
    /// Only runs on this backend: docker, podman, namespaces, or none.
    #[arg(long = "on", value_name = "BACKEND", env = "SLUICE_FIND_BACKEND")]
    backend: Option<String>,
}

impl Origins {
    /// Whether nothing was asked for: every run fits.
    pub(crate) fn is_any(&self) -> bool {
        let Self { user, machine, project, backend } = self;
        user.is_none() && machine.is_none() && project.is_none() && backend.is_none()
    }

    /// Whether the run with this `run.json` is meant.
    pub(crate) fn fit(&self, record: &Value) -> bool {
        let told = |name: &str| record.get(name).and_then(Value::as_str).unwrap_or_default();
        let fits = |wanted: &Option<String>, name| {
            wanted.as_ref().is_none_or(|wanted| told(name) == wanted.as_str())
        };
        // `ann (as root)` is ann's, and root's.
        let user = told("user");
        let (person, other) = match user.strip_suffix(')').and_then(|it| it.split_once(" (as ")) {
            Some((person, other)) => (person, other),
            None => (user, user),
        };
        let by_user = self.user.as_ref().is_none_or(|wanted| wanted == person || wanted == other);
        let in_project = self.project.as_ref().is_none_or(|wanted| {
            let wanted = wanted.canonicalize().unwrap_or_else(|_| wanted.clone());
            Path::new(told("project")).starts_with(wanted)
        });
        by_user && in_project && fits(&self.machine, "host") && fits(&self.backend, "backend")
    }
}

/// `run.json` in a run's folder, or nothing that fits anything.
pub(crate) fn record(folder: &Path) -> Value {
    let bytes = fs::read(folder.join("run.json")).ok();
    bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// A run as a person names it: `last`, its id, or the beginning of its id or of
/// the id's last part, if no other run begins with that.
#[derive(Clone, Debug)]
pub struct RunName(String);

impl From<String> for RunName {
    fn from(written: String) -> Self {
        Self(written)
    }
}

impl RunName {
    /// The name of that run's folder in `place`.
    ///
    /// That there is none is a failure like any other (exit code 1), however the
    /// name is written: what is not there has no right spelling.
    pub(crate) fn find_in(&self, place: &Path) -> Result<String, Failure> {
        let mut all = folders(place)?;
        all.sort();
        if self.0 == "last" {
            let last = all.pop();
            return last.ok_or_else(|| anyhow!("there are no runs in {}", place.display()).into());
        }
        if all.contains(&self.0) {
            return Ok(self.0.clone());
        }
        let begins = |run: &&String| {
            let short = run.rsplit('-').next().unwrap_or_default();
            run.starts_with(&self.0) || short.starts_with(&self.0)
        };
        let fitting: Vec<&String> = all.iter().filter(begins).collect();
        let written: String = self.0.chars().take(80).collect();
        let written = Printable(&written);
        match fitting.as_slice() {
            [only] if !self.0.is_empty() => Ok((*only).clone()),
            [_, _, ..] if !self.0.is_empty() => {
                let some: Vec<&str> =
                    fitting.iter().rev().take(4).map(|run| run.as_str()).collect();
                let more = if fitting.len() > some.len() { ", ..." } else { "" };
                let some = some.join(", ");
                Err(anyhow!("`{written}` matches {} runs: {some}{more}", fitting.len()).into())
            }
            _ => Err(anyhow!("there is no run `{written}`; `sluice ls` lists them").into()),
        }
    }
}

/// The names of all runs in `place`, as far as it can be read.
pub(crate) fn names(place: &Path) -> Vec<String> {
    folders(place).unwrap_or_default()
}

/// The names of all runs in `place`.
fn folders(place: &Path) -> Result<Vec<String>, Failure> {
    let entries = match fs::read_dir(place) {
        Ok(entries) => entries,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(err) => Err(err).with_context(|| format!("cannot read {}", place.display()))?,
    };
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
    Ok(folders.filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(runs: &[&str], written: &str) -> Result<String, String> {
        let place = tempfile::tempdir().unwrap();
        for run in runs {
            fs::create_dir(place.path().join(run)).unwrap();
        }
        let found = RunName(written.to_owned()).find_in(place.path());
        found.map_err(|failure| failure.in_one_line().replace(place.path().to_str().unwrap(), "P"))
    }

    const RUNS: [&str; 3] =
        ["20261116-031045-7f3a2b", "20261116-041045-7f9999", "20261117-031045-00aa11"];

    #[test]
    fn a_run_is_named_by_last_by_its_id_or_by_a_beginning_that_no_other_has() {
        for (written, run) in [
            ("last", RUNS[2]),
            (RUNS[0], RUNS[0]),
            ("20261117", RUNS[2]),
            ("00", RUNS[2]),
            ("7f3", RUNS[0]),
        ] {
            assert_eq!(found(&RUNS, written).as_deref(), Ok(run), "{written}");
        }
    }

    #[test]
    fn runs_are_found_by_whose_they_are() {
        let record = serde_json::json!({
            "user": "ann (as root)", "host": "desk", "project": "/work/a", "backend": "docker",
        });
        let fits = |asked: Origins| asked.fit(&record);
        let text = |text: &str| Some(text.to_owned());
        assert!(Origins::default().is_any() && fits(Origins::default()));
        for (user, is_theirs) in [("ann", true), ("root", true), ("an", false), ("kim", false)] {
            assert_eq!(
                fits(Origins { user: text(user), ..Origins::default() }),
                is_theirs,
                "{user}"
            );
        }
        for (project, is_there) in [("/work", true), ("/work/a", true), ("/work/ab", false)] {
            let asked = Origins { project: Some(project.into()), ..Origins::default() };
            assert_eq!(fits(asked), is_there, "{project}");
        }
        assert!(fits(Origins {
            machine: text("desk"),
            backend: text("docker"),
            ..Origins::default()
        }));
        assert!(!fits(Origins { backend: text("podman"), ..Origins::default() }));
        assert!(!Origins { user: text("ann"), ..Origins::default() }.fit(&Value::Null));
    }

    #[test]
    fn what_names_several_or_none_is_told() {
        let told = |written| found(&RUNS, written).unwrap_err();
        assert_eq!(
            told("7f"),
            "`7f` matches 2 runs: 20261116-041045-7f9999, 20261116-031045-7f3a2b"
        );
        for none in ["nosuch", "", "..", "../x", "20261116-031045-7f3a2b/"] {
            assert!(told(none).starts_with("there is no run `"), "{none}: {}", told(none));
        }
        assert_eq!(found(&[], "last").unwrap_err(), "there are no runs in P");
    }
}
