//! Directories that git takes for a repository, recognised by what is in them.
//!
//! Git runs what a repository's `config` names (`core.fsmonitor`, hooks, filters)
//! when somebody merely asks for the status, and it takes every directory for a
//! repository that holds `HEAD`, `objects` and `refs`, or `HEAD` and `commondir`.
//! The name says nothing. What counts is the tree after `apply`: a part may be on
//! the host already and the rest come with the changes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use files::TreePath;
use files::tree::{Directory, is_absent};

use super::changes::Change;

/// The directories that git would obey once `changes` are in the project.
pub(super) fn after(changes: &[&Change], project: &Directory) -> io::Result<BTreeSet<TreePath>> {
    let mut candidates: BTreeMap<TreePath, Parts> = BTreeMap::new();
    for change in changes {
        for directory in directories_it_may_be_git_data_of(&change.path) {
            candidates.entry(directory).or_default();
        }
    }
    // A part that comes or goes counts more than what the host has.
    for change in changes {
        let (Some(parent), Some(name)) = (change.path.parent(), change.path.name()) else {
            continue;
        };
        if let Some(parts) = candidates.get_mut(&parent) {
            parts.set(name, change.after.is_some());
        }
    }
    let mut found = BTreeSet::new();
    for (directory, mut parts) in candidates {
        parts.complete_from(project, &directory)?;
        if parts.are_a_repository() {
            found.insert(directory);
        }
    }
    Ok(found)
}

/// The one of `trees` whose own files `path` is among.
pub(super) fn holding<'t>(trees: &'t BTreeSet<TreePath>, path: &TreePath) -> Option<&'t TreePath> {
    if trees.is_empty() {
        return None;
    }
    directories_it_may_be_git_data_of(path).find_map(|directory| trees.get(&directory))
}

/// Whether this is the name of a part by which a repository is recognised.
pub(super) fn is_part(name: &[u8]) -> bool {
    name.len() <= COMMONDIR.len() && Parts::default().part(name).is_some()
}

const COMMONDIR: &str = "commondir";

/// Whether these names together make a repository.
pub(super) fn is_repository<'n>(names: impl Iterator<Item = &'n [u8]>) -> bool {
    let mut parts = Parts::default();
    for name in names {
        parts.set(name, true);
    }
    parts.are_a_repository()
}

/// Every directory above `path` in which the next part of `path` is a name that
/// git uses in a repository.
fn directories_it_may_be_git_data_of(path: &TreePath) -> impl Iterator<Item = TreePath> {
    let mut at = TreePath::ROOT;
    let mut found = Vec::new();
    for part in path.parts() {
        if OWN.iter().any(|own| part.eq_ignore_ascii_case(own.as_bytes())) {
            found.push(at.clone());
        }
        at = at.join(part);
    }
    found.into_iter()
}

/// Which of the parts of a repository are there; none for "not known yet".
#[derive(Debug, Default)]
struct Parts {
    head: Option<bool>,
    objects: Option<bool>,
    refs: Option<bool>,
    common: Option<bool>,
}

impl Parts {
    fn part(&mut self, name: &[u8]) -> Option<&mut Option<bool>> {
        Some(match &*name.to_ascii_lowercase() {
            b"head" => &mut self.head,
            b"objects" => &mut self.objects,
            b"refs" => &mut self.refs,
            b"commondir" => &mut self.common,
            _ => return None,
        })
    }

    fn set(&mut self, name: &[u8], there: bool) {
        if let Some(part) = self.part(name) {
            // Of two spellings one that stays is enough.
            *part = Some(there || *part == Some(true));
        }
    }

    fn complete_from(&mut self, project: &Directory, directory: &TreePath) -> io::Result<()> {
        let open = match project.at(directory) {
            Ok(open) => open,
            Err(err) if is_absent(&err) => return Ok(()),
            Err(err) => return Err(err),
        };
        for spelt in ["HEAD", "head", "objects", "refs", "commondir"] {
            let Some(part) = self.part(spelt.as_bytes()) else { continue };
            if part.is_none() && open.look(spelt.as_bytes())?.is_some() {
                *part = Some(true);
            }
        }
        Ok(())
    }

    fn are_a_repository(&self) -> bool {
        let there = |part: Option<bool>| part == Some(true);
        there(self.head) && (there(self.common) || there(self.objects) && there(self.refs))
    }
}

/// Names that git gives to what it keeps in a repository.
const OWN: &[&str] = &[
    "HEAD",
    "branches",
    "commondir",
    "config",
    "config.worktree",
    "description",
    "gitdir",
    "hooks",
    "index",
    "info",
    "logs",
    "modules",
    "objects",
    "packed-refs",
    "refs",
    "reftable",
    "shallow",
    "worktrees",
];

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::changes::{Kind, Node};
    use super::*;

    /// The repositories that the project has once the run's files are added and
    /// those it deleted are gone.
    fn found(host: &[&str], added: &[&str], deleted: &[&str]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        for path in host {
            fs::create_dir_all(dir.path().join(path).parent().unwrap()).unwrap();
            fs::write(dir.path().join(path), "").unwrap();
        }
        let change = |path: &&str, after: Option<Node>| Change {
            path: TreePath::parse(path.as_bytes()).unwrap(),
            change: if after.is_some() { Kind::Added } else { Kind::Deleted },
            before: None,
            after,
            moved: false,
            highlights: Vec::new(),
            patch: None,
        };
        let file = Node::File { mode: 0o644, size: 0, sha256: None, unhashed: None };
        let mut changes: Vec<_> =
            added.iter().map(|path| change(path, Some(file.clone()))).collect();
        changes.extend(deleted.iter().map(|path| change(path, None)));
        let changes: Vec<&Change> = changes.iter().collect();
        let trees = after(&changes, &Directory::open(dir.path()).unwrap()).unwrap();
        trees.iter().map(ToString::to_string).collect()
    }

    const WHOLE: [&str; 4] = ["x/HEAD", "x/config", "x/objects", "x/refs"];

    #[test]
    fn a_repository_is_one_whatever_it_is_called() {
        assert_eq!(found(&[], &WHOLE, &[]), ["x"]);
        assert_eq!(found(&[], &["a/b/c/HEAD", "a/b/c/objects", "a/b/c/refs"], &[]), ["a/b/c"]);
        assert_eq!(found(&[], &["x/head", "x/Objects", "x/REFS"], &[]), ["x"]);
        assert_eq!(found(&[], &["x/HEAD", "x/commondir"], &[]), ["x"]);
        assert_eq!(found(&[], &["HEAD", "objects", "refs"], &[]), [""]);
    }

    #[test]
    fn a_part_may_be_on_the_host_already() {
        for own in WHOLE {
            let rest: Vec<&str> = WHOLE.into_iter().filter(|part| *part != own).collect();
            assert_eq!(found(&rest, &[own], &[]), ["x"], "{own}");
            assert_eq!(found(&[own], &rest, &[]), ["x"], "{own}");
        }
        // A hook in a repository that is there.
        assert_eq!(found(&WHOLE, &["x/hooks/post-checkout"], &[]), ["x"]);
    }

    #[test]
    fn parts_that_make_no_repository_are_files_like_others() {
        assert!(found(&[], &["x/HEAD", "x/config"], &[]).is_empty());
        assert!(found(&[], &["x/objects/a", "x/refs/b", "x/config"], &[]).is_empty());
        assert!(found(&WHOLE, &["x/README"], &[]).is_empty());
        assert!(found(&WHOLE, &[], &WHOLE).is_empty());
        assert!(found(&WHOLE, &["x/config"], &["x/HEAD"]).is_empty());
    }
}
