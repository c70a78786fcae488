//! Which changes may be brought home, and what is in the way of the others.
//!
//! A change was made against a tree that the host may have gone on with. It is
//! applied only where the host still has what the run started from, byte for
//! byte or by the kernel's stamp, and never where the policy keeps the sandbox
//! out. What the host has already is left alone, so applying twice is applying
//! once.

use std::collections::BTreeSet;
use std::fmt;
use std::io;

use audit::Digest;
use files::TreePath;
use files::leads_out;
use files::tree::{Directory, FileStat};
use rustix::fs::FileType;
use serde::Serialize;

use super::super::changes::{Before, Change, Changes, Node, Stamp};
use super::super::git_trees;
use super::super::survey::denied;
use super::super::tool_files::{self, is_dot_git};

/// What there is to do, and what will not be done.
#[derive(Debug)]
pub struct Checked<'c> {
    /// Made only here: whoever writes has been checked.
    pub(super) ready: Vec<&'c Change>,
    /// The host has it like this already.
    pub already: Vec<&'c Change>,
    pub refused: Vec<Refused>,
}

impl<'c> Checked<'c> {
    pub fn ready(&self) -> &[&'c Change] {
        &self.ready
    }
}

/// A change that is not applied.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Refused {
    pub path: TreePath,
    pub why: ApplyRefusal,
    /// The tool on the host that would act on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<&'static str>,
}

impl Refused {
    fn new(path: &TreePath, why: ApplyRefusal) -> Self {
        Self { path: path.clone(), why, tool: None }
    }
}

/// What is in the way. The host's doing first, then the policy's, then ours.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ApplyRefusal {
    /// The host has something there that the run did not start from.
    AlreadyThere,
    /// The host has changed it since.
    Changed,
    /// The host changed it while the run was going.
    ChangedDuring,
    /// The host has removed it.
    Gone,
    /// The directory holds files that the run did not know or did not remove.
    NotEmpty,
    /// A link or a file stands where its directory should be.
    ParentMoved,
    /// `fs.deny` names it.
    Denied,
    /// It would make its directory a git repository, or is part of one.
    GitTree,
    /// A tool on the host obeys it without being asked.
    ObeyedUnasked,
    /// `fs.protect` names it, or it is git's own.
    Protected,
    /// A pipe, a socket or a device.
    Special,
    /// It was not read when the run ended, so nobody knows what it is.
    Unread,
    /// A link that leads out of the project.
    WayOut,
}

impl ApplyRefusal {
    /// Whether the host moved on, rather than that it may never be applied.
    pub fn is_conflict(self) -> bool {
        match self {
            Self::AlreadyThere
            | Self::Changed
            | Self::ChangedDuring
            | Self::Gone
            | Self::NotEmpty
            | Self::ParentMoved => true,
            Self::Denied
            | Self::GitTree
            | Self::ObeyedUnasked
            | Self::Protected
            | Self::Special
            | Self::Unread
            | Self::WayOut => false,
        }
    }

    /// Whether a person can have it applied by naming it.
    pub fn can_be_accepted(self) -> bool {
        matches!(self, Self::GitTree | Self::ObeyedUnasked)
    }
}

impl fmt::Display for ApplyRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AlreadyThere => "the host has something else there now",
            Self::Changed => "the host has changed it since the run",
            Self::ChangedDuring => "the host changed it while the run was going",
            Self::Gone => "the host has removed it",
            Self::NotEmpty => "the directory holds files that the run did not remove",
            Self::ParentMoved => "its directory is gone, or is a link now",
            Self::Denied => "it is hidden from the sandbox",
            Self::GitTree => "git would take its directory for a repository and obey it",
            Self::ObeyedUnasked => "a tool on the host obeys it without being asked",
            Self::Protected => "the policy protects this path",
            Self::Special => "it is a pipe, a socket or a device",
            Self::Unread => "its content was not recorded when the run ended",
            Self::WayOut => "the link leads out of the project",
        })
    }
}

/// Looks at every change at or below `paths` (all, if there are none). A person
/// `accepted` these although tools obey them.
pub fn check<'c>(
    changes: &'c Changes,
    paths: &'c [TreePath],
    accepted: &[TreePath],
    project: &Directory,
) -> io::Result<Checked<'c>> {
    let mut checked = Checked { ready: Vec::new(), already: Vec::new(), refused: Vec::new() };
    let mut going: BTreeSet<&TreePath> = BTreeSet::new();
    let mut coming: BTreeSet<&TreePath> = BTreeSet::new();
    // Backwards: what is in a directory comes before the directory, so that it
    // is known whether it will be empty.
    let mut selected: Vec<&Change> = changes.within(paths).collect();
    let trees = git_trees::after(&selected, project)?;
    coming.extend(selected.iter().filter(|c| becomes_directory(c)).map(|change| &change.path));
    selected.reverse();
    for change in selected {
        let refused = |why| Refused::new(&change.path, why);
        let refusal = match forbidden(changes, change) {
            Some(refusal) => Some(refused(refusal)),
            None => match state(change, project, &coming)? {
                ChangeState::Already => {
                    checked.already.push(change);
                    continue;
                }
                ChangeState::InTheWay(refusal) => Some(refused(refusal)),
                ChangeState::Ready => match left_in(change, project, &going)? {
                    Some(refusal) => Some(refused(refusal)),
                    None if accepted.iter().any(|path| change.path.is_within(path)) => None,
                    None => obeyed(change, &trees),
                },
            },
        };
        match refusal {
            Some(refused) => checked.refused.push(refused),
            None => {
                if change.after.is_none() {
                    going.insert(&change.path);
                }
                checked.ready.push(change);
            }
        }
    }
    checked.ready.reverse();
    checked.already.reverse();
    checked.refused.reverse();
    // What would stand in a directory that does not come stays away too.
    let refused: BTreeSet<TreePath> = checked
        .refused
        .iter()
        .filter(|refused| coming.contains(&refused.path))
        .map(|refused| refused.path.clone())
        .collect();
    let is_homeless = |change: &Change| {
        let mut above = change.path.parent();
        while let Some(parent) = above {
            if refused.contains(&parent) {
                return true;
            }
            above = parent.parent();
        }
        false
    };
    let (homeless, ready): (Vec<&Change>, Vec<&Change>) =
        checked.ready.into_iter().partition(|change| is_homeless(change));
    checked.ready = ready;
    checked.refused.extend(
        homeless.iter().map(|change| Refused::new(&change.path, ApplyRefusal::ParentMoved)),
    );
    Ok(checked)
}

fn becomes_directory(change: &Change) -> bool {
    let was = change.before.as_ref().is_some_and(|before| before.node.is_directory());
    change.after.as_ref().is_some_and(Node::is_directory) && !was
}

/// What may not be applied, whatever the host looks like.
fn forbidden(changes: &Changes, change: &Change) -> Option<ApplyRefusal> {
    let path = &change.path;
    if is_protected(changes, change) {
        return Some(ApplyRefusal::Protected);
    }
    if denied(&changes.deny, path) {
        return Some(ApplyRefusal::Denied);
    }
    match &change.after {
        Some(Node::File { sha256: None, .. }) => Some(ApplyRefusal::Unread),
        Some(Node::Link { target }) if leads_out(path, &target.0) => Some(ApplyRefusal::WayOut),
        Some(Node::Special { .. }) => Some(ApplyRefusal::Special),
        Some(Node::Directory { .. } | Node::File { .. } | Node::Link { .. }) | None => None,
    }
}

/// What tools on the host would act on without being asked.
fn obeyed(change: &Change, trees: &BTreeSet<TreePath>) -> Option<Refused> {
    if git_trees::holding(trees, &change.path).is_some() {
        let refused = Refused::new(&change.path, ApplyRefusal::GitTree);
        return Some(Refused { tool: Some("git"), ..refused });
    }
    // Without the file there is nothing to obey, and a directory is none.
    let after = change.after.as_ref().filter(|after| !after.is_directory())?;
    let is_link = matches!(after, Node::Link { .. });
    let tool = tool_files::acting_unasked(&change.path, is_link)?.tool;
    let refused = Refused::new(&change.path, ApplyRefusal::ObeyedUnasked);
    Some(Refused { tool: Some(tool), ..refused })
}

/// Names are compared without regard to case: a project may live on a file
/// system that does the same, and `.GIT` is then `.git`.
fn is_protected(changes: &Changes, change: &Change) -> bool {
    let folded = |path: &TreePath| TreePath::parse(&path.as_bytes().to_ascii_lowercase());
    let Ok(lower) = folded(&change.path) else { return true };
    let gits = change.path.parts().any(is_dot_git);
    gits || changes.protect.iter().any(|protect| {
        let Ok(protect) = folded(&super::super::in_tree(protect)) else { return true };
        lower.is_within(&protect)
            // Removing or replacing what holds it would be a way around; that
            // there is a directory is not.
            || protect.is_within(&lower) && !change.after.as_ref().is_some_and(Node::is_directory)
    })
}

enum ChangeState {
    Already,
    InTheWay(ApplyRefusal),
    Ready,
}

/// What the host has there now, compared with what the run started from.
fn state(
    change: &Change,
    project: &Directory,
    coming: &BTreeSet<&TreePath>,
) -> io::Result<ChangeState> {
    let Some(name) = change.path.name() else {
        return Ok(ChangeState::InTheWay(ApplyRefusal::Protected));
    };
    let Some(directory) = project.holding(&change.path)? else {
        let parent = change.path.parent().unwrap_or_default();
        return Ok(match (&change.after, coming.contains(&parent)) {
            (None, _) => ChangeState::Already,
            // The directory comes with the same set of changes.
            (Some(_), true) => ChangeState::Ready,
            (Some(_), false) => ChangeState::InTheWay(ApplyRefusal::ParentMoved),
        });
    };
    let Some(now) = directory.look(name)? else {
        return Ok(match (&change.before, &change.after) {
            (_, None) => ChangeState::Already,
            (None, Some(_)) => ChangeState::Ready,
            (Some(_), Some(_)) => ChangeState::InTheWay(ApplyRefusal::Gone),
        });
    };
    if let Some(after) = &change.after
        && is_now(&directory, name, &now, after)?
    {
        return Ok(ChangeState::Already);
    }
    Ok(match still(&directory, name, &now, change)? {
        Ok(()) if change.moved => ChangeState::InTheWay(ApplyRefusal::ChangedDuring),
        Ok(()) => ChangeState::Ready,
        Err(refusal) => ChangeState::InTheWay(refusal),
    })
}

/// Whether `name` is still what the run started from.
pub(super) fn still(
    directory: &Directory,
    name: &[u8],
    now: &FileStat,
    change: &Change,
) -> io::Result<Result<(), ApplyRefusal>> {
    let Some(Before { node, stamp }) = &change.before else {
        return Ok(Err(ApplyRefusal::AlreadyThere));
    };
    let same = match node {
        // Its names are looked at one by one.
        Node::Directory { .. } => now.is_directory(),
        // Nothing at all happened to it, whatever it holds.
        Node::File { .. } if Stamp::from(now) == *stamp => true,
        // Something did, but it says the same: a checkout, a restore.
        Node::File { sha256: Some(_), .. } => is_now(directory, name, now, node)?,
        Node::File { sha256: None, .. } => false,
        Node::Link { .. } => is_now(directory, name, now, node)?,
        Node::Special { .. } => Stamp::from(now) == *stamp,
    };
    Ok(if same { Ok(()) } else { Err(ApplyRefusal::Changed) })
}

/// Whether `name` is exactly `node`.
fn is_now(directory: &Directory, name: &[u8], now: &FileStat, node: &Node) -> io::Result<bool> {
    Ok(match node {
        Node::Directory { mode } => now.is_directory() && now.mode() & 0o777 == mode & 0o777,
        Node::File { mode, size, sha256: Some(hash), .. } => {
            now.kind() == FileType::RegularFile
                && now.size() == *size
                && now.mode() & 0o777 == mode & 0o777
                && Digest::of_reader(directory.file(name)?.0)?.0 == *hash
        }
        Node::Link { target } => {
            now.kind() == FileType::Symlink && directory.link(name)? == target.0
        }
        Node::File { sha256: None, .. } | Node::Special { .. } => false,
    })
}

/// Whether a directory that is to go would still hold something.
fn left_in(
    change: &Change,
    project: &Directory,
    going: &BTreeSet<&TreePath>,
) -> io::Result<Option<ApplyRefusal>> {
    let was = change.before.as_ref().is_some_and(|before| before.node.is_directory());
    if !was || change.after.as_ref().is_some_and(Node::is_directory) {
        return Ok(None);
    }
    let (names, more) = project.at(&change.path)?.names(1_000_000)?;
    let stays = |name: &[u8]| !going.contains(&change.path.join(name));
    let left = more || names.iter().any(|named| stays(&named.name));
    Ok(left.then_some(ApplyRefusal::NotEmpty))
}
