//! Which registries this machine's package managers use.
//!
//! The answer is the package manager's own effective configuration, read in its
//! own order: environment, the user's files, the machine's files, and at last
//! the tool itself, asked from `/` with a deadline. No registry's address is
//! written in this program.
//!
//! **Invariant:** nothing in a project's tree is read or run for this. A
//! registry that an agent could choose would be a way out that it can choose.

pub(super) mod file_hosts;
mod ini;
mod managers;
pub(super) mod npm;
pub(super) mod pip;
mod tools;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use policies::RegistryUrl;

use crate::place::{self, Variable};
pub(crate) use managers::Managers;
pub(super) use tools::Tools;

/// A configuration file larger than this is not one.
const LARGEST: u64 = 256 * 1024;

/// What may be looked at.
pub(super) struct Machine<'m> {
    pub(super) variable: Variable<'m>,
    /// `/`; tests bring their own.
    pub(super) root: PathBuf,
    /// Trees in which nothing is believed.
    pub(super) projects: Vec<PathBuf>,
    pub(super) tools: Box<dyn Tools + 'm>,
}

impl<'m> Machine<'m> {
    /// The one we run on.
    pub(super) fn this(variable: Variable<'m>, projects: Vec<PathBuf>) -> Self {
        let tools = Box::new(tools::Programs::new(variable, projects.clone()));
        Self { variable, root: "/".into(), projects, tools }
    }

    /// A variable's value, unless it is empty or no text.
    fn text(&self, name: &str) -> Option<String> {
        (self.variable)(name)?.into_string().ok().filter(|text| !text.trim().is_empty())
    }

    fn home(&self) -> Option<PathBuf> {
        place::absolute(self.variable, "HOME")
    }

    /// The text of a configuration file, if it is one that we may believe.
    fn read(&self, path: &Path) -> Option<String> {
        let path = path.canonicalize().ok()?;
        if !path.metadata().ok()?.is_file() || is_in_project(&path, &self.projects) {
            return None;
        }
        let mut text = String::new();
        File::open(path).ok()?.take(LARGEST).read_to_string(&mut text).ok()?;
        Some(text)
    }
}

/// What a package manager is set up to use.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// The main one first.
    pub(super) registries: Vec<RegistryUrl>,
    /// Somebody set it: it is not the tool's own default.
    pub(super) named: bool,
    /// It was written with a user name or a password, which were dropped.
    pub(super) withheld: bool,
    /// The authority it is to believe, if that is set.
    pub(super) authority: Option<PathBuf>,
}

impl Found {
    /// Reads addresses as they were written.
    fn new<'w>(
        written: impl Iterator<Item = &'w String>,
        named: bool,
        authority: Option<String>,
    ) -> Self {
        let authority = authority.map(PathBuf::from).filter(|path| path.is_absolute());
        let mut found = Self { named, authority, ..Self::default() };
        for written in written {
            let Some(url) = address(written) else { continue };
            found.withheld |= has_credentials(written);
            if !found.registries.contains(&url) {
                found.registries.push(url);
            }
        }
        found
    }
}

fn has_credentials(written: &str) -> bool {
    let rest = written.split_once("://").map_or("", |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default().contains('@')
}

/// Whether somebody else may have written `path`. The root is no project: to
/// stand there says nothing.
fn is_in_project(path: &Path, projects: &[PathBuf]) -> bool {
    let is_project = |dir: &&PathBuf| dir.parent().is_some();
    projects.iter().filter(is_project).any(|dir| path.starts_with(dir))
}

/// Reads an address as a package manager's configuration spells it.
///
/// A user name and password are for the package manager; they are dropped here
/// and never reach a policy. An address that is not http is none for us.
fn address(written: &str) -> Option<RegistryUrl> {
    // Some programs read it as `/`: where the host ends would be a matter of taste.
    if written.contains('\\') {
        return None;
    }
    let (scheme, rest) = written.trim().split_once("://")?;
    let (authority, path) = match rest.find(['/', '?', '#']) {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let host = authority.rsplit('@').next().unwrap_or_default();
    let path = path.split(['?', '#']).next().unwrap_or_default();
    RegistryUrl::parse(&format!("{scheme}://{host}{path}")).ok()
}

#[cfg(test)]
pub(super) mod fake {
    //! A machine made of a temporary directory, some variables and a script.

    use std::collections::BTreeMap;
    use std::fs;

    use super::*;

    /// Answers by program and last argument.
    impl Tools for BTreeMap<(&str, &str), &str> {
        fn ask(&self, program: &str, arguments: &[&str]) -> Option<String> {
            let last = arguments.last().copied().unwrap_or_default();
            let found =
                self.iter().find(|((known, end), _)| *known == program && last.ends_with(end));
            found.map(|(_, answer)| (*answer).to_owned())
        }
    }

    pub(crate) struct Fake {
        pub(crate) dir: tempfile::TempDir,
        pub(crate) variables: BTreeMap<&'static str, String>,
        pub(crate) tools: BTreeMap<(&'static str, &'static str), &'static str>,
    }

    impl Fake {
        pub(crate) fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let home = dir.path().join("home").to_str().unwrap().to_owned();
            Self { dir, variables: [("HOME", home)].into(), tools: BTreeMap::new() }
        }

        pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
            self.variables.insert(name, value.to_owned());
            self
        }

        pub(crate) fn file(self, path: &str, text: &str) -> Self {
            let path = self.dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }

        pub(crate) fn tool(
            mut self,
            program: &'static str,
            end: &'static str,
            answer: &'static str,
        ) -> Self {
            self.tools.insert((program, end), answer);
            self
        }

        /// What `find` finds, with `work` being a project.
        pub(crate) fn found(&self, find: fn(&Machine<'_>) -> Found) -> Vec<String> {
            self.whole(find).registries.iter().map(RegistryUrl::to_string).collect()
        }

        pub(crate) fn whole(&self, find: fn(&Machine<'_>) -> Found) -> Found {
            let variable = |name: &str| self.variables.get(name).map(|value| value.into());
            let machine = Machine {
                variable: &variable,
                root: self.dir.path().to_owned(),
                projects: vec![self.dir.path().canonicalize().unwrap().join("work")],
                tools: Box::new(self.tools.clone()),
            };
            find(&machine)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn credentials_and_queries_are_dropped() {
        let cases = [
            ("https://user:pa:ss@packages.example/simple/", "https://packages.example/simple"),
            ("https://a@b@packages.example", "https://packages.example"),
            ("http://packages.example:8081/npm/?token=x", "http://packages.example:8081/npm"),
        ];
        for (written, read) in cases {
            assert_eq!(address(written).map(|url| url.to_string()).as_deref(), Some(read));
        }
        for wrong in ["file:///srv/wheels", "packages.example", "https://", "https://a\\@b/"] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_configured_address_smuggles_a_credential(
            user in "[a-zA-Z0-9:%]{1,20}",
            host in "[a-z]{1,8}\\.example",
        ) {
            let url = address(&format!("https://{user}@{host}/simple")).unwrap();
            prop_assert_eq!(url.to_string(), format!("https://{host}/simple"));
        }
    }
}
