//! Overlays for tests: a real mount where we may, and a word where we may not.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;

use files::tree::Directory;
use jiff::Timestamp;
use policies::{FileGlob, RelativePath, Workspace};
use rustix::mount::{MountFlags, UnmountFlags};

use super::Changes;
use super::compare::{ChangeLimits, ChangesError, Overlaid, changes};
use super::marks::Marks;
use super::prepare::{PreparedWorkspace, Project, prepare};
use crate::skip::skip;
use crate::work_budget::WorkBudget;

const OVERLAY: &str = "the right to mount an overlay";

/// A project with an overlay mounted over it.
pub(crate) struct Mounted {
    pub(crate) home: tempfile::TempDir,
    pub(crate) prepared: PreparedWorkspace,
    pub(crate) started: Timestamp,
    protect: std::collections::BTreeSet<RelativePath>,
    deny: Vec<FileGlob>,
}

impl Mounted {
    /// Mounts an overlay over the project that `fill` makes. Where that needs root,
    /// the test is skipped.
    pub(crate) fn new(deny: &[&str], fill: impl FnOnce(&Path)) -> Option<Self> {
        let mounted = Self::unless_forbidden(deny, fill);
        if mounted.is_none() {
            skip(OVERLAY);
        }
        mounted
    }

    /// The same for a test that mounts many times, and is skipped once.
    pub(crate) fn new_or_skip_once(fill: impl FnOnce(&Path), skipped: &Once) -> Option<Self> {
        let mounted = Self::unless_forbidden(&[], fill);
        if mounted.is_none() {
            skipped.call_once(|| skip(OVERLAY));
        }
        mounted
    }

    fn unless_forbidden(deny: &[&str], fill: impl FnOnce(&Path)) -> Option<Self> {
        let home = tempfile::tempdir().unwrap();
        let project = home.path().join("project");
        fs::create_dir(&project).unwrap();
        fill(&project);
        let protect = [".git", "scripts"].iter().map(|path| RelativePath::parse(path).unwrap());
        let protect = protect.collect();
        let deny: Vec<_> = deny.iter().map(|glob| FileGlob::parse(glob).unwrap()).collect();
        let wanted = Project {
            root: &project,
            mode: Workspace::Overlay,
            protect: &protect,
            deny: &deny,
            show: &[FileGlob::parse("**").unwrap()],
            owner: None,
            shown: None,
        };
        let prepared = prepare(&wanted, &home.path().join("scratch")).unwrap();
        let merged = home.path().join("merged");
        fs::create_dir(&merged).unwrap();
        let options = CString::new(prepared.overlay.as_ref().unwrap().options()).unwrap();
        let started = Timestamp::now();
        let flags = MountFlags::empty();
        rustix::mount::mount("overlay", &merged, "overlay", flags, Some(&*options)).ok()?;
        Some(Self { home, prepared, started, protect, deny })
    }

    /// What the sandbox sees.
    pub(crate) fn merged(&self) -> PathBuf {
        self.home.path().join("merged")
    }

    pub(crate) fn project(&self) -> &Path {
        &self.prepared.root
    }

    pub(crate) fn upper(&self) -> &Path {
        &self.prepared.overlay.as_ref().unwrap().upper
    }

    pub(crate) fn changes(&self) -> Result<Changes, ChangesError> {
        self.changes_within(&ChangeLimits::default(), &WorkBudget::unattended())
    }

    pub(crate) fn changes_within(
        &self,
        limits: &ChangeLimits,
        budget: &WorkBudget,
    ) -> Result<Changes, ChangesError> {
        let overlaid = Overlaid {
            project: self.project(),
            upper: self.upper(),
            marks: Marks::User,
            started: self.started,
            protect: &self.protect,
            deny: &self.deny,
        };
        changes(&overlaid, limits, budget)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(err) = rustix::mount::unmount(self.merged(), UnmountFlags::DETACH) {
            eprintln!("cannot unmount {}: {err}", self.merged().display());
        }
    }
}

/// A line per change, for snapshots.
pub(crate) fn told(changes: &Changes) -> String {
    let mut told = String::new();
    for change in &changes.changes {
        let kind = change.change.to_string();
        let after = match &change.after {
            None => String::new(),
            Some(super::changes::Node::Directory { mode }) => format!(" directory {mode:o}"),
            Some(super::changes::Node::File { mode, size, unhashed, .. }) => {
                let unread = unhashed.map_or_else(String::new, |why| format!(" unread: {why}"));
                format!(" file {mode:o} {size}{unread}")
            }
            Some(super::changes::Node::Link { target }) => format!(" -> {target}"),
            Some(super::changes::Node::Special { what }) => format!(" {what}"),
        };
        let highlights: String =
            change.highlights.iter().map(|highlight| format!(" [{highlight}]")).collect();
        let moved = if change.moved { " moved" } else { "" };
        told.push_str(&format!("{kind} {}{after}{moved}{highlights}\n", change.path));
    }
    for why in &changes.incomplete {
        told.push_str(&format!("incomplete: {why}\n"));
    }
    told
}

/// The directory at `path`, open.
pub(crate) fn opened(path: &Path) -> Directory {
    Directory::open(path).unwrap()
}
