//! One file or directory, from one place to another, as an archive.
//!
//! Both halves of `cp` are here, for either side of a sandbox's wall: the one
//! reads a path and writes an archive, the other reads the archive and writes
//! below a path. The one that receives believes nothing.

use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::unpack::unpack_as;
use super::{ArchiveError, ArchiveLimits, Moved, pack};
use crate::tree::Directory;

/// Writes what stands at `path` to `out`. A link there is packed as one.
pub fn send(path: &Path, limits: &ArchiveLimits, out: impl Write) -> Result<Moved, ArchiveError> {
    let name = path.file_name().ok_or_else(|| ArchiveError::Nameless { path: path.to_owned() })?;
    pack(&open(above(path))?, name.as_bytes(), (0, 0), limits, out)
}

/// Puts what `from` holds at `path`: into it under its own name if that is a
/// directory, else as it.
pub fn receive(
    from: impl Read,
    path: &Path,
    limits: &ArchiveLimits,
) -> Result<Moved, ArchiveError> {
    let into_it = path.is_dir() || path.as_os_str().as_bytes().ends_with(b"/");
    if into_it {
        return unpack_as(from, &open(path)?, None, limits);
    }
    let name = path.file_name().ok_or_else(|| ArchiveError::Nameless { path: path.to_owned() })?;
    unpack_as(from, &open(above(path))?, Some(name.as_bytes()), limits)
}

fn above(path: &Path) -> &Path {
    match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        Some(_) | None => Path::new("."),
    }
}

fn open(path: &Path) -> Result<Directory, ArchiveError> {
    let failed = |source| ArchiveError::NoPlace { path: path.to_owned(), source };
    Directory::open(path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn copied(from: &Path, to: &Path) -> Result<Moved, ArchiveError> {
        let limits = ArchiveLimits::default();
        let mut archive = Vec::new();
        send(from, &limits, &mut archive)?;
        receive(&*archive, to, &limits)
    }

    #[test]
    fn a_copy_goes_into_a_directory_or_gets_a_new_name() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::create_dir_all(at("from/sub")).unwrap();
        fs::create_dir(at("to")).unwrap();
        fs::write(at("from/sub/file"), "words").unwrap();

        copied(&at("from/sub/file"), &at("to")).unwrap();
        copied(&at("from/sub/file"), &at("to/renamed")).unwrap();
        copied(&at("from"), &at("to")).unwrap();
        copied(&at("from"), &at("to/other")).unwrap();
        for path in ["to/file", "to/renamed", "to/from/sub/file", "to/other/sub/file"] {
            assert_eq!(fs::read_to_string(at(path)).unwrap(), "words", "{path}");
        }
        assert!(copied(&at("from"), &at("nowhere/x")).is_err());
        assert!(copied(&at("from"), &at("nowhere/")).is_err());
        assert!(copied(&at("to/.."), &at("to")).is_err());
        assert_eq!(fs::read_dir(at("to")).unwrap().count(), 4, "no draft is left");
    }

    #[test]
    fn half_an_archive_is_none() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::create_dir_all(at("from/a")).unwrap();
        fs::create_dir(at("to")).unwrap();
        fs::write(at("from/b"), "words").unwrap();
        let limits = ArchiveLimits::default();
        let mut archive = Vec::new();
        send(&at("from"), &limits, &mut archive).unwrap();
        // At every header, where the end of a stream looks like one of an archive.
        for length in (0..archive.len() - 1024).step_by(512) {
            let half = archive.get(..length).unwrap();
            assert!(receive(half, &at("to"), &limits).is_err(), "{length}");
        }
        // What breaks off while it is packed has no end either.
        std::os::unix::fs::symlink("/", at("from/c")).unwrap();
        let mut archive = Vec::new();
        send(&at("from"), &limits, &mut archive).unwrap_err();
        assert!(!archive.is_empty());
        assert!(receive(&*archive, &at("to"), &limits).is_err());
        assert_eq!(fs::read_dir(at("to")).unwrap().count(), 0);
    }

    #[test]
    fn an_archive_of_more_than_was_asked_for_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let mut builder = tar::Builder::new(Vec::new());
        for name in ["asked", "unasked"] {
            let mut header = tar::Header::new_ustar();
            header.set_size(1);
            header.set_mode(0o644);
            builder.append_data(&mut header, name, &b"x"[..]).unwrap();
        }
        let archive = builder.into_inner().unwrap();
        let limits = ArchiveLimits::default();
        let refused = receive(&*archive, home.path(), &limits).unwrap_err();
        assert!(matches!(refused, ArchiveError::Extra), "{refused}");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
