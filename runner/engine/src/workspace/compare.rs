//! Reads what a run changed out of its overlay's upper layer.
//!
//! The upper layer holds what was written and a mark for what was removed, so
//! the work is in proportion to the change and not to the project. No program
//! runs: not git, and nothing the tree could configure.
//!
//! | in the upper layer | means |
//! |---|---|
//! | character device 0/0 | the name below was deleted |
//! | empty file with the mark `whiteout`, in a directory marked `opaque=x` | the same |
//! | directory with the mark `opaque=y` | nothing of the directory below shows |
//! | directory without | merges with the one below |
//! | marks `redirect`, `metacopy` | content is elsewhere: refused, we mount without them |
//! | anything else | stands there instead of what is below |
//!
//! The marks are read from one namespace only, the one of the mount: a sandbox
//! may set the other's, and would then choose what we see.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use files::tree::{Directory, FileStat};
use files::{Bytes, TreePath};
use jiff::Timestamp;
use policies::{FileGlob, RelativePath};
use rustix::fs::FileType;

use super::changes::{Before, Change, Changes, FORMAT, Kind, Nanos, Node, Unhashed};
use super::git_trees;
use super::highlights::{self, Highlight};
use super::marks::Marks;
use super::node::Reading;
use super::survey::{denied, named_by};
use crate::work_budget::WorkBudget;

/// An overlay whose sandbox has stopped.
#[derive(Clone, Copy, Debug)]
pub struct Overlaid<'a> {
    pub project: &'a Path,
    pub upper: &'a Path,
    pub marks: Marks,
    pub started: Timestamp,
    pub protect: &'a BTreeSet<RelativePath>,
    pub deny: &'a [FileGlob],
}

/// How much of a change is written down.
#[derive(Clone, Copy, Debug)]
pub struct ChangeLimits {
    pub entries: usize,
    pub depth: usize,
    /// Bytes of data that are hashed, over all files.
    pub hashed: u64,
    /// Bytes of holes that are. They cost a sandbox nothing, so they have a
    /// limit of their own: a file of one large hole does not use up what the
    /// others need.
    pub holes: u64,
}

impl Default for ChangeLimits {
    fn default() -> Self {
        Self { entries: 100_000, depth: 200, hashed: 32 << 30, holes: 4 << 30 }
    }
}

/// Why there is no list of changes.
#[derive(Debug, thiserror::Error)]
pub enum ChangesError {
    #[error("cannot read {path} of the {layer} layer")]
    Read { layer: &'static str, path: TreePath, source: io::Error },
    #[error(
        "{path} was only half copied into the upper layer (`{mark}`): mount the overlay with `redirect_dir=off,metacopy=off`"
    )]
    Redirected { path: TreePath, mark: &'static str },
    #[error("only root can read the marks of this overlay: mount it with `userxattr`")]
    Unprivileged,
}

/// Lists what changed, as far as `budget` lets it.
pub fn changes(
    overlaid: &Overlaid<'_>,
    limits: &ChangeLimits,
    budget: &WorkBudget,
) -> Result<Changes, ChangesError> {
    // Without the right to read them, marks look like no marks.
    if overlaid.marks == Marks::Trusted && !rustix::process::geteuid().is_root() {
        return Err(ChangesError::Unprivileged);
    }
    let upper = open(overlaid.upper, "upper")?;
    let lower = open(overlaid.project, "lower")?;
    let mut walk = CompareWalk {
        overlaid: *overlaid,
        started: overlaid.started.into(),
        limits: *limits,
        reading: Reading::new(limits, budget),
        budget,
        changes: Vec::new(),
        incomplete: Vec::new(),
    };
    walk.directory(&upper, Some(&lower), &TreePath::ROOT, Shade::default())?;
    walk.changes.sort_by(|a, b| a.path.cmp(&b.path));
    let all: Vec<&Change> = walk.changes.iter().collect();
    let trees = git_trees::after(&all, &lower).map_err(read("lower", &TreePath::ROOT))?;
    for change in &mut walk.changes {
        if git_trees::holding(&trees, &change.path).is_some() {
            change.highlights.push(Highlight::GitTree);
        }
    }
    Ok(Changes {
        format: FORMAT,
        project: Bytes::from(overlaid.project),
        started: overlaid.started,
        protect: overlaid.protect.clone(),
        deny: overlaid.deny.to_vec(),
        incomplete: walk.incomplete,
        changes: walk.changes,
    })
}

fn open(path: &Path, layer: &'static str) -> Result<Directory, ChangesError> {
    Directory::open(path).map_err(|source| ChangesError::Read {
        layer,
        path: TreePath::ROOT,
        source,
    })
}

struct CompareWalk<'a> {
    overlaid: Overlaid<'a>,
    started: Nanos,
    limits: ChangeLimits,
    reading: Reading<'a>,
    budget: &'a WorkBudget,
    changes: Vec<Change>,
    incomplete: Vec<String>,
}

/// What holds for everything in a directory.
#[derive(Clone, Copy, Debug, Default)]
struct Shade {
    /// Nothing of the layer below shows.
    opaque: bool,
    /// Whiteouts may be empty files with a mark.
    marked_whiteouts: bool,
    /// `fs.deny` names it: the sandbox saw nothing of ours here.
    denied: bool,
}

impl CompareWalk<'_> {
    /// Compares a directory of the upper layer with the one below it, if any.
    fn directory(
        &mut self,
        upper: &Directory,
        lower: Option<&Directory>,
        at: &TreePath,
        shade: Shade,
    ) -> Result<(), ChangesError> {
        if at.depth() > self.limits.depth {
            self.stop_at(format!("directories deeper than {} were left out", self.limits.depth));
            return Ok(());
        }
        let (names, more) = upper.names(self.limits.entries).map_err(read("upper", at))?;
        if more {
            self.too_many();
        }
        for named in &names {
            if self.is_over() {
                return Ok(());
            }
            self.name(upper, lower, &at.join(&named.name), &named.name, shade)?;
        }
        if let (true, Some(lower)) = (shade.opaque, lower) {
            let (below, more) = lower.names(self.limits.entries).map_err(read("lower", at))?;
            if more {
                self.too_many();
            }
            let is_gone = |name: &[u8]| {
                names.binary_search_by(|named| named.name.as_slice().cmp(name)).is_err()
            };
            for named in below.iter().filter(|named| is_gone(&named.name)) {
                self.deleted(lower, &at.join(&named.name), &named.name, shade)?;
            }
        }
        Ok(())
    }

    fn name(
        &mut self,
        upper: &Directory,
        lower: Option<&Directory>,
        path: &TreePath,
        name: &[u8],
        above: Shade,
    ) -> Result<(), ChangesError> {
        let Some(seen) = upper.look(name).map_err(read("upper", path))? else { return Ok(()) };
        let denied = above.denied || named_by(self.overlaid.deny, path);
        let shade = Shade { denied, ..above };
        if seen.is_whiteout() || self.is_marked_whiteout(upper, name, &seen, above, path)? {
            return match lower {
                Some(lower) => self.deleted(lower, path, name, shade),
                None => Ok(()),
            };
        }
        // The sandbox never saw what is hidden, so it did not change it.
        let lower = lower.filter(|_| !denied);
        let below = match lower {
            Some(lower) => lower.look(name).map_err(read("lower", path))?,
            None => None,
        };
        let before = match (lower, &below) {
            (Some(lower), Some(below)) => Some(self.before(lower, name, below, &seen)),
            _ => None,
        };
        let hidden = denied.then_some(Unhashed::Hidden);
        let after = self.reading.node(upper, name, &seen, hidden);

        if !seen.is_directory() {
            if let (Some(lower), true) = (lower, below.is_some_and(|below| below.is_directory())) {
                self.emptied(lower, path, name, shade)?;
            }
            self.record(path, before, Some(after));
            return Ok(());
        }

        self.record(path, before, Some(after));
        let inside = match upper.child(name) {
            Ok(inside) => inside,
            // Its owner shut it; root would not be stopped.
            Err(err) if err.kind() == io::ErrorKind::PermissionDenied => {
                self.stop_at(format!("{path} cannot be read"));
                return Ok(());
            }
            Err(source) => return Err(read("upper", path)(source)),
        };
        self.refuse_mark(&inside, "redirect", path)?;
        let opaque = self.overlaid.marks.of(&inside, "opaque").map_err(read("upper", path))?;
        let below = match (lower, below) {
            (Some(lower), Some(below)) if below.is_directory() => {
                Some(lower.child(name).map_err(read("lower", path))?)
            }
            _ => None,
        };
        let shade = Shade {
            // Below a directory that hides everything there is nothing to merge with.
            opaque: above.opaque || opaque.as_deref() == Some(b"y"),
            marked_whiteouts: opaque.as_deref() == Some(b"x"),
            denied,
        };
        self.directory(&inside, below.as_ref(), path, shade)
    }

    /// `name` of the layer below is gone, with everything in it.
    fn deleted(
        &mut self,
        lower: &Directory,
        path: &TreePath,
        name: &[u8],
        shade: Shade,
    ) -> Result<(), ChangesError> {
        // What is hidden was not deleted: the sandbox does not know of it.
        if shade.denied || named_by(self.overlaid.deny, path) {
            return Ok(());
        }
        if self.is_over() {
            return Ok(());
        }
        let Some(seen) = lower.look(name).map_err(read("lower", path))? else { return Ok(()) };
        let before =
            Before { node: self.reading.node(lower, name, &seen, None), stamp: (&seen).into() };
        self.record(path, Some(before), None);
        if seen.is_directory() {
            self.emptied(lower, path, name, shade)?;
        }
        Ok(())
    }

    /// Everything in the directory `name` of the layer below is gone.
    fn emptied(
        &mut self,
        lower: &Directory,
        path: &TreePath,
        name: &[u8],
        shade: Shade,
    ) -> Result<(), ChangesError> {
        if path.depth() > self.limits.depth {
            self.stop_at(format!("directories deeper than {} were left out", self.limits.depth));
            return Ok(());
        }
        let inside = lower.child(name).map_err(read("lower", path))?;
        let (names, more) = inside.names(self.limits.entries).map_err(read("lower", path))?;
        if more {
            self.too_many();
        }
        for named in names {
            self.deleted(&inside, &path.join(&named.name), &named.name, shade)?;
        }
        Ok(())
    }

    fn record(&mut self, path: &TreePath, before: Option<Before>, after: Option<Node>) {
        let change = match (&before, &after) {
            (None, None) => return,
            (None, Some(_)) => Kind::Added,
            (Some(_), None) => Kind::Deleted,
            // Copied up and left as it was.
            (Some(before), Some(after)) if before.node.is_same(after) => return,
            (Some(before), Some(after)) if before.node.is_alike(after) => Kind::Mode,
            (Some(_), Some(_)) => Kind::Changed,
        };
        let is_newer = |before: &Before| {
            // A directory's times tell about its list of names, not about it.
            !before.node.is_directory() && before.stamp.ctime > self.started
        };
        let mut change = Change {
            path: path.clone(),
            change,
            moved: before.as_ref().is_some_and(is_newer),
            before,
            after,
            highlights: Vec::new(),
            patch: None,
        };
        change.highlights = highlights::of(&change, denied(self.overlaid.deny, path));
        self.changes.push(change);
    }

    fn before(
        &mut self,
        lower: &Directory,
        name: &[u8],
        below: &FileStat,
        above: &FileStat,
    ) -> Before {
        // Of two files of different size the content differs; the old one need
        // not be read unless it is small.
        let differs = below.size() != above.size() && below.size() > SMALL;
        let differs = differs.then_some(Unhashed::OtherSize);
        Before { node: self.reading.node(lower, name, below, differs), stamp: below.into() }
    }

    fn is_marked_whiteout(
        &self,
        upper: &Directory,
        name: &[u8],
        seen: &FileStat,
        above: Shade,
        path: &TreePath,
    ) -> Result<bool, ChangesError> {
        if seen.kind() != FileType::RegularFile {
            return Ok(false);
        }
        let Ok((file, _)) = upper.file(name) else { return Ok(false) };
        self.refuse_mark(&file, "metacopy", path)?;
        if seen.size() > 0 || !above.marked_whiteouts {
            return Ok(false);
        }
        let mark = self.overlaid.marks.of(&file, "whiteout").map_err(read("upper", path))?;
        Ok(mark.is_some())
    }

    fn refuse_mark(
        &self,
        file: impl std::os::fd::AsFd,
        mark: &'static str,
        path: &TreePath,
    ) -> Result<(), ChangesError> {
        match self.overlaid.marks.of(file, mark).map_err(read("upper", path))? {
            None => Ok(()),
            Some(_) => Err(ChangesError::Redirected { path: path.clone(), mark }),
        }
    }

    /// Whether nothing more is looked at: there is too much, or no time left.
    fn is_over(&mut self) -> bool {
        if self.changes.len() >= self.limits.entries {
            self.too_many();
            return true;
        }
        match self.budget.check() {
            Ok(()) => false,
            Err(why) => {
                self.stop_at(format!("comparing was {why}; the rest was left out"));
                true
            }
        }
    }

    fn too_many(&mut self) {
        self.stop_at(format!("more than {} changes; the rest was left out", self.limits.entries));
    }

    fn stop_at(&mut self, why: String) {
        if !self.incomplete.contains(&why) && self.incomplete.len() < 100 {
            self.incomplete.push(why);
        }
    }
}

/// Files up to this size are always hashed.
const SMALL: u64 = 1 << 20;

fn read(layer: &'static str, path: &TreePath) -> impl Fn(io::Error) -> ChangesError {
    move |source| ChangesError::Read { layer, path: path.clone(), source }
}
