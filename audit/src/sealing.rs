//! Seals an evidence folder: checks its log, lists its files, writes `seal.json`.

#[cfg(test)]
mod tests;

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::folder_lock::LockedFolder;
use crate::key::SigningKey;
use crate::seal::{KnownDigests, SEAL, Seal, list, unless_absent};
use crate::verify::{self, VerifyError};
use crate::whole_file::write_via_draft;

/// Why a folder was not sealed.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error("{} is sealed already", dir.display())]
    AlreadySealed { dir: PathBuf },
    #[error("the log in {} is still being written", dir.display())]
    Busy { dir: PathBuf },
    #[error("cannot {step} {}", path.display())]
    Disk { step: &'static str, path: PathBuf, source: io::Error },
    /// A seal says that the log is whole, so it is checked before.
    #[error("the log is not fit to be sealed")]
    Log(#[source] VerifyError),
}

/// Seals the folder `dir` as it is now. A folder is sealed once.
pub fn seal(dir: &Path, key: &SigningKey) -> Result<Seal, SealError> {
    seal_knowing(dir, key, &KnownDigests::new())
}

/// The same, without reading again what the caller hashed as it wrote it. A file
/// that has another size by now is read.
pub fn seal_knowing(dir: &Path, key: &SigningKey, known: &KnownDigests) -> Result<Seal, SealError> {
    let handle = File::open(dir).map_err(disk("open", dir))?;
    let handle = LockedFolder::lock(handle).map_err(|err| match err {
        TryLockError::WouldBlock => SealError::Busy { dir: dir.to_owned() },
        TryLockError::Error(source) => disk("lock", dir)(source),
    })?;
    let path = dir.join(SEAL);
    if path.symlink_metadata().is_ok() {
        return Err(SealError::AlreadySealed { dir: dir.to_owned() });
    }
    // Always the same name, so that what a crash while sealing left is found: the seal
    // lists every file. We hold the folder's lock, so nobody is writing it.
    let draft = dir.join("seal.json.draft");
    unless_absent(fs::remove_file(&draft)).map_err(disk("remove", &draft))?;
    let log = verify::chain(dir).map_err(SealError::Log)?.map(|walked| walked.head);
    let files = list(dir, known).map_err(|err| disk("read", &err.path)(err.source))?;
    let seal = Seal::new(key, log, files);
    write_via_draft(&draft, &path, &seal.signed(key)).map_err(disk("write", &path))?;
    handle.sync_all().map_err(disk("sync", dir))?;
    Ok(seal)
}

fn disk(step: &'static str, path: &Path) -> impl Fn(io::Error) -> SealError {
    move |source| SealError::Disk { step, path: path.to_owned(), source }
}
