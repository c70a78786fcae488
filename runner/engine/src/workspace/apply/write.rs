//! Writes checked changes into the project.
//!
//! First everything that comes is copied beside its place and compared with what
//! was recorded ([`ApplyStage`]). Then what goes, goes, deepest first; then
//! directories, files and links come; permissions of directories come last, so
//! that a directory nobody may write to can still be filled. Nothing is written
//! through a link: every directory on the way is opened as one.

use std::io;

use files::TreePath;
use files::tree::{Directory, FileStat};
use rustix::fs::{AtFlags, Gid, Mode, RenameFlags, Uid};
use rustix::io::Errno;

use super::super::changes::{Change, Node};
use super::check::{self, ApplyRefusal, Checked};
use super::stage::ApplyStage;

/// How far it went.
#[derive(Debug)]
#[must_use = "what was not applied must be reported"]
pub struct Applied {
    /// Sorted.
    pub applied: Vec<TreePath>,
    /// Where it stopped, and why. What comes after was not tried.
    pub stopped: Option<(TreePath, ApplyError)>,
}

/// Why a change could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("cannot {step} it")]
    Disk { step: &'static str, source: io::Error },
    /// Between the check and now.
    #[error("{0}")]
    Moved(ApplyRefusal),
    #[error("what the run left is not what was recorded when it ended")]
    Tampered,
}

/// Applies everything that was found ready.
pub fn write(checked: &Checked<'_>, project: &Directory, upper: &Directory) -> Applied {
    let mut done = Applied { applied: Vec::new(), stopped: None };
    let ready = checked.ready();
    let stage = match ApplyStage::fill(project, upper, ready) {
        Ok(stage) => stage,
        Err(stopped) => return Applied { stopped: Some(stopped), ..done },
    };
    let writer = Writer { project, stage: &stage };
    let steps = (ready.iter().rev().map(|change| (change, WriteStep::Remove)))
        .chain(ready.iter().map(|change| (change, WriteStep::Make)))
        .chain(ready.iter().rev().map(|change| (change, WriteStep::Settle)));
    for (change, step) in steps {
        match writer.step(change, step) {
            Ok(false) => {}
            Ok(true) => done.applied.push(change.path.clone()),
            Err(err) => {
                done.stopped = Some((change.path.clone(), err));
                break;
            }
        }
    }
    done.applied.sort();
    done.applied.dedup();
    done
}

#[derive(Clone, Copy, Debug)]
enum WriteStep {
    Remove,
    Make,
    Settle,
}

struct Writer<'a> {
    project: &'a Directory,
    stage: &'a ApplyStage<'a>,
}

impl Writer<'_> {
    /// Does one step of a change; whether there was anything to do.
    fn step(&self, change: &Change, step: WriteStep) -> Result<bool, ApplyError> {
        let was = change.before.as_ref().map(|before| &before.node);
        let was_directory = was.is_some_and(Node::is_directory);
        let changes_kind = |after: &Node| was.is_some() && was_directory != after.is_directory();
        match (step, &change.after) {
            (WriteStep::Remove, None) => self.remove(change, was_directory),
            (WriteStep::Remove, Some(after)) if changes_kind(after) => {
                self.remove(change, was_directory)
            }
            (WriteStep::Make, Some(Node::Directory { .. })) if !was_directory => {
                self.directory(change)
            }
            (WriteStep::Make, Some(Node::File { .. } | Node::Link { .. })) => {
                self.put(change, was.is_some() && !was_directory)
            }
            (WriteStep::Settle, Some(Node::Directory { mode })) => self.settle(change, *mode),
            _ => Ok(false),
        }
    }

    fn remove(&self, change: &Change, is_directory: bool) -> Result<bool, ApplyError> {
        let (parent, name) = self.place(change)?;
        let Some(now) = parent.look(name).map_err(disk("look at"))? else { return Ok(true) };
        unmoved(&parent, name, &now, change)?;
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(&parent, name, flags).map_err(|err| disk("remove")(err.into()))?;
        Ok(true)
    }

    fn directory(&self, change: &Change) -> Result<bool, ApplyError> {
        let (parent, name) = self.place(change)?;
        rustix::fs::mkdirat(&parent, name, Mode::RWXU).map_err(|err| disk("create")(err.into()))?;
        let model = parent.itself().map_err(disk("look at"))?;
        give(&parent, name, &model)?;
        Ok(true)
    }

    /// Gives a draft its name, over what the run started from or over nothing.
    fn put(&self, change: &Change, replaces: bool) -> Result<bool, ApplyError> {
        let (parent, name) = self.place(change)?;
        let (from, draft) =
            (&self.stage.directory, self.stage.draft_of(&change.path).ok_or(ApplyError::Tampered)?);
        let now = parent.look(name).map_err(disk("look at"))?;
        let model = match &now {
            Some(now) => *now,
            None => parent.itself().map_err(disk("look at"))?,
        };
        give(from, draft.as_bytes(), &model)?;
        let flags = match (&now, replaces) {
            (Some(now), true) => {
                unmoved(&parent, name, now, change)?;
                RenameFlags::empty()
            }
            (None, true) => return Err(ApplyError::Moved(ApplyRefusal::Gone)),
            (_, false) => RenameFlags::NOREPLACE,
        };
        match rustix::fs::renameat_with(from, draft, &parent, name, flags) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Err(ApplyError::Moved(ApplyRefusal::AlreadyThere)),
            Err(err) => Err(disk("put in place")(err.into())),
        }
    }

    fn settle(&self, change: &Change, mode: u32) -> Result<bool, ApplyError> {
        let (parent, name) = self.place(change)?;
        let made = parent.child(name).map_err(disk("open"))?;
        // What the host added to it (the group of new files, say) stays.
        let kept = made.itself().map_err(disk("look at"))?.mode() & 0o7000;
        rustix::fs::fchmod(&made, Mode::from_raw_mode(mode & 0o777 | kept))
            .map_err(|err| disk("set the permissions of")(err.into()))?;
        Ok(true)
    }

    fn place<'c>(&self, change: &'c Change) -> Result<(Directory, &'c [u8]), ApplyError> {
        let moved = || ApplyError::Moved(ApplyRefusal::ParentMoved);
        let parent = self.project.holding(&change.path).map_err(disk("find"))?;
        Ok((parent.ok_or_else(moved)?, change.path.name().ok_or_else(moved)?))
    }
}

fn unmoved(
    parent: &Directory,
    name: &[u8],
    now: &FileStat,
    change: &Change,
) -> Result<(), ApplyError> {
    check::still(parent, name, now, change).map_err(disk("compare"))?.map_err(ApplyError::Moved)
}

/// Gives what we made to the owner of what stands there, or of its directory:
/// root applies for others.
fn give(parent: &Directory, name: &[u8], model: &FileStat) -> Result<(), ApplyError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let (uid, gid) = model.owner();
    let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    rustix::fs::chownat(parent, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|err| disk("give away")(err.into()))
}

pub(super) fn disk(step: &'static str) -> impl Fn(io::Error) -> ApplyError {
    move |source| ApplyError::Disk { step, source }
}
