//! A whole tree, to be compared with another in tests. The engine's tests include
//! this file too.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Every path of a tree with what it is, for comparing trees.
pub(crate) fn listed(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![PathBuf::new()];
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(root.join(&at)).unwrap() {
            let entry = entry.unwrap();
            let path = at.join(entry.file_name());
            let metadata = entry.metadata().unwrap();
            let mode = metadata.permissions().mode();
            let what = if metadata.is_dir() {
                left.push(path.clone());
                format!("dir {mode:o}")
            } else if metadata.is_symlink() {
                format!("link {}", fs::read_link(entry.path()).unwrap().display())
            } else if metadata.is_file() {
                format!("file {mode:o} {:?}", fs::read(entry.path()).unwrap())
            } else {
                format!("special {mode:o}")
            };
            found.insert(path, what);
        }
    }
    found
}
