//! From a file's name to a policy.
//!
//! What pip and npm are set up to use is a fact about the machine, and finding
//! it may mean asking them. So a policy is read without it first; only when a
//! rule misses its registry is it looked up, and the policy read again.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use policies::{Policy, Problems, Registries};

use super::FILE;
use super::files::{Files, Opened, Unreadable};
use super::registries::{Machine, Managers, npm, pip};
use crate::exit::Failure;
use crate::place;

/// Reads the policy at `path` and what it extends, on this machine.
pub(super) fn read(path: &Path) -> Result<Policy, Failure> {
    let machine = Machine::this(&place::environment, projects(path));
    read_on(path, &machine, None).map(|read| read.policy)
}

/// The same for a run, which also needs to know where files of packages are,
/// and what its package managers are to be told.
pub(crate) fn read_for_run(path: &Path) -> Result<ReadForRun, Failure> {
    let machine = Machine::this(&place::environment, projects(path));
    read_on(path, &machine, Some(place::cache(&place::environment)))
}

/// Files as they were when they were read.
pub(crate) type FilesRead = BTreeMap<Arc<str>, Opened>;

/// A policy, and what was looked up for it.
#[derive(Debug)]
pub(crate) struct ReadForRun {
    pub(crate) policy: Policy,
    /// The files that it is made of, by the names it knows them by.
    pub(crate) files: FilesRead,
    pub(crate) managers: Managers,
}

/// Looks further than this machine only with `outside`, which says where
/// answers are kept.
fn read_on(
    path: &Path,
    machine: &Machine<'_>,
    outside: Option<Option<PathBuf>>,
) -> Result<ReadForRun, Failure> {
    let (first, files) = read_with(path, Registries::default())?;
    let mut managers = Managers::default();
    if misses_registry(&first, "pip") {
        managers.add_pip(pip::registries(machine));
    }
    if misses_registry(&first, "npm") {
        managers.add_npm(npm::registries(machine));
    }
    if managers.registries.is_empty() {
        return Ok(ReadForRun { policy: first?, files, managers });
    }
    let (second, files) = read_with(path, managers.registries.clone())?;
    let second = second?;
    let Some(cache) = outside else {
        return Ok(ReadForRun { policy: second, files, managers });
    };
    if !managers.find_files(second.python_packages().next(), machine, cache.as_deref()) {
        return Ok(ReadForRun { policy: second, files, managers });
    }
    let (third, files) = read_with(path, managers.registries.clone())?;
    Ok(ReadForRun { policy: third?, files, managers })
}

/// The outer failure is the disk's, the inner one the policy's.
fn read_with(
    path: &Path,
    known: Registries,
) -> Result<(Result<Policy, Problems>, FilesRead), Failure> {
    let files = Files::new(known);
    match files.open(path) {
        Ok(source) => {
            let policy = policies::read(&source, &files);
            Ok((policy, files.into_opened()))
        }
        Err(Unreadable::NotText(problem)) => Ok((Err((*problem).into()), FilesRead::new())),
        Err(Unreadable::Unfit(why)) => Err(anyhow!("cannot read {}: {why}", path.display()).into()),
        Err(Unreadable::Disk(err)) if is_not_written_yet(path, &err) => {
            Err(anyhow!("there is no {FILE} here; `sluice policy init` writes one").into())
        }
        Err(Unreadable::Disk(err)) => {
            Err(anyhow!(err).context(format!("cannot read {}", path.display())).into())
        }
    }
}

fn is_not_written_yet(path: &Path, err: &io::Error) -> bool {
    err.kind() == io::ErrorKind::NotFound && path == Path::new(FILE)
}

/// Whether a rule of the policy goes without a registry that `manager` may know.
fn misses_registry(first: &Result<Policy, Problems>, manager: &str) -> bool {
    let wanted = format!("{manager} names no registry");
    match first {
        Ok(policy) => policy.notes.iter().any(|note| note.message.starts_with(&wanted)),
        Err(problems) => problems.iter().any(|problem| problem.message.starts_with(&wanted)),
    }
}

/// The trees that agents may have written: the one we stand in and the one the
/// policy is about.
fn projects(policy: &Path) -> Vec<PathBuf> {
    let here = std::env::current_dir().ok();
    let around = policy.canonicalize().ok().and_then(|path| path.parent().map(Path::to_owned));
    [here, around].into_iter().flatten().map(|dir| project_of(&dir)).collect()
}

/// The repository around `dir`, else `dir` itself.
fn project_of(dir: &Path) -> PathBuf {
    let repository = dir.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok());
    repository.unwrap_or(dir).to_owned()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use policies::Asked;

    use super::super::registries::Tools;
    use super::*;

    /// Counts how often it is asked, and knows one registry.
    #[derive(Default)]
    struct Counting(Cell<usize>);

    impl Tools for Counting {
        fn ask(&self, _program: &str, _arguments: &[&str]) -> Option<String> {
            self.0.set(self.0.get() + 1);
            Some("https://packages.example/simple\n".to_owned())
        }
    }

    fn answer(policy: &str, url: &str) -> (String, usize) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(FILE);
        fs::write(&file, policy).unwrap();
        let tools = Counting::default();
        let machine = Machine {
            variable: &|_| None,
            root: dir.path().to_owned(),
            projects: Vec::new(),
            tools: Box::new(&tools),
        };
        let policy = read_on(&file, &machine, None).unwrap().policy;
        let decision = policy.decide(&Asked::new("GET", url).unwrap().question()).to_string();
        (decision, tools.0.get())
    }

    #[test]
    fn a_rule_without_a_registry_gets_the_machines() {
        let policy = "version: 1\nnet: {enabled: true, allow: [{pip: [requests]}]}\n";
        let (decision, asked) = answer(policy, "https://packages.example/simple/requests/");
        assert_eq!(decision, "allow: net.allow[0]");
        assert!(asked > 0);

        let policy = "version: 1\nnet: {enabled: true, allow: [{npm: [left-pad]}]}\n";
        let (decision, asked) = answer(policy, "https://packages.example/simple/left-pad");
        assert_eq!((decision.as_str(), asked), ("allow: net.allow[0]", 1));
    }

    #[test]
    fn a_deny_without_a_registry_gets_the_machines_too() {
        let policy = "version: 1\nnet: {enabled: true, deny: [{pip: [requests]}]}\n";
        let (decision, _) = answer(policy, "https://packages.example/simple/requests/");
        assert_eq!(decision, "deny: net.deny[0]");
    }

    #[test]
    fn nobody_is_asked_when_every_rule_says_its_registry_itself() {
        let policy = "version: 1\nnet:\n  enabled: true\n  allow:\n    - {pip: [requests], registry: \"https://own.example/simple\"}\n    - docs.python.org\n";
        let (decision, asked) = answer(policy, "https://own.example/simple/requests/");
        assert_eq!((decision.as_str(), asked), ("allow: net.allow[0]", 0));
    }
}
