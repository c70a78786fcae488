//! What is where in the state directory, which holds what must not be lost.

use std::path::{Path, PathBuf};

/// The evidence of all runs.
pub fn runs(state: &Path) -> PathBuf {
    state.join("runs")
}

/// What is known of runs whose evidence is not sealed yet.
pub fn unsealed(state: &Path) -> PathBuf {
    state.join("unsealed")
}

/// The key that this installation seals evidence with.
pub fn key(state: &Path) -> PathBuf {
    state.join("keys").join("seal.pem")
}

/// The key under which evidence holds the hash of a value.
pub fn value_key(state: &Path) -> PathBuf {
    state.join("keys").join("values")
}
