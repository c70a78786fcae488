//! Control groups of the first version that somebody gave this user.
//!
//! Whoever may write to a group's directory may make groups in it, and in the first
//! version may put processes of their own there wherever those are now. So an
//! administrator who wants limits for a user makes a directory in the tree of each
//! controller and gives it away; here it is found. In the second version a process
//! cannot come from elsewhere, and only the groups above one's own count.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

/// The uppermost group in `tree` that is this user's to divide.
pub(super) fn find(tree: &Path) -> Option<PathBuf> {
    let us = rustix::process::geteuid().as_raw();
    let mut level = vec![tree.to_owned()];
    for _ in 0..DEEPEST {
        let mut below: Vec<PathBuf> = level.iter().flat_map(|group| groups_in(group)).collect();
        below.sort();
        below.truncate(MAX_GROUPS);
        let ours = |group: &&PathBuf| {
            let owned = group.metadata().is_ok_and(|found| found.uid() == us);
            owned && rustix::fs::access(group.as_path(), Access::WRITE_OK | Access::EXEC_OK).is_ok()
        };
        if let Some(found) = below.iter().find(ours) {
            return Some(found.clone());
        }
        level = below;
    }
    None
}

fn groups_in(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

/// `user.slice/user-1000.slice/name` is as deep as they are given.
const DEEPEST: usize = 3;
/// A machine may have thousands of containers, and each run asks.
const MAX_GROUPS: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip;

    #[test]
    fn the_uppermost_group_of_ours_is_found() {
        let home = tempfile::tempdir().unwrap();
        let at = |path: &str| home.path().join(path);
        fs::create_dir_all(at("others/ours/deeper")).unwrap();
        fs::create_dir_all(at("a/b/c/d")).unwrap();
        if !rustix::process::geteuid().is_root() {
            // Everything here is ours.
            assert_eq!(find(home.path()), Some(at("a")));
            return skip("root");
        }
        let somebody = |path| std::os::unix::fs::chown(at(path), Some(1500), None).unwrap();
        for path in ["others", "a", "a/b", "a/b/c"] {
            somebody(path);
        }
        assert_eq!(find(home.path()), Some(at("others/ours")));
        somebody("others/ours");
        assert_eq!(find(home.path()), Some(at("others/ours/deeper")));
        somebody("others/ours/deeper");
        assert_eq!(find(home.path()), None, "deeper than anybody gives them");
    }
}
