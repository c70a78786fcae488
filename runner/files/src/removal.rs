//! Removes a tree that somebody hostile may have written.
//!
//! No link is followed, no mount is entered, and neither depth nor permissions
//! stop it: a directory below a certain depth is first moved up to the top, so
//! that the number of open directories stays small, and one that its owner shut
//! is opened again.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;

use super::mounts::unmount_below;
use super::tree::{Directory, is_absent};

/// How deep we go before a directory is moved up.
const DEPTH: usize = 64;

/// Removes a folder of ours with everything in it, but nothing that is mounted
/// there: that is unmounted. Absent already is removed.
pub fn remove_folder(folder: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Err(io::Error::other("it is not a folder in another"));
    };
    unmount_below(folder)?;
    match Directory::open(above) {
        Err(err) if is_absent(&err) => Ok(()),
        above => remove_all(&above?, name.as_bytes()),
    }
}

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
    let inside = match parent.child_here(name) {
        Err(err) if err.kind() == io::ErrorKind::PermissionDenied => {
            // Not a link: we have just seen a directory, and nobody else writes
            // to what is being removed.
            rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
            parent.child_here(name)?
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
    use crate::skip::skip;

    #[test]
    fn a_tree_that_no_path_reaches_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let top = Directory::open(home.path()).unwrap();
        let mut here = top.at(&crate::TreePath::ROOT).unwrap();
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
    fn a_mounted_project_outlives_the_folder_it_was_mounted_in() {
        let home = tempfile::tempdir().unwrap();
        let (project, folder) = (home.path().join("project"), home.path().join("run"));
        let (at, deep) = (folder.join("project"), folder.join("deep/er"));
        for dir in [&project, &at, &deep] {
            fs::create_dir_all(dir).unwrap();
        }
        fs::write(project.join("precious"), "").unwrap();
        let bind = |at: &Path| rustix::mount::mount_bind(&project, at);
        if bind(&at).and_then(|()| bind(&deep)).is_err() {
            return skip("the right to mount");
        }
        // Were it not unmounted, removal would stop before it.
        let top = Directory::open(home.path()).unwrap();
        let stopped = remove_all(&top, b"run");
        assert!(project.join("precious").exists(), "removal went through a mount");
        stopped.unwrap_err();
        assert!(top.child_here(b"run").unwrap().child_here(b"project").is_err(), "it is a mount");

        remove_folder(&folder).unwrap();
        assert!(project.join("precious").exists(), "removal went through a mount");
        assert!(!folder.exists());
        remove_folder(&folder).unwrap();
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
