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
use policies::{Policy, Problems};

use super::FILE;
use super::files::{Files, Opened, Unreadable, Whose};
use super::project::repository_around;
use super::registries::{Machine, Managers, npm, pip};
use crate::exit::Failure;
use crate::place;

/// A policy whose own texts were read, and nothing else yet.
#[derive(Debug)]
pub(super) struct FirstRead<'f> {
    pub(super) files: Files<'f>,
    policy: Result<Policy, Problems>,
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

/// How far is looked for what a policy leaves to the package managers.
#[derive(Clone, Debug)]
pub(super) enum Look {
    /// What this machine says.
    Here,
    /// Also what their registries say, which is kept there.
    Outside(Option<PathBuf>),
}

impl<'f> FirstRead<'f> {
    /// Reads the policy at `path` and what it extends.
    pub(super) fn of(path: &Path, whose: Whose<'f>) -> Result<Self, Failure> {
        let mut files = Files::new(whose);
        match files.read(path) {
            Ok(policy) => Ok(Self { files, policy }),
            Err(Unreadable::NotText(problem)) => Err(Problems::from(*problem).into()),
            Err(Unreadable::Unfit(why)) => {
                Err(anyhow!("cannot read {}: {why}", path.display()).into())
            }
            Err(Unreadable::Disk(err)) if is_not_written_yet(path, &err) => {
                Err(anyhow!("there is no {FILE} here; `sluice policy init` writes one").into())
            }
            Err(Unreadable::Disk(err)) => {
                Err(anyhow!(err).context(format!("cannot read {}", path.display())).into())
            }
        }
    }

    /// The policy as far as its own texts say it: nothing where a rule needs this
    /// machine's registries to mean anything. Its problems, if it has others.
    pub(super) fn policy(&self) -> Result<Option<&Policy>, Problems> {
        match &self.policy {
            Ok(policy) => Ok(Some(policy)),
            Err(_) if self.misses("pip") || self.misses("npm") => Ok(None),
            Err(problems) => Err(problems.clone()),
        }
    }

    pub(super) fn into_policy(self) -> Option<Policy> {
        self.policy.ok()
    }

    /// Looks up what the policy leaves to this machine's package managers.
    pub(super) fn complete(self, path: &Path, look: Look) -> Result<ReadForRun, Failure> {
        self.complete_on(&Machine::this(&place::environment, projects(path)), look)
    }

    fn complete_on(self, machine: &Machine<'_>, look: Look) -> Result<ReadForRun, Failure> {
        let mut managers = Managers::default();
        if self.misses("pip") {
            managers.add_pip(pip::registries(machine));
        }
        if self.misses("npm") {
            managers.add_npm(npm::registries(machine));
        }
        let Self { mut files, mut policy } = self;
        if !managers.registries.is_empty() {
            policy = files.read_with(managers.registries.clone());
            if let (Ok(read), Look::Outside(cache)) = (&policy, look)
                && managers.find_files(read.python_packages().next(), machine, cache.as_deref())
            {
                policy = files.read_with(managers.registries.clone());
            }
        }
        Ok(ReadForRun { policy: policy?, files: files.into_opened(), managers })
    }

    /// Whether a rule of the policy goes without a registry that `manager` may know.
    fn misses(&self, manager: &str) -> bool {
        let wanted = format!("{manager} names no registry");
        match &self.policy {
            Ok(policy) => policy.notes.iter().any(|note| note.message.starts_with(&wanted)),
            Err(problems) => problems.iter().any(|problem| problem.message.starts_with(&wanted)),
        }
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
    use std::cell::Cell;
    use std::fs;

    use policies::Asked;

    use super::super::files::tests::nobodys;
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
        let first = FirstRead::of(&file, nobodys()).unwrap();
        let policy = first.complete_on(&machine, Look::Here).unwrap().policy;
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
