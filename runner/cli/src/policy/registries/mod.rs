//! Which registries this machine's package managers use.
//!
//! The answer is the package manager's own configuration, read in its own order:
//! environment, the user's files, the machine's files, and at last the default
//! that stands in the package manager's own files. No program is run for it, and
//! no registry's address is written in this one.
//!
//! **Invariant:** nothing in a project's tree is read for this. A registry that
//! an agent could choose would be a way out that it can choose.

mod ini;
mod installed;
mod lookup;
mod npm;
mod pip;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use engine::environment::Environment;
use policies::RegistryUrl;

pub(super) use lookup::Lookup;
pub(crate) use lookup::Managers;

/// A configuration file larger than this is not one.
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// What may be looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct LookupScope {
    pub(super) environment: Environment,
    /// `/`; tests bring their own.
    pub(super) root: PathBuf,
    /// Trees in which nothing is believed.
    pub(super) projects: Vec<PathBuf>,
}

impl LookupScope {
    /// The one we run on.
    pub(super) fn this(environment: &Environment, projects: Vec<PathBuf>) -> Self {
        Self { environment: environment.clone(), root: "/".into(), projects }
    }

    /// A variable's value, unless it is empty or no text.
    fn text(&self, name: &str) -> Option<String> {
        self.environment.variable(name)?.into_string().ok().filter(|text| !text.trim().is_empty())
    }

    fn home(&self) -> Option<PathBuf> {
        self.environment.absolute("HOME")
    }

    /// Where programs are installed: above the folders of `PATH`, which end in `bin`.
    fn prefixes(&self) -> Vec<PathBuf> {
        let path = self.environment.variable("PATH").unwrap_or_default();
        let mut prefixes = Vec::new();
        for folder in std::env::split_paths(&path).filter(|folder| folder.is_absolute()) {
            let prefix = folder.parent().map(Path::to_owned);
            prefixes.extend(prefix.filter(|prefix| !prefixes.contains(prefix)));
        }
        prefixes
    }

    /// The text of a file, if it is one that we may believe.
    fn read(&self, path: &Path) -> Option<String> {
        let path = path.canonicalize().ok()?;
        if !path.metadata().ok()?.is_file() || is_in_project(&path, &self.projects) {
            return None;
        }
        let mut text = String::new();
        File::open(path).ok()?.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
        Some(text)
    }
}

/// What a package manager is set up to use.
#[derive(Clone, Debug, Default)]
struct RegistryConfig {
    /// The main one first.
    registries: Vec<RegistryUrl>,
    /// Other hosts that are known to have their files.
    files: Vec<RegistryUrl>,
    /// Somebody set it: it is not the tool's own default.
    is_named: bool,
    /// It was written with a user name or a password, which were dropped.
    had_credentials: bool,
    /// The authority it is to believe, if that is set.
    authority: Option<PathBuf>,
}

impl RegistryConfig {
    /// Reads addresses as they were written.
    fn new<'w>(
        written: impl Iterator<Item = &'w String>,
        is_named: bool,
        authority: Option<String>,
    ) -> Self {
        let authority = authority.map(PathBuf::from).filter(|path| path.is_absolute());
        let mut found = Self { is_named, authority, ..Self::default() };
        for written in written {
            let Some(url) = address(written) else { continue };
            found.had_credentials |= has_credentials(written);
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
mod fake {
    //! A machine made of a temporary directory and some variables.

    use std::collections::BTreeMap;
    use std::fs;

    use super::*;

    pub(super) struct Fake {
        pub(super) dir: tempfile::TempDir,
        variables: BTreeMap<&'static str, String>,
    }

    impl Fake {
        pub(super) fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let home = dir.path().join("home").to_str().unwrap().to_owned();
            Self { dir, variables: [("HOME", home)].into() }
        }

        /// Sets a variable, in which `@` is the machine's root.
        pub(super) fn with(mut self, name: &'static str, value: &str) -> Self {
            let value = match name {
                "PATH" => value.replace('@', self.dir.path().to_str().unwrap()),
                _ => value.to_owned(),
            };
            self.variables.insert(name, value);
            self
        }

        pub(super) fn file(self, path: &str, text: &str) -> Self {
            let path = self.dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }

        /// What `find` finds, with `work` being a project.
        pub(super) fn found(&self, find: fn(&LookupScope) -> RegistryConfig) -> Vec<String> {
            self.whole(find).registries.iter().map(RegistryUrl::to_string).collect()
        }

        pub(super) fn whole(&self, find: fn(&LookupScope) -> RegistryConfig) -> RegistryConfig {
            find(&self.machine())
        }

        pub(super) fn machine(&self) -> LookupScope {
            LookupScope {
                environment: Environment::new(&self.variables),
                root: self.dir.path().to_owned(),
                projects: vec![self.dir.path().canonicalize().unwrap().join("work")],
            }
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
