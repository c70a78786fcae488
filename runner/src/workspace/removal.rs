//! Removes a tree that somebody hostile may have written.
//!
//! No link is followed, and neither depth nor permissions stop it: a directory
//! below a certain depth is first moved up to the top, so that the number of
//! open directories stays small, and one that its owner shut is opened again.

use std::io;

use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;

use super::tree::{Directory, is_absent};

/// How deep we go before a directory is moved up.
const DEPTH: usize = 64;

/// Removes `name` in `top` and everything in it; absent already is removed.
pub fn remove_all(top: &Directory, name: &[u8]) -> io::Result<()> {
    let mut left = vec![name.to_vec()];
    while let Some(name) = left.pop() {
        remove(top, top, &name, 0, &mut left)?;
    }
    Ok(())
}

fn remove(
    top: &Directory,
    parent: &Directory,
    name: &[u8],
    depth: usize,
    left: &mut Vec<Vec<u8>>,
) -> io::Result<()> {
    let Some(seen) = parent.look(name)? else { return Ok(()) };
    if !seen.is_directory() {
        return gone(rustix::fs::unlinkat(parent, name, AtFlags::empty()));
    }
    // An empty one needs no opening, which its owner may not allow.
    match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        done => return gone(done),
    }
    let inside = match parent.child(name) {
        Err(err) if err.kind() == io::ErrorKind::PermissionDenied => {
            // Not a link: we have just seen a directory, and nobody else writes
            // to what is being removed.
            rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
            parent.child(name)?
        }
        opened => opened?,
    };
    if seen.mode() & 0o300 != 0o300 {
        // Shut for writing; root does not notice, an owner would.
        rustix::fs::fchmod(&inside, Mode::RWXU)?;
    }
    loop {
        // In portions: a directory may have more names than fit in memory.
        let (names, more) = inside.names(10_000)?;
        for named in &names {
            let directory = matches!(named.says, FileType::Directory | FileType::Unknown);
            if depth >= DEPTH && directory {
                let moved = format!(".removed-{}", uuid::Uuid::now_v7()).into_bytes();
                rustix::fs::renameat(&inside, &*named.name, top, &*moved)?;
                left.push(moved);
            } else {
                remove(top, &inside, &named.name, depth + 1, left)?;
            }
        }
        if !more {
            break;
        }
    }
    gone(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR))
}

fn gone(removed: Result<(), Errno>) -> io::Result<()> {
    match removed.map_err(io::Error::from) {
        Err(err) if is_absent(&err) => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_tree_that_no_path_reaches_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let top = Directory::open(home.path()).unwrap();
        let mut here = top.at(&crate::workspace::TreePath::ROOT).unwrap();
        let name = "d".repeat(200);
        for _ in 0..1500 {
            rustix::fs::mkdirat(&here, &*name, Mode::RWXU).unwrap();
            here = here.child(name.as_bytes()).unwrap();
        }
        remove_all(&top, name.as_bytes()).unwrap();
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        remove_all(&top, name.as_bytes()).unwrap();
    }

    #[test]
    fn nothing_outside_is_removed_and_shut_doors_are_opened() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("tree/shut")).unwrap();
        fs::write(home.path().join("kept"), "").unwrap();
        fs::write(home.path().join("tree/shut/file"), "").unwrap();
        symlink("../kept", home.path().join("tree/link")).unwrap();
        symlink(home.path(), home.path().join("tree/up")).unwrap();
        let shut = fs::Permissions::from_mode(0o000);
        fs::set_permissions(home.path().join("tree/shut"), shut).unwrap();
        remove_all(&Directory::open(home.path()).unwrap(), b"tree").unwrap();
        let left: Vec<_> =
            fs::read_dir(home.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["kept"]);
    }
}
