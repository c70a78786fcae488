//! Closes a run's evidence.
//!
//! After this nothing is added: a later change to any file is one that `sluice
//! audit verify` names.

use std::path::Path;

use audit::{KeyError, Seal, SealError, SigningKey};

use super::artifacts::Artifact;
use super::folder::{ARTIFACTS, FolderError, RunFolder};
use crate::state_folder;

/// Why a run's evidence is not sealed.
#[derive(Debug, thiserror::Error)]
pub enum SealRunError {
    #[error("the log cannot be put in its place")]
    Folder(#[from] FolderError),
    #[error("there is no key to seal with")]
    SigningKey(#[from] KeyError),
    #[error(transparent)]
    Seal(#[from] SealError),
}

impl RunFolder {
    /// Seals the folder with the key of this installation, which is made if
    /// there is none yet under `state`.
    pub fn seal(&self, state: &Path) -> Result<Seal, SealRunError> {
        self.seal_with(state, &[])
    }

    /// The same, with artifacts that were hashed as they were copied: what is
    /// large is not read twice.
    pub fn seal_with(&self, state: &Path, artifacts: &[Artifact]) -> Result<Seal, SealRunError> {
        self.settle_log()?;
        let key = SigningKey::load_or_create(&state_folder::key(state))?;
        let known = artifacts.iter().map(|Artifact { path, size, sha256 }| {
            (Path::new(ARTIFACTS).join(path.to_path()), (*size, *sha256))
        });
        Ok(audit::seal_knowing(self.path(), &key, &known.collect())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_folder_is_verified_and_a_changed_one_is_named() {
        let home = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(&home.path().join("runs"), "r1").unwrap();
        folder.write_policy("version: 1\n").unwrap();
        std::fs::create_dir(folder.artifacts()).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.artifacts().join("link")).unwrap();
        let seal = folder.seal(home.path()).unwrap();
        assert_eq!(seal.files.len(), 2);
        let key = SigningKey::load(&state_folder::key(home.path())).unwrap();
        assert!(audit::verify(folder.path(), &[key.public()]).is_ok());

        std::fs::write(folder.path().join("policy.yaml"), "version: 2\n").unwrap();
        assert!(audit::verify(folder.path(), &[key.public()]).is_err());
        assert!(matches!(
            folder.seal(home.path()),
            Err(SealRunError::Seal(SealError::AlreadySealed { .. }))
        ));
    }
}
