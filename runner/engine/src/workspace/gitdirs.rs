//! Where the pointer files of work trees and submodules lead.
//!
//! A file `.git` says in which directory git keeps what it obeys: `.bare` beside
//! it, say, with its hooks and its configuration. Where that is in the project
//! it has to be as read-only as a directory called `.git`. What such files say
//! is taken as a name and looked up, link by link refused; nothing is run.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use files::TreePath;
use files::tree::Directory;

use super::prepare::Place;
use super::survey::SurveyError;

/// The directories of the project at `root` that `pointers` lead to, by way of
/// the directory that several work trees have in common.
pub(super) fn led_to(
    tree: &Directory,
    root: &Path,
    pointers: &[Place],
) -> Result<Vec<Place>, SurveyError> {
    let mut found = Vec::new();
    for pointer in pointers.iter().filter(|place| !place.directory) {
        let beside = pointer.path.parent().unwrap_or_default();
        let Some(own) = said(tree, &pointer.path, b"gitdir:") else { continue };
        let Some(own) = resolved(root, &beside, &own) else { continue };
        let common = said(tree, &own.join(b"commondir"), b"");
        let common = common.and_then(|common| resolved(root, &own, &common));
        for path in [Some(own), common].into_iter().flatten() {
            if is_directory(tree, &path)? {
                found.push(Place { path, directory: true });
            }
        }
    }
    Ok(found)
}

/// What a small file says after `word`.
fn said(tree: &Directory, path: &TreePath, word: &[u8]) -> Option<Vec<u8>> {
    let directory = tree.holding(path).ok().flatten()?;
    let text = directory.contents(path.name()?, MAX_POINTER_BYTES).ok().flatten()?;
    let line = text.strip_prefix(word)?.split(|byte| *byte == b'\n').next()?;
    Some(line.trim_ascii().to_vec())
}

/// As long as a path can be, and a word before it.
const MAX_POINTER_BYTES: u64 = 4096 + 16;

/// The path in the project that `written` means in the directory `from`; none if
/// it leads elsewhere, and none for the project itself.
fn resolved(root: &Path, from: &TreePath, written: &[u8]) -> Option<TreePath> {
    let written = Path::new(OsStr::from_bytes(written));
    let (mut parts, rest): (Vec<&[u8]>, &Path) = match written.strip_prefix(root) {
        Ok(inside) => (Vec::new(), inside),
        Err(_) => (from.parts().collect(), written),
    };
    for part in rest.components() {
        match part {
            Component::Normal(name) => parts.push(name.as_bytes()),
            Component::CurDir => {}
            Component::ParentDir => drop(parts.pop()?),
            Component::Prefix(_) | Component::RootDir => return None,
        }
    }
    TreePath::parse(&parts.join(&b'/')).ok().filter(|path| !path.is_root())
}

/// Whether there is such a directory. A link on the way is an error: a mount
/// would land where it points.
fn is_directory(tree: &Directory, path: &TreePath) -> Result<bool, SurveyError> {
    let mut on_the_way = TreePath::ROOT;
    for part in path.parts() {
        on_the_way = on_the_way.join(part);
        let read = |source: io::Error| SurveyError::Read { path: on_the_way.clone(), source };
        match tree.look_at(&on_the_way).map_err(read)? {
            None => return Ok(false),
            Some(seen) if seen.is_directory() => {}
            Some(seen) if seen.kind() == rustix::fs::FileType::Symlink => {
                return Err(SurveyError::Link { path: on_the_way });
            }
            Some(_) => return Ok(false),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[track_caller]
    fn check(made: &[(&str, &str)], pointer: &str, expected: &[&str]) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for (name, text) in made {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text.replace("ROOT", root.to_str().unwrap())).unwrap();
        }
        let path = TreePath::parse(pointer.as_bytes()).unwrap();
        let tree = Directory::open(&root).unwrap();
        let found = led_to(&tree, &root, &[Place { path, directory: false }]).unwrap();
        let found: Vec<_> = found.iter().map(|place| place.path.to_string()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_pointer_leads_to_its_directory_and_to_what_it_shares() {
        let bare = (".bare/config", "");
        check(&[bare, (".git", "gitdir: ./.bare\n")], ".git", &[".bare"]);
        let common = (".bare/worktrees/a/commondir", "../..\n");
        let both = [".bare/worktrees/a", ".bare"];
        let relative = ("a/.git", "gitdir: ../.bare/worktrees/a\n");
        check(&[bare, common, relative], "a/.git", &both);
        let whole = ("a/.git", "gitdir: ROOT/.bare/worktrees/a\n");
        check(&[bare, common, whole], "a/.git", &both);
    }

    #[test]
    fn what_leads_elsewhere_or_nowhere_is_nothing_to_protect() {
        for text in
            ["gitdir: /elsewhere", "gitdir: ../../x", "gitdir: .", "gitdir: absent", "x", ""]
        {
            check(&[("a", ""), (".git", text)], ".git", &[]);
        }
    }

    #[test]
    fn a_link_on_the_way_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(".git"), "gitdir: way/bare").unwrap();
        symlink("/tmp", dir.path().join("way")).unwrap();
        let tree = Directory::open(dir.path()).unwrap();
        let pointer = Place { path: TreePath::parse(b".git").unwrap(), directory: false };
        let err = led_to(&tree, dir.path(), &[pointer]).unwrap_err();
        assert!(err.to_string().starts_with("way is a symbolic link"), "{err}");
    }
}
