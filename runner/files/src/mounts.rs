//! What is mounted below a folder of ours, and taking it away.
//!
//! A project that is mounted into a run's folder looks like a part of it: whoever
//! removes the folder with everything in it would remove the project. So what is
//! mounted goes first, and removal never crosses into a mount that stayed
//! ([`super::removal`]).

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

/// Unmounts everything below `folder`, the newest first.
///
/// At once, also while somebody is looking into it: what they hold stays theirs,
/// and the name leads nowhere any more.
pub fn unmount_below(folder: &Path) -> io::Result<()> {
    // As the kernel spells it.
    let Ok(folder) = folder.canonicalize() else { return Ok(()) };
    let table = fs::read("/proc/self/mountinfo")?;
    for point in points(&table).into_iter().rev().filter(|point| point.starts_with(&folder)) {
        match unmount(&point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            // Gone already, as with the mount it was in.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(err) => return Err(err.into()),
        }
    }
    Ok(())
}

/// The mount points of a table, in the order they were made.
fn points(table: &[u8]) -> Vec<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4)).map(plain).collect()
}

/// A path as it is, out of one whose blanks are written `\040`.
fn plain(written: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(written.len());
    let mut rest = written;
    while let Some((byte, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *byte == b'\\');
        let code = code.and_then(|code| str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(code) => {
                bytes.push(code);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Whether `path` is where something is mounted.
pub fn is_mounted(path: &Path) -> io::Result<bool> {
    let path = path.canonicalize()?;
    let table = fs::read("/proc/self/mountinfo")?;
    Ok(points(&table)
        .iter()
        .any(|point| point.as_os_str().as_bytes() == path.as_os_str().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_with_a_blank_is_read_as_it_is() {
        let table =
            b"36 35 98:0 / /mnt\\040two\\134 rw - ext4 /dev/x rw\n37 36 0:5 / /a rw - t t rw\n";
        assert_eq!(points(table), [Path::new("/mnt two\\"), Path::new("/a")]);
        assert_eq!(points(b"nonsense\n\n"), [] as [&Path; 0]);
    }

    #[test]
    fn nothing_mounted_is_nothing_to_do() {
        let home = tempfile::tempdir().unwrap();
        unmount_below(home.path()).unwrap();
        unmount_below(&home.path().join("absent")).unwrap();
        assert!(!is_mounted(home.path()).unwrap());
    }
}
