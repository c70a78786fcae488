//! Walks a project to find what must be protected and what must be hidden.
//!
//! Bounded, and no link is followed: a link that is itself named by `fs.deny` is
//! hidden, what it points to is not looked at. Where a bound is reached the
//! answer is an error, since a `.git` that was not found is a hook that an agent
//! may write.
//!
//! Every directory has to be read, and nothing else: a file is looked at only
//! where the file system does not say what it is. Before a large project several
//! threads read at once, and [`Pattern`] keeps names that cannot be meant away
//! from the patterns.

use std::collections::BTreeSet;
use std::io;
use std::mem::MaybeUninit;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use files::TreePath;
use files::tree::{Directory, is_absent};
use policies::{FileGlob, RelativePath};
use rustix::fs::{FileType, RawDir};

use super::git_trees;
use super::pattern::Pattern;
use super::prepare::Place;
use super::secret_files::{self, Fate};

/// How much of a project is looked at before we give up on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SurveyLimits {
    pub(super) entries: usize,
    pub(super) depth: usize,
}

impl Default for SurveyLimits {
    fn default() -> Self {
        Self { entries: 4_000_000, depth: 200 }
    }
}

/// What the walk found, sorted by path.
#[derive(Clone, Debug, Default)]
pub(super) struct Survey {
    pub(super) protected: Vec<Place>,
    pub(super) masked: Vec<Place>,
    /// Those of them that no `fs.deny` names.
    pub(super) hidden: Vec<TreePath>,
    /// Files with credentials that somebody wants shown.
    pub(super) shown: Vec<TreePath>,
    pub(super) absent: Vec<TreePath>,
}

/// Why a project cannot be protected.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    #[error("the project is nested deeper than {limit} directories at {path}")]
    Deep { path: TreePath, limit: usize },
    /// A mount on a link would land where the link points.
    #[error(
        "{path} is a symbolic link, which cannot be protected: name what it points to under `fs.protect`, or remove it"
    )]
    Link { path: TreePath },
    #[error("the project has more than {limit} files; choose a smaller workspace")]
    Many { limit: usize },
    #[error("{path} is neither a file nor a directory, so it cannot be protected")]
    Odd { path: TreePath },
    #[error("cannot read {path} in the project")]
    Read { path: TreePath, source: io::Error },
}

/// Walks `tree`.
pub(super) fn survey(
    tree: &Directory,
    protect: &BTreeSet<RelativePath>,
    deny: &[FileGlob],
    show: &[FileGlob],
    limits: &SurveyLimits,
) -> Result<Survey, SurveyError> {
    let mut found = Survey::default();
    for named in protect {
        found.named(tree, &super::in_tree(named))?;
    }
    let read = |source| SurveyError::Read { path: TreePath::ROOT, source };
    // Opened anew: a directory is read from where it was left.
    let root = tree.child(b".").map_err(read)?;
    let walk = SurveyWalk {
        deny: deny.iter().map(Pattern::new).collect(),
        show,
        limits: *limits,
        left: AtomicUsize::new(limits.entries),
        work: Mutex::new(SurveyTask { found, ..SurveyTask::default() }),
        changed: Condvar::new(),
    };
    walk.directory(root, &TreePath::ROOT);
    walk.alone(FEW);
    let helpers = thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS) - 1;
    thread::scope(|scope| {
        if !walk.is_done() {
            for _ in 0..helpers {
                scope.spawn(|| walk.together());
            }
            walk.together();
        }
    });
    let SurveyTask { mut found, failed, .. } =
        walk.work.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, failed)) = failed {
        return Err(failed);
    }
    let Survey { protected, masked, hidden, shown, absent } = &mut found;
    protected.sort();
    protected.dedup();
    masked.sort();
    hidden.sort();
    shown.sort();
    absent.sort();
    Ok(found)
}

/// So many directories are read before anybody is asked to help.
const FEW: usize = 64;
/// Reading directories waits for locks in the kernel; more do not help.
const MOST_THREADS: usize = 4;

impl Survey {
    /// What `fs.protect` names.
    fn named(&mut self, tree: &Directory, path: &TreePath) -> Result<(), SurveyError> {
        let failed = |source| SurveyError::Read { path: path.clone(), source };
        let mut on_the_way = TreePath::ROOT;
        for part in path.parts() {
            on_the_way = on_the_way.join(part);
            let seen = tree.look_at(&on_the_way).map_err(failed)?;
            if seen.is_some_and(|seen| seen.kind() == FileType::Symlink) {
                return Err(SurveyError::Link { path: on_the_way });
            }
        }
        match tree.look_at(path).map_err(failed)? {
            None => self.absent.push(path.clone()),
            Some(seen) => self.protect(path.clone(), seen.kind())?,
        }
        Ok(())
    }

    /// A directory that git obeys under whatever name is as read-only as one
    /// called `.git`; of the project's own root, what git runs.
    fn repository(
        &mut self,
        here: &Directory,
        at: &TreePath,
        inside: &mut Vec<TreePath>,
    ) -> io::Result<()> {
        if !at.is_root() {
            self.protected.push(Place { path: at.clone(), directory: true });
            inside.clear();
            return Ok(());
        }
        for name in [&b"HEAD"[..], b"commondir", b"config", b"config.worktree", b"hooks", b"info"] {
            let Some(seen) = here.look(name)? else { continue };
            if matches!(seen.kind(), FileType::Directory | FileType::RegularFile) {
                let path = at.join(name);
                inside.retain(|inside| *inside != path);
                self.protected.push(Place { path, directory: seen.is_directory() });
            }
        }
        Ok(())
    }

    fn protect(&mut self, path: TreePath, kind: FileType) -> Result<(), SurveyError> {
        match kind {
            FileType::Directory => self.protected.push(Place { path, directory: true }),
            FileType::RegularFile => self.protected.push(Place { path, directory: false }),
            FileType::Symlink => return Err(SurveyError::Link { path }),
            _ => return Err(SurveyError::Odd { path }),
        }
        Ok(())
    }
}

struct SurveyWalk<'a> {
    deny: Vec<Pattern<'a>>,
    /// What is not hidden although it may hold credentials.
    show: &'a [FileGlob],
    limits: SurveyLimits,
    /// Names that may still be met.
    left: AtomicUsize,
    work: Mutex<SurveyTask>,
    changed: Condvar,
}

/// What is still to be read, and what came of the rest.
#[derive(Default)]
struct SurveyTask {
    /// The last first, so that few directories are open at once: those above
    /// what is being read.
    waiting: Vec<(Arc<Directory>, TreePath)>,
    reading: usize,
    found: Survey,
    /// Of several the first by path, so that the same project fails the same way.
    failed: Option<(TreePath, SurveyError)>,
}

impl SurveyWalk<'_> {
    fn lock(&self) -> std::sync::MutexGuard<'_, SurveyTask> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_done(&self) -> bool {
        let work = self.lock();
        work.failed.is_some() || work.waiting.is_empty()
    }

    /// Reads at most so many directories.
    fn alone(&self, most: usize) {
        for _ in 0..most {
            let Some((parent, path)) = self.lock().waiting.pop() else { return };
            self.enter(&parent, &path);
        }
    }

    /// Reads until there is nothing left, beside others who do the same.
    fn together(&self) {
        let mut work = self.lock();
        loop {
            if work.failed.is_some() {
                break;
            }
            match work.waiting.pop() {
                Some((parent, path)) => {
                    work.reading += 1;
                    drop(work);
                    self.enter(&parent, &path);
                    work = self.lock();
                    work.reading -= 1;
                }
                None if work.reading == 0 => break,
                None => {
                    work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        self.changed.notify_all();
    }

    fn enter(&self, parent: &Directory, path: &TreePath) {
        let name = path.name().unwrap_or_default();
        match parent.child(name) {
            Ok(child) => self.directory(child, path),
            // Gone since, or not a directory any more.
            Err(err) if is_absent(&err) => {}
            Err(err) if is_anothers(parent, name, &err) => {}
            Err(source) => self.fail(path, SurveyError::Read { path: path.clone(), source }),
        }
    }

    fn fail(&self, path: &TreePath, err: SurveyError) {
        let mut work = self.lock();
        if work.failed.as_ref().is_none_or(|(other, _)| path < other) {
            work.failed = Some((path.clone(), err));
        }
        self.changed.notify_all();
    }

    /// Reads one directory, and puts those in it on the list.
    fn directory(&self, here: Directory, at: &TreePath) {
        match self.read(&here, at) {
            Err(err) => self.fail(at, err),
            Ok((found, inside)) => {
                let here = Arc::new(here);
                let mut work = self.lock();
                work.found.protected.extend(found.protected);
                work.found.masked.extend(found.masked);
                work.found.hidden.extend(found.hidden);
                work.found.shown.extend(found.shown);
                if !inside.is_empty() {
                    work.waiting.extend(inside.into_iter().map(|path| (Arc::clone(&here), path)));
                    self.changed.notify_all();
                }
            }
        }
    }

    fn read(
        &self,
        here: &Directory,
        at: &TreePath,
    ) -> Result<(Survey, Vec<TreePath>), SurveyError> {
        if at.depth() > self.limits.depth {
            return Err(SurveyError::Deep { path: at.clone(), limit: self.limits.depth });
        }
        let failed = |source: io::Error| SurveyError::Read { path: at.clone(), source };
        let (mut found, mut inside, mut parts) = (Survey::default(), Vec::new(), Vec::new());
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut entries = RawDir::new(here, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|err| failed(err.into()))?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let before = self
                .left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            if before.is_err() {
                return Err(SurveyError::Many { limit: self.limits.entries });
            }
            let kind = match entry.file_type() {
                FileType::Unknown => match here.look(name).map_err(failed)? {
                    Some(seen) => seen.kind(),
                    None => continue,
                },
                says => says,
            };
            if self.deny.iter().any(|pattern| pattern.matches(at, name)) {
                let directory = kind == FileType::Directory;
                found.masked.push(Place { path: at.join(name), directory });
                continue;
            }
            match secret_files::fate(here, at, name, kind, self.show) {
                Some(Fate::Hidden) => {
                    let directory = kind == FileType::Directory;
                    found.masked.push(Place { path: at.join(name), directory });
                    found.hidden.push(at.join(name));
                    continue;
                }
                Some(Fate::Shown) => found.shown.push(at.join(name)),
                None => {}
            }
            // Git's own; what is inside needs no second mount. Where names have
            // no case another spelling is the same directory.
            let is_plain = matches!(kind, FileType::Directory | FileType::RegularFile);
            if name == b".git" || name.eq_ignore_ascii_case(b".git") && is_plain {
                found.protect(at.join(name), kind)?;
            } else if kind == FileType::Directory {
                inside.push(at.join(name));
            }
            if git_trees::is_part(name) {
                parts.push(name.to_vec());
            }
        }
        if git_trees::is_repository(parts.iter().map(Vec::as_slice)) {
            found.repository(here, at, &mut inside).map_err(failed)?;
        }
        Ok((found, inside))
    }
}

/// Whether a directory is shut to us because it is somebody else's, as a
/// database leaves them. A sandbox has at most our rights to the project, so it
/// can neither read there nor write; a directory that is ours it could open.
fn is_anothers(parent: &Directory, name: &[u8], err: &io::Error) -> bool {
    let euid = rustix::process::geteuid();
    err.kind() == io::ErrorKind::PermissionDenied
        && parent.look(name).is_ok_and(|seen| {
            seen.is_some_and(|seen| seen.owner().0 != euid.as_raw() && seen.mode() & 0o022 == 0)
        })
}

/// Whether `fs.deny` names this file, or a directory it is in.
pub(super) fn denied(deny: &[FileGlob], path: &TreePath) -> bool {
    let mut above = Some(path.clone());
    while let Some(here) = above {
        if named_by(deny, &here) {
            return true;
        }
        above = here.parent();
    }
    false
}

/// Whether a pattern names this very path.
pub(crate) fn named_by(globs: &[FileGlob], path: &TreePath) -> bool {
    if globs.is_empty() || path.is_root() {
        return false;
    }
    let text = path.lossy();
    globs.iter().any(|glob| glob.matches(&text))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use expect_test::{Expect, expect};

    use super::*;

    fn globs(written: &[&str]) -> Vec<FileGlob> {
        written.iter().map(|glob| FileGlob::parse(glob).unwrap()).collect()
    }

    #[track_caller]
    fn check(dir: &Path, protect: &[&str], deny: &[&str], expected: Expect) {
        let tree = Directory::open(dir).unwrap();
        let protect = protect.iter().map(|path| RelativePath::parse(path).unwrap()).collect();
        let told = match survey(
            &tree,
            &protect,
            &globs(deny),
            &globs(&["**"]),
            &SurveyLimits::default(),
        ) {
            Err(err) => format!("{err}\n"),
            Ok(found) => {
                let list = |title: &str, places: &[Place]| -> String {
                    let end = |place: &Place| if place.directory { "/" } else { "" };
                    places.iter().map(|p| format!("{title} {}{}\n", p.path, end(p))).collect()
                };
                let absent: String =
                    found.absent.iter().map(|path| format!("absent {path}\n")).collect();
                list("protected", &found.protected) + &list("masked", &found.masked) + &absent
            }
        };
        expected.assert_eq(&told);
    }

    fn project() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for made in [".git/hooks", "vendor/lib/.git", "tree", "scripts", "a/.ssh"] {
            fs::create_dir_all(dir.path().join(made)).unwrap();
        }
        fs::write(dir.path().join("tree/.git"), "gitdir: /elsewhere\n").unwrap();
        fs::write(dir.path().join("a/.env"), "KEY=1").unwrap();
        fs::write(dir.path().join("a/.ssh/id"), "key").unwrap();
        dir
    }

    #[test]
    fn every_repository_is_found_and_every_secret_hidden() {
        let dir = project();
        check(
            dir.path(),
            &[".git", "scripts", "tools/build"],
            &["**/.env*", "**/.ssh"],
            expect![[r#"
                protected .git/
                protected scripts/
                protected tree/.git
                protected vendor/lib/.git/
                masked a/.env
                masked a/.ssh/
                absent tools/build
            "#]],
        );
    }

    #[test]
    fn a_repository_is_protected_whatever_it_is_called() {
        let dir = tempfile::tempdir().unwrap();
        for made in ["fixtures/store/objects", "fixtures/store/refs", "objects", "refs", "hooks"] {
            fs::create_dir_all(dir.path().join(made)).unwrap();
        }
        for made in ["fixtures/store/HEAD", "HEAD", "config"] {
            fs::write(dir.path().join(made), "").unwrap();
        }
        check(
            dir.path(),
            &[],
            &[],
            expect![[r#"
                protected HEAD
                protected config
                protected fixtures/store/
                protected hooks/
            "#]],
        );
    }

    #[test]
    fn a_link_in_the_place_of_something_protected_is_an_error() {
        let dir = project();
        symlink("/etc", dir.path().join("a/.git")).unwrap();
        check(
            dir.path(),
            &[],
            &[],
            expect![[r#"
                a/.git is a symbolic link, which cannot be protected: name what it points to under `fs.protect`, or remove it
            "#]],
        );
        fs::remove_file(dir.path().join("a/.git")).unwrap();
        symlink("a", dir.path().join("way")).unwrap();
        check(
            dir.path(),
            &["way/.env"],
            &[],
            expect![[r#"
                way is a symbolic link, which cannot be protected: name what it points to under `fs.protect`, or remove it
            "#]],
        );
    }

    #[test]
    fn a_hidden_link_is_hidden_itself_and_loops_end() {
        let dir = project();
        symlink("../..", dir.path().join("a/up")).unwrap();
        symlink("/root/.netrc", dir.path().join(".netrc")).unwrap();
        check(
            dir.path(),
            &[],
            &["**/.netrc"],
            expect![[r#"
                protected .git/
                protected tree/.git
                protected vendor/lib/.git/
                masked .netrc
            "#]],
        );
    }

    #[test]
    fn a_project_that_is_too_large_is_refused_not_half_protected() {
        let dir = project();
        let tree = Directory::open(dir.path()).unwrap();
        let few = SurveyLimits { entries: 3, depth: 9 };
        let err = survey(&tree, &BTreeSet::new(), &[], &[], &few).unwrap_err();
        assert_eq!(
            err.to_string(),
            "the project has more than 3 files; choose a smaller workspace"
        );
        let flat = SurveyLimits { entries: 99, depth: 1 };
        let err = survey(&tree, &BTreeSet::new(), &[], &[], &flat).unwrap_err();
        assert!(matches!(err, SurveyError::Deep { .. }), "{err}");
    }

    #[test]
    fn a_file_below_a_denied_directory_is_denied() {
        let deny = globs(&["**/.ssh", "keys/*.pem"]);
        let denied = |path: &str| denied(&deny, &TreePath::parse(path.as_bytes()).unwrap());
        assert!(denied("a/.ssh") && denied("a/.ssh/b/c") && denied("keys/x.pem"));
        assert!(!denied("a/ssh") && !denied("x.pem"));
    }
}
