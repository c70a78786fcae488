//! Where Sluice keeps what it must not lose (XDG Base Directory 0.8).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The environment, asked once; tests bring their own.
pub type Variable<'v> = &'v dyn Fn(&str) -> Option<OsString>;

/// The process's own environment.
pub fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// The state directory: `$XDG_STATE_HOME/sluice`, else `~/.local/state/sluice`.
///
/// A relative value is ignored, as the specification demands: it would lead
/// somewhere else from every directory.
pub fn state(variable: Variable<'_>) -> Option<PathBuf> {
    let base = absolute(variable, "XDG_STATE_HOME")
        .or_else(|| absolute(variable, "HOME").map(|home| home.join(".local/state")))?;
    Some(base.join("sluice"))
}

/// Where the evidence of all runs is, below the state directory.
pub fn runs(state: &Path) -> PathBuf {
    state.join("runs")
}

/// What is known of runs whose evidence is not sealed yet.
pub fn unsealed(state: &Path) -> PathBuf {
    state.join("unsealed")
}

/// What can be found again: `$XDG_CACHE_HOME/sluice`, else `~/.cache/sluice`.
pub fn cache(variable: Variable<'_>) -> Option<PathBuf> {
    let base = absolute(variable, "XDG_CACHE_HOME")
        .or_else(|| absolute(variable, "HOME").map(|home| home.join(".cache")))?;
    Some(base.join("sluice"))
}

/// The key that this installation seals evidence with.
pub fn key(state: &Path) -> PathBuf {
    state.join("keys").join("seal.pem")
}

/// The key under which evidence holds the hash of a value.
pub fn value_key(state: &Path) -> PathBuf {
    state.join("keys").join("values")
}

/// Where a run keeps what goes with it: sockets, settings, the trust kit. Each
/// run makes a folder there that only its caller can enter.
pub fn runtime(variable: Variable<'_>) -> PathBuf {
    match absolute(variable, "XDG_RUNTIME_DIR") {
        Some(base) => base.join("sluice"),
        // No such directory, as for root over ssh. The path of a socket has to be
        // short, so it is not below the state directory.
        None => PathBuf::from(format!("/tmp/sluice-{}", rustix::process::geteuid().as_raw())),
    }
}

/// Whether a program of this name is on the `PATH`.
pub fn has_program(name: &str) -> bool {
    let path = environment("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// The value of a variable that must be an absolute path.
pub fn absolute(variable: Variable<'_>, name: &str) -> Option<PathBuf> {
    variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state_with(pairs: &[(&str, &str)]) -> Option<PathBuf> {
        let pairs: Vec<(String, String)> =
            pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        state(&move |name| {
            pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn state_follows_xdg_and_ignores_relative_values() {
        let both = state_with(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")]);
        assert_eq!(both.as_deref(), Some(Path::new("/s/sluice")));
        let relative = state_with(&[("XDG_STATE_HOME", "s"), ("HOME", "/h")]);
        assert_eq!(relative.as_deref(), Some(Path::new("/h/.local/state/sluice")));
        let empty = state_with(&[("XDG_STATE_HOME", ""), ("HOME", "/h")]);
        assert_eq!(empty.as_deref(), Some(Path::new("/h/.local/state/sluice")));
        assert_eq!(state_with(&[("HOME", "h")]), None);
    }
}
