//! How much a tree that a sandbox writes to takes on the disk.
//!
//! The sandbox may be at work in it while we look, and may be hostile: no link is
//! followed, what vanishes is not there, a file with several names counts once,
//! and neither the depth of the tree nor the width of a directory takes more of
//! us than it should. Looking ends as soon as there is too much.

use std::collections::HashSet;
use std::io;
use std::ops::Sub;
use std::rc::Rc;

use files::tree::{Directory, FileStat, is_absent};

/// What a tree takes.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct DiskUsage {
    pub bytes: u64,
    /// Files, directories, links: names.
    pub files: u64,
}

impl Sub for DiskUsage {
    type Output = Self;

    /// Growth; shrinking is no growth.
    fn sub(self, before: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(before.bytes),
            files: self.files.saturating_sub(before.files),
        }
    }
}

/// What was found, and what could not be looked at.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Measured {
    pub usage: DiskUsage,
    /// A directory is shut to us; there may be anything in it.
    pub shut: bool,
    /// The tree branches deeper than we follow.
    pub deep: bool,
}

impl Measured {
    /// Whether there is more than `most`.
    pub fn exceeds(&self, most: &DiskUsage) -> bool {
        self.usage.bytes > most.bytes || self.usage.files > most.files
    }
}

/// Adds up what is below `root`, until it is more than `most`.
pub fn measure(root: &Directory, most: &DiskUsage) -> io::Result<Measured> {
    let mut measured = Measured::default();
    let mut linked = HashSet::new();
    let mut branches = 0_usize;
    let mut left: Vec<(Rc<Directory>, Vec<u8>)> = Vec::new();
    let mut here = Some(Rc::new(root.at(&super::TreePath::ROOT)?));
    loop {
        if let Some(directory) = here.take() {
            let before = left.len();
            look_through(&directory, most, &mut measured, &mut linked, &mut left)?;
            branches += usize::from(left.len() > before);
        }
        measured.deep |= branches > BRANCHES;
        if measured.exceeds(most) || measured.deep {
            return Ok(measured);
        }
        let Some((parent, name)) = left.pop() else { return Ok(measured) };
        match parent.child(&name) {
            Ok(child) => here = Some(Rc::new(child)),
            Err(err) if is_absent(&err) => {}
            Err(err) if err.kind() == io::ErrorKind::PermissionDenied => measured.shut = true,
            Err(err) => return Err(err),
        }
        // The last of its children: it is closed here.
        branches -= usize::from(Rc::strong_count(&parent) == 1);
    }
}

/// Directories that are open at once, each with something left to look at.
const BRANCHES: usize = 1000;

fn look_through(
    directory: &Rc<Directory>,
    most: &DiskUsage,
    measured: &mut Measured,
    linked: &mut HashSet<(u64, u64)>,
    left: &mut Vec<(Rc<Directory>, Vec<u8>)>,
) -> io::Result<()> {
    let room = most.files.saturating_sub(measured.usage.files).saturating_add(1);
    let (names, _) = match directory.names(usize::try_from(room).unwrap_or(usize::MAX)) {
        // Removed while we looked.
        Err(err) if is_absent(&err) => return Ok(()),
        names => names?,
    };
    for named in names {
        let Some(seen) = directory.look(&named.name)? else { continue };
        measured.usage.files += 1;
        if !is_counted_already(&seen, linked) {
            measured.usage.bytes += blocks(&seen);
        }
        if measured.exceeds(most) {
            return Ok(());
        }
        if seen.is_directory() {
            left.push((Rc::clone(directory), named.name));
        }
    }
    Ok(())
}

fn is_counted_already(seen: &FileStat, linked: &mut HashSet<(u64, u64)>) -> bool {
    let stat = seen.stat();
    let has_names = !seen.is_directory() && stat.st_nlink > 1;
    has_names && !linked.insert((stat.st_dev, stat.st_ino))
}

/// What it really takes: a file of holes takes nothing. The few blocks in which a
/// file system keeps where the others are do not count, or a file of exactly the
/// limit would be within it on one machine and not on the next.
fn blocks(seen: &FileStat) -> u64 {
    let stat = seen.stat();
    let taken = u64::try_from(stat.st_blocks).unwrap_or_default().saturating_mul(512);
    if seen.is_directory() {
        return taken;
    }
    let content = u64::try_from(stat.st_size).unwrap_or_default().next_multiple_of(BLOCK);
    let is_bookkeeping = taken.saturating_sub(content) <= BOOKKEEPING + content / 256;
    if is_bookkeeping { taken.min(content) } else { taken }
}

const BLOCK: u64 = 4096;
/// For a small file; large ones need more, a block for each few hundred pieces.
const BOOKKEEPING: u64 = 2 * BLOCK;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use rustix::fs::Mode;

    use super::*;

    const ENOUGH: DiskUsage = DiskUsage { bytes: 1 << 40, files: 1 << 30 };

    fn opened(dir: &tempfile::TempDir) -> Directory {
        Directory::open(dir.path()).unwrap()
    }

    #[test]
    fn names_and_blocks_are_added_up_and_a_second_name_takes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/b/f"), vec![1; 100_000]).unwrap();
        let once = measure(&opened(&dir), &ENOUGH).unwrap();
        assert_eq!(once.usage.files, 3);
        assert!((100_000..200_000).contains(&once.usage.bytes), "{once:?}");
        fs::hard_link(dir.path().join("a/b/f"), dir.path().join("g")).unwrap();
        symlink("/", dir.path().join("root")).unwrap();
        let twice = measure(&opened(&dir), &ENOUGH).unwrap();
        assert_eq!((twice.usage.files, twice.usage.bytes), (5, once.usage.bytes));
    }

    #[test]
    fn a_file_of_holes_takes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::File::create(dir.path().join("holes")).unwrap().set_len(1 << 40).unwrap();
        let found = measure(&opened(&dir), &ENOUGH).unwrap();
        assert!(found.usage.bytes < 1 << 20, "{found:?}");
    }

    #[test]
    fn looking_ends_when_there_is_too_much() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..500 {
            fs::write(dir.path().join(number.to_string()), "").unwrap();
        }
        let few = DiskUsage { files: 100, ..ENOUGH };
        let found = measure(&opened(&dir), &few).unwrap();
        assert!(found.exceeds(&few));
        assert!(found.usage.files < 110, "{found:?}");
    }

    #[test]
    fn a_deep_tree_is_followed_with_few_open_and_a_deep_thicket_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let root = opened(&dir);
        let mut here = root.at(&crate::workspace::TreePath::ROOT).unwrap();
        for _ in 0..1500 {
            rustix::fs::mkdirat(&here, "d", Mode::RWXU).unwrap();
            here = here.child(b"d").unwrap();
        }
        let found = measure(&root, &ENOUGH).unwrap();
        assert_eq!((found.usage.files, found.deep), (1500, false));
        // A second directory beside each: all of them wait for their turn.
        let mut here = root.at(&crate::workspace::TreePath::ROOT).unwrap();
        for _ in 0..1500 {
            rustix::fs::mkdirat(&here, "a", Mode::RWXU).unwrap();
            here = here.child(b"d").unwrap();
        }
        assert!(measure(&root, &ENOUGH).unwrap().deep);
        files::removal::remove_all(&root, b"d").unwrap();
    }

    #[test]
    fn a_directory_that_is_shut_is_not_taken_for_empty() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("shut")).unwrap();
        fs::set_permissions(dir.path().join("shut"), fs::Permissions::from_mode(0o000)).unwrap();
        let found = measure(&opened(&dir), &ENOUGH).unwrap();
        // Nothing is shut to root.
        assert_eq!(found.shut, !rustix::process::geteuid().is_root());
    }
}
