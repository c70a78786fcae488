//! Which files are a project's word, and which are a person's own.
//!
//! A project is the directory that a sandbox works in, with the repository around
//! it. A file belongs to it that lies there, or that a link in it leads to: what
//! may write the link chooses the file. Directories are compared by what they are
//! on disk, so another path to the same directory is the same directory.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use engine::spec::beneath;
use policies::MountMode;

use crate::config::{Permitted, PermittedMount};

/// The tree whose files are not a person's own.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProjectTree {
    roots: Vec<DirectoryId>,
}

/// A directory, as the kernel tells it from others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct DirectoryId {
    device: u64,
    inode: u64,
}

impl DirectoryId {
    fn at(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Self { device: found.dev(), inode: found.ino() })
    }

    /// Whether it is `path`, which has no links in it, or above it.
    fn is_above(self, path: &Path) -> bool {
        path.ancestors().any(|above| Self::at(above) == Some(self))
    }
}

impl ProjectTree {
    /// The project that `workspace` is, or is a part of.
    pub(crate) fn around(workspace: &Path, home: Option<PathBuf>) -> Self {
        let home = home.and_then(|home| home.canonicalize().ok());
        // Who keeps their whole home in a repository works in no project for that.
        let holds_home = |root: &&PathBuf| home.as_ref().is_some_and(|home| home.starts_with(root));
        let repository = repository_around(workspace);
        let repository = repository.as_ref().filter(|root| !holds_home(root));
        let roots = repository.map(PathBuf::as_path).into_iter().chain([workspace]);
        Self { roots: roots.filter_map(DirectoryId::at).collect() }
    }

    /// Whether what `path` leads to is the project's, or chosen by it.
    pub(crate) fn chooses(&self, path: &Path) -> bool {
        let Ok(path) = std::path::absolute(path) else { return true };
        let parts = |path: &Path| -> Vec<OsString> {
            path.components().map(|part| part.as_os_str().to_owned()).collect()
        };
        let mut left: VecDeque<OsString> = parts(&path).into();
        let (mut at, mut links) = (PathBuf::from("/"), 0);
        while let Some(part) = left.pop_front() {
            if part == ".." {
                at.pop();
                continue;
            }
            // A part `/` goes back to the beginning.
            let next = at.join(&part);
            let Ok(target) = fs::read_link(&next) else {
                at = next;
                continue;
            };
            links += 1;
            if links > MAX_LINKS || self.holds(&at) {
                return true;
            }
            parts(&target).into_iter().rev().for_each(|part| left.push_front(part));
        }
        self.holds(&at)
    }

    /// Whether `path`, which has no links in it, lies in the project.
    fn holds(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| root.is_above(path))
    }

    /// Whether a policy of the project that stands in `beside` may mount `written`.
    pub(crate) fn may_mount(
        &self,
        beside: &Path,
        written: &str,
        mode: MountMode,
        permitted: &Permitted,
    ) -> Result<(), String> {
        let path = beneath(beside, written);
        // What is not there cannot be mounted, and might be there by then.
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        let is_plain = real.components().all(|part| part != Component::ParentDir);
        if is_plain && self.holds(&real) {
            return Ok(());
        }
        let wide = permitted.mounts.iter().filter(|permitted| permitted.holds(&real));
        let by_link = if self.chooses(&path) && real != path {
            format!(": a link in the project leads to {}", real.display())
        } else {
            String::new()
        };
        let outside = format!("`{written}` is outside the project{by_link}");
        let source = real.display();
        let writable = format!("`mounts: [{{source: {source}, mode: rw}}]`");
        match (mode, wide.max_by_key(|permitted| permitted.writable)) {
            (MountMode::Ro, Some(_)) => Ok(()),
            (MountMode::Rw, Some(permitted)) if permitted.writable => Ok(()),
            (MountMode::Rw, Some(_)) => Err(format!(
                "{outside}, and your configuration permits it read-only; {writable} there permits \
                 writing to it"
            )),
            (MountMode::Ro, None) => Err(format!(
                "{outside}; only your own configuration can permit it: `mounts: [{source}]`"
            )),
            (MountMode::Rw, None) => {
                Err(format!("{outside}; only your own configuration can permit it: {writable}"))
            }
        }
    }
}

impl PermittedMount {
    fn holds(&self, real: &Path) -> bool {
        DirectoryId::at(&self.source).is_some_and(|permitted| permitted.is_above(real))
    }
}

/// Whether `path`, which need not be there yet, lies in `directory`.
pub(crate) fn lies_in(path: &Path, directory: &Path) -> bool {
    let real = path.ancestors().find_map(|above| above.canonicalize().ok());
    let directory = DirectoryId::at(directory);
    real.zip(directory).is_some_and(|(real, directory)| directory.is_above(&real))
}

/// The repository that `dir` is in.
pub(super) fn repository_around(dir: &Path) -> Option<PathBuf> {
    let is_repository = |dir: &&Path| dir.join(".git").symlink_metadata().is_ok();
    dir.ancestors().find(is_repository).map(Path::to_owned)
}

/// As many as the kernel follows.
const MAX_LINKS: usize = 40;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::skip::skip;

    fn scene() -> (tempfile::TempDir, PathBuf, ProjectTree) {
        let scene = tempfile::tempdir().unwrap();
        let top = scene.path().canonicalize().unwrap();
        for dir in ["home/me", "project/sub", "other"] {
            fs::create_dir_all(top.join(dir)).unwrap();
        }
        for file in ["home/me/own.yaml", "project/p.yaml", "project/sub/q.yaml", "other/o.yaml"] {
            fs::write(top.join(file), "").unwrap();
        }
        let tree = ProjectTree::around(&top.join("project"), Some(top.join("home/me")));
        (scene, top, tree)
    }

    #[test]
    fn however_it_is_written_a_file_is_inside_or_outside() {
        let (_scene, top, tree) = scene();
        for (path, is_projects) in [
            ("project/p.yaml", true),
            ("project/sub/../p.yaml", true),
            ("other/../project/sub/q.yaml", true),
            ("project/../other/o.yaml", false),
            ("project/sub/../../other/o.yaml", false),
            ("home/me/own.yaml", false),
            ("project-too/p.yaml", false),
        ] {
            assert_eq!(tree.chooses(&top.join(path)), is_projects, "{path}");
        }
    }

    #[test]
    fn a_link_in_the_project_makes_what_it_leads_to_the_projects() {
        let (_scene, top, tree) = scene();
        symlink("../other/o.yaml", top.join("project/link.yaml")).unwrap();
        symlink(top.join("other"), top.join("project/dir")).unwrap();
        symlink("loop", top.join("project/loop")).unwrap();
        symlink("../project/link.yaml", top.join("other/back.yaml")).unwrap();
        symlink("own.yaml", top.join("home/me/fine.yaml")).unwrap();
        for (path, is_projects) in [
            ("project/link.yaml", true),
            ("project/dir/o.yaml", true),
            ("project/loop", true),
            ("other/back.yaml", true),
            ("home/me/fine.yaml", false),
        ] {
            assert_eq!(tree.chooses(&top.join(path)), is_projects, "{path}");
        }
    }

    #[test]
    fn the_project_by_another_path_is_the_project() {
        let (_scene, top, tree) = scene();
        let alias = top.join("alias");
        fs::create_dir(&alias).unwrap();
        if rustix::mount::mount_bind(top.join("project"), &alias).is_err() {
            return skip("the right to mount");
        }
        let seen = ["alias/p.yaml", "alias/sub/q.yaml", "alias/../other/o.yaml"]
            .map(|path| tree.chooses(&top.join(path)));
        rustix::mount::unmount(&alias, rustix::mount::UnmountFlags::DETACH).unwrap();
        assert_eq!(seen, [true, true, false]);
    }

    #[test]
    fn what_is_not_there_yet_lies_where_it_would_be() {
        let (_scene, top, _) = scene();
        symlink("project", top.join("link")).unwrap();
        assert!(lies_in(&top.join("project/new/config.yaml"), &top.join("project")));
        assert!(lies_in(&top.join("link/new/config.yaml"), &top.join("project")));
        assert!(!lies_in(&top.join("other/new/config.yaml"), &top.join("project")));
    }

    #[test]
    fn a_repository_is_one_project_unless_it_is_a_home() {
        let (_scene, top, _) = scene();
        fs::create_dir(top.join(".git")).unwrap();
        let away = ProjectTree::around(&top.join("project"), None);
        assert!(away.chooses(&top.join("other/o.yaml")));
        let at_home = ProjectTree::around(&top.join("project"), Some(top.join("home/me")));
        assert!(!at_home.chooses(&top.join("other/o.yaml")));
    }
}
