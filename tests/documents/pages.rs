//! Every document of the repository, as text.

use std::fs;
use std::path::{Path, PathBuf};

/// The top of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Each page with its path, from the top.
pub(crate) fn all() -> Vec<(PathBuf, String)> {
    let pages = below("", "md");
    assert!(pages.len() > 20, "{pages:?}");
    pages.into_iter().map(|path| (path.clone(), read(&path))).collect()
}

pub(crate) fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|err| panic!("{}: {err}", path.display()))
}

/// Files with this ending below `folder`, without what was built or is hidden.
pub(crate) fn below(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![PathBuf::from(folder)];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            let path = folder.join(&name);
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && !name.starts_with('.') && name != "target" {
                left.push(path);
            } else if kind.is_file() && Path::new(&name).extension().is_some_and(|e| e == ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// What stands between backticks on a line of text, code blocks left out.
pub(crate) fn quoted(page: &str) -> Vec<&str> {
    let mut inside = false;
    let mut words = Vec::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            words.extend(line.split('`').skip(1).step_by(2));
        }
    }
    words
}
