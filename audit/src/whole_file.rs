//! Files of which readers see all or nothing, also after a crash.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Writes a private file in place of whatever is at `path`: a draft beside it, synced,
/// then renamed. The caller syncs the directory if the name must survive a crash.
pub fn write_whole_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put_whole_file(path, PRIVATE, |file| write_and_sync(file, bytes)).map(drop)
}

/// The same with what `write` writes, under this mode as far as the umask permits it.
/// Nothing is synced that `write` does not sync. Gives the file, still open.
pub fn put_whole_file(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<File> {
    let mut draft = OsString::from(".");
    draft.push(path.file_name().unwrap_or_default());
    draft.push(format!(".{}", uuid::Uuid::now_v7()));
    put_via_draft(&path.with_file_name(draft), path, mode, write)
}

/// The same as [`write_whole_file`] with a draft that the caller names.
pub(crate) fn write_via_draft(draft: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    put_via_draft(draft, path, PRIVATE, |file| write_and_sync(file, bytes)).map(drop)
}

/// Writes and syncs a file that must not exist yet, for its owner alone.
pub(crate) fn write_new_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_and_sync(&mut create_new(path, PRIVATE)?, bytes)
}

fn put_via_draft(
    draft: &Path,
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<File> {
    let written = create_new(draft, mode).and_then(|mut file| {
        write(&mut file)?;
        fs::rename(draft, path)?;
        Ok(file)
    });
    written.inspect_err(|_| drop(fs::remove_file(draft)))
}

fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

fn write_and_sync(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes).and_then(|()| file.sync_all())
}

/// The mode of a file or directory that others can use; nothing if only its owner can.
pub(crate) fn loose_mode(metadata: &Metadata) -> Option<u32> {
    Some(metadata.mode() & 0o7777).filter(|mode| mode & 0o077 != 0)
}

/// For its owner alone.
const PRIVATE: u32 = 0o600;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_no_draft_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        for text in ["the first, which is longer", "the second"] {
            write_whole_file(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        // A directory cannot be replaced by a file: renaming fails after the draft.
        assert!(write_whole_file(dir.path(), b"x").is_err());
        let taken = dir.path().join("taken");
        fs::create_dir(&taken).unwrap();
        assert!(write_whole_file(&taken, b"x").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
