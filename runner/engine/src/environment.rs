//! The variables of whoever asks for a run, and the directories they lead to
//! (XDG Base Directory 0.8).
//!
//! A snapshot that is made once, at the door, and handed on: the engine never
//! reads its own process's variables, so one process can serve several callers.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;

use crate::{state_folder, static_program};

/// Variables, and where our own programs are. Cheap to clone.
#[derive(Clone, Default)]
pub struct Environment {
    variables: Arc<BTreeMap<OsString, OsString>>,
    programs: Option<PathBuf>,
}

impl Environment {
    pub fn new<N: Into<OsString>, V: Into<OsString>>(
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let owned = |(name, value): (N, V)| (name.into(), value.into());
        Self { variables: Arc::new(variables.into_iter().map(owned).collect()), programs: None }
    }

    /// The same, with our own programs in `folder`.
    #[must_use]
    pub fn with_programs(self, folder: PathBuf) -> Self {
        Self { programs: Some(folder), ..self }
    }

    /// The same, without one variable.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        let mut variables = (*self.variables).clone();
        variables.remove(OsStr::new(name));
        Self { variables: Arc::new(variables), programs: self.programs.clone() }
    }

    pub fn variable(&self, name: &str) -> Option<OsString> {
        self.variables.get(OsStr::new(name)).cloned()
    }

    /// Everything, for a program that we start.
    pub fn variables(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.variables.iter()
    }

    /// The value of a variable that must be an absolute path.
    pub fn absolute(&self, name: &str) -> Option<PathBuf> {
        self.variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// The state directory: `$XDG_STATE_HOME/sluice`, else `~/.local/state/sluice`.
    ///
    /// A relative value is ignored, as the specification demands: it would lead
    /// somewhere else from every directory.
    pub fn state(&self) -> Option<PathBuf> {
        let base = self
            .absolute("XDG_STATE_HOME")
            .or_else(|| self.absolute("HOME").map(|home| home.join(".local/state")))?;
        Some(base.join("sluice"))
    }

    /// Where the evidence of all runs is.
    pub fn runs(&self) -> Option<PathBuf> {
        self.state().map(|state| state_folder::runs(&state))
    }

    /// What can be found again: `$XDG_CACHE_HOME/sluice`, else `~/.cache/sluice`.
    pub fn cache(&self) -> Option<PathBuf> {
        let base = self
            .absolute("XDG_CACHE_HOME")
            .or_else(|| self.absolute("HOME").map(|home| home.join(".cache")))?;
        Some(base.join("sluice"))
    }

    /// Where a run keeps what goes with it: sockets, settings, the trust kit. Each
    /// run makes a folder there that only its caller can enter.
    pub fn runtime(&self) -> PathBuf {
        match self.absolute("XDG_RUNTIME_DIR") {
            Some(base) => base.join("sluice"),
            // No such directory, as for root over ssh. The path of a socket has to be
            // short, so it is not below the state directory.
            None => PathBuf::from(format!("/tmp/sluice-{}", rustix::process::geteuid().as_raw())),
        }
    }

    /// The path of our program `name`: where the variable `by` says, else where
    /// our programs are. It is static, so it runs where nothing else is.
    pub fn program(&self, name: &str, by: &str) -> anyhow::Result<PathBuf> {
        let told = self.variable(by).filter(|path| !path.is_empty()).map(PathBuf::from);
        let ours = || self.programs.as_ref().map(|folder| folder.join(name));
        let path = told.or_else(ours).context("cannot find our own program")?;
        let path = path.canonicalize().with_context(|| {
            format!(
                "there is no program {}; `scripts/build-static` builds it, and {by} may say where \
                 it is",
                path.display()
            )
        })?;
        static_program::check_file(&path)?;
        Ok(path)
    }

    /// Whether a program of this name is on the `PATH`.
    pub fn has_program(&self, name: &str) -> bool {
        let path = self.variable("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
    }
}

/// Names alone: values may be secrets.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&OsString> = self.variables.keys().collect();
        f.debug_struct("Environment")
            .field("variables", &names)
            .field("programs", &self.programs)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn state_follows_xdg_and_ignores_relative_values() {
        let state = |pairs: &[(&str, &str)]| Environment::new(pairs.iter().copied()).state();
        let both = state(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")]);
        assert_eq!(both.as_deref(), Some(Path::new("/s/sluice")));
        let relative = state(&[("XDG_STATE_HOME", "s"), ("HOME", "/h")]);
        assert_eq!(relative.as_deref(), Some(Path::new("/h/.local/state/sluice")));
        let empty = state(&[("XDG_STATE_HOME", ""), ("HOME", "/h")]);
        assert_eq!(empty.as_deref(), Some(Path::new("/h/.local/state/sluice")));
        assert_eq!(state(&[("HOME", "h")]), None);
    }

    #[test]
    fn no_value_is_shown() {
        let environment = Environment::new([("API_KEY", "hunter2")]);
        let shown = format!("{environment:?}");
        assert!(shown.contains("API_KEY") && !shown.contains("hunter2"), "{shown}");
        assert_eq!(environment.without("API_KEY").variable("API_KEY"), None);
    }
}
