//! The layer that hides what `fs.deny` names.
//!
//! It lies between the project and what the sandbox writes, and holds a whiteout
//! for each hidden file: to the kernel the file does not exist, whatever path
//! leads there, and a thousand of them cost no mount. The directories on the way
//! look as they do in the project, since the upper of two is the one that shows.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

use files::TreePath;
use files::tree::{Directory, FileStat};
use inside::launch::idmap::Swap;
use rustix::fs::{FileType, Gid, Mode, Uid};
use rustix::io::Errno;

use super::prepare::Place;
use crate::plan::UserIds;

/// Writes the layer for `masked` into the empty directory `layer`.
pub(super) fn write<'p>(
    tree: &Directory,
    masked: impl Iterator<Item = &'p Place>,
    layer: &Path,
    swap: Option<Swap>,
) -> io::Result<()> {
    let layer = Directory::open(layer)?;
    look_like(&layer, &tree.itself()?, swap)?;
    for Place { path, .. } in masked {
        let Some(name) = path.name() else { continue };
        let parent = way_to(tree, &layer, path, swap)?;
        match rustix::fs::mknodat(&parent, name, FileType::CharacterDevice, Mode::empty(), 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(err) => return Err(err.into()),
        }
    }
    Ok(())
}

/// Makes the directories above `path` in the layer.
fn way_to(
    tree: &Directory,
    layer: &Directory,
    path: &TreePath,
    swap: Option<Swap>,
) -> io::Result<Directory> {
    let above = path.parent().unwrap_or_default();
    let mut real = tree.at(&TreePath::ROOT)?;
    let mut made = layer.at(&TreePath::ROOT)?;
    for part in above.parts() {
        real = real.child(part)?;
        match rustix::fs::mkdirat(&made, part, Mode::RWXU) {
            Ok(()) => {
                made = made.child(part)?;
                look_like(&made, &real.itself()?, swap)?;
            }
            Err(Errno::EXIST) => made = made.child(part)?,
            Err(err) => return Err(err.into()),
        }
    }
    Ok(made)
}

/// The project may appear under another owner than it has; so do we then.
fn look_like(made: &Directory, real: &FileStat, swap: Option<Swap>) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = real.owner();
        let owner = UserIds { uid, gid };
        let UserIds { uid, gid } = swap.map_or(owner, |swap| swap.shown(owner));
        rustix::fs::fchown(made.as_fd(), Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    // We still have to write into it.
    let mode = Mode::from_raw_mode(real.mode()) | Mode::RWXU;
    Ok(rustix::fs::fchmod(made.as_fd(), mode)?)
}
