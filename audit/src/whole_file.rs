//! Files for their owner alone, of which readers see all or nothing, also after a crash.

use std::ffi::OsString;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Writes a file in place of whatever is at `path`: a draft beside it, synced, then
/// renamed. The caller syncs the directory if the name must survive a crash.
pub fn write_whole_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut draft = OsString::from(".");
    draft.push(path.file_name().unwrap_or_default());
    draft.push(format!(".{}", uuid::Uuid::now_v7()));
    write_via_draft(&path.with_file_name(draft), path, bytes)
}

/// The same with a draft that the caller names.
pub(crate) fn write_via_draft(draft: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let written = write_new_file(draft, bytes).and_then(|()| fs::rename(draft, path));
    written.inspect_err(|_| drop(fs::remove_file(draft)))
}

/// Writes and syncs a file that must not exist yet, for its owner alone.
pub(crate) fn write_new_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes).and_then(|()| file.sync_all())
}

/// The mode of a file or directory that others can use; nothing if only its owner can.
pub(crate) fn loose_mode(metadata: &Metadata) -> Option<u32> {
    Some(metadata.mode() & 0o7777).filter(|mode| mode & 0o077 != 0)
}

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
