//! From a file's name to a policy.
//!
//! Where a rule names no registry, what pip and npm are set up to use is looked up
//! while the policy is read.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use engine::spec::ReadPolicyFile;
use policies::{Policy, Problems};

use super::FILE;
use super::files::{PolicyFiles, Unreadable, Whose};
use super::project::repository_around;
use super::registries::{Lookup, LookupScope, Managers};
use crate::environment;
use crate::exit::Failure;

/// Files as they were when they were read.
pub(crate) type FilesRead = BTreeMap<Arc<str>, ReadPolicyFile>;

/// A policy, and what was looked up for it.
#[derive(Debug)]
pub(crate) struct ReadForRun {
    pub(crate) policy: Policy,
    /// The files that it is made of, by the names it knows them by.
    pub(crate) files: FilesRead,
    pub(crate) managers: Managers,
}

/// Reads the policy at `path` and what it extends, on this machine.
pub(super) fn read(path: &Path, whose: Whose<'_>) -> Result<ReadForRun, Failure> {
    read_on(LookupScope::this(environment::of_this_process(), projects(path)), path, whose)
}

fn read_on(machine: LookupScope, path: &Path, whose: Whose<'_>) -> Result<ReadForRun, Failure> {
    let files = PolicyFiles::new(whose, Lookup::on(machine));
    let policy = match files.read(path) {
        Ok(policy) => policy?,
        Err(Unreadable::NotText(problem)) => return Err(Problems::from(*problem).into()),
        Err(Unreadable::Unfit(why)) => {
            return Err(anyhow!("cannot read {}: {why}", path.display()).into());
        }
        Err(Unreadable::Disk(err)) if is_not_written_yet(path, &err) => {
            return Err(anyhow!("there is no {FILE} here; `sluice policy init` writes one").into());
        }
        Err(Unreadable::Disk(err)) => {
            return Err(anyhow!(err).context(format!("cannot read {}", path.display())).into());
        }
    };
    let (files, lookup) = files.into_parts();
    Ok(ReadForRun { policy, files, managers: lookup.into_managers() })
}

impl ReadForRun {
    /// The files, without their names.
    pub(super) fn opened(&self) -> Vec<ReadPolicyFile> {
        self.files.values().cloned().collect()
    }
}

fn is_not_written_yet(path: &Path, err: &io::Error) -> bool {
    err.kind() == io::ErrorKind::NotFound && path == Path::new(FILE)
}

/// The trees that agents may have written: the one we stand in and the one the
/// policy is about.
fn projects(policy: &Path) -> Vec<PathBuf> {
    let here = std::env::current_dir().ok();
    let around = policy.canonicalize().ok().and_then(|path| path.parent().map(Path::to_owned));
    [here, around].into_iter().flatten().map(|dir| repository_around(&dir).unwrap_or(dir)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use engine::environment::Environment;
    use policies::SampleRequest;

    use super::super::files::tests::nobodys;
    use super::*;

    const VARIABLES: [(&str, &str); 2] = [
        ("PIP_INDEX_URL", "https://packages.example/simple"),
        ("npm_config_registry", "https://packages.example/npm"),
    ];

    fn answer(policy: &str, url: &str) -> (String, Managers) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(FILE);
        fs::write(&file, policy).unwrap();
        let environment = Environment::new(VARIABLES);
        let machine =
            LookupScope { environment, root: dir.path().to_owned(), projects: Vec::new() };
        let read = read_on(machine, &file, nobodys()).unwrap();
        let sample = SampleRequest::new("GET", url).unwrap();
        (read.policy.decide(&sample.question()).to_string(), read.managers)
    }

    #[test]
    fn a_rule_without_a_registry_gets_the_machines() {
        let policy = "version: 1\nnet: {enabled: true, allow: [{pip: [requests]}]}\n";
        let (decision, managers) = answer(policy, "https://packages.example/simple/requests/");
        assert_eq!(decision, "allow: net.allow[0]");
        assert_eq!((managers.registries.pip.len(), managers.registries.npm.len()), (1, 0));

        let policy = "version: 1\nnet: {enabled: true, allow: [{npm: [left-pad]}]}\n";
        let (decision, managers) = answer(policy, "https://packages.example/npm/left-pad");
        assert_eq!(decision, "allow: net.allow[0]");
        assert_eq!((managers.registries.pip.len(), managers.registries.npm.len()), (0, 1));
    }

    #[test]
    fn a_deny_without_a_registry_gets_the_machines_too() {
        let policy = "version: 1\nnet: {enabled: true, deny: [{pip: [requests]}]}\n";
        let (decision, _) = answer(policy, "https://packages.example/simple/requests/");
        assert_eq!(decision, "deny: net.deny[0]");
    }

    #[test]
    fn nothing_is_looked_up_when_every_rule_says_its_registry_itself() {
        let policy = "version: 1\nnet:\n  enabled: true\n  allow:\n    - {pip: [requests], registry: \"https://own.example/simple\"}\n    - docs.python.org\n";
        let (decision, managers) = answer(policy, "https://own.example/simple/requests/");
        assert_eq!(decision, "allow: net.allow[0]");
        assert!(managers.registries.is_empty() && managers.environment.is_empty());
    }

    #[test]
    fn a_rule_that_says_where_files_are_gets_no_note() {
        let rule =
            |more| format!("version: 1\nnet: {{enabled: true, allow: [{{pip: [six]{more}}}]}}\n");
        let file = "https://files.example/p/six-1.0-py3-none-any.whl";
        let (decision, managers) = answer(&rule(""), file);
        assert_eq!((decision.as_str(), managers.notes.len()), ("deny: no rule matches", 1));
        let (decision, managers) = answer(&rule(", files: [\"https://files.example/\"]"), file);
        assert_eq!((decision.as_str(), managers.notes.len()), ("allow: net.allow[0]", 0));
    }
}
