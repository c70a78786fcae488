//! Writes checked changes into the project.
//!
//! What goes, goes first and deepest first; then directories, files and links
//! come; permissions of directories come last, so that a directory nobody may
//! write to can still be filled. A file appears under its name whole or not at
//! all, with the very content that was recorded when the run ended. Nothing is
//! written through a link: every directory on the way is opened as one.

use std::fs::File;
use std::io::{self, Read as _, Write as _};

use audit::Digest;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Uid};
use sha2::{Digest as _, Sha256};

use super::super::changes::{Change, Node};
use super::super::path::TreePath;
use super::super::tree::{Directory, Seen};
use super::check::{self, Checked};

/// How far it went.
#[derive(Debug)]
#[must_use = "what was not applied must be reported"]
pub struct Applied {
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
    Moved(check::Refusal),
    #[error("what the run left is not what was recorded when it ended")]
    Tampered,
}

/// Applies everything that was found ready.
pub fn write(checked: &Checked<'_>, project: &Directory, upper: &Directory) -> Applied {
    let mut done = Applied { applied: Vec::new(), stopped: None };
    let writer = Writer { project, upper };
    let ready = checked.ready();
    let steps = (ready.iter().rev().map(|change| (change, Step::Remove)))
        .chain(ready.iter().map(|change| (change, Step::Make)))
        .chain(ready.iter().rev().map(|change| (change, Step::Settle)));
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
enum Step {
    Remove,
    Make,
    Settle,
}

struct Writer<'a> {
    project: &'a Directory,
    upper: &'a Directory,
}

impl Writer<'_> {
    /// Does one step of a change; whether there was anything to do.
    fn step(&self, change: &Change, step: Step) -> Result<bool, ApplyError> {
        let was = change.before.as_ref().map(|before| &before.node);
        let was_directory = was.is_some_and(Node::is_directory);
        match (step, &change.after) {
            (Step::Remove, None) => self.remove(change, was_directory),
            (Step::Remove, Some(after))
                if was.is_some() && was_directory != after.is_directory() =>
            {
                self.remove(change, was_directory)
            }
            (Step::Make, Some(Node::Directory { .. })) if !was_directory => self.directory(change),
            (Step::Make, Some(Node::File { mode, sha256: Some(hash), .. })) => {
                self.file(change, *mode, hash, was.is_some() && !was_directory)
            }
            (Step::Make, Some(Node::Link { target })) => {
                self.link(change, &target.0, was.is_some() && !was_directory)
            }
            (Step::Settle, Some(Node::Directory { mode })) => self.settle(change, *mode),
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
        let made = parent.child(name).map_err(disk("open"))?;
        give(&made, &parent.itself().map_err(disk("look at"))?)?;
        Ok(true)
    }

    fn file(
        &self,
        change: &Change,
        mode: u32,
        hash: &Digest,
        replaces: bool,
    ) -> Result<bool, ApplyError> {
        let (parent, name) = self.place(change)?;
        let now = parent.look(name).map_err(disk("look at"))?;
        let model = match &now {
            Some(now) => *now,
            None => parent.itself().map_err(disk("look at"))?,
        };
        let draft = Draft::new(&parent)?;
        let source = self.upper.holding(&change.path).map_err(disk("find"))?;
        let (from, _) = source
            .ok_or(ApplyError::Tampered)?
            .file(name)
            .map_err(disk("open what the run made of"))?;
        if copy(from, &draft.file).map_err(disk("copy"))? != *hash {
            return Err(ApplyError::Tampered);
        }
        give(&draft.file, &model)?;
        // Bits that lend rights do not come home.
        rustix::fs::fchmod(&draft.file, Mode::from_raw_mode(mode & 0o777))
            .map_err(|err| disk("set the permissions of")(err.into()))?;
        draft.file.sync_all().map_err(disk("write"))?;
        draft.becomes(name, replaces, change)
    }

    fn link(&self, change: &Change, target: &[u8], replaces: bool) -> Result<bool, ApplyError> {
        let (parent, name) = self.place(change)?;
        let draft = draft_name();
        rustix::fs::symlinkat(target, &parent, &draft).map_err(|err| disk("create")(err.into()))?;
        let put = put(&parent, &draft, name, replaces, change);
        if put.is_err() {
            // Ours alone, and of no use.
            rustix::fs::unlinkat(&parent, &draft, AtFlags::empty()).ok();
        }
        put
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
        let moved = || ApplyError::Moved(check::Refusal::ParentMoved);
        let parent = self.project.holding(&change.path).map_err(disk("find"))?;
        Ok((parent.ok_or_else(moved)?, change.path.name().ok_or_else(moved)?))
    }
}

/// A file that is not there yet. Dropped, it never was.
struct Draft<'d> {
    parent: &'d Directory,
    name: String,
    file: File,
}

impl<'d> Draft<'d> {
    fn new(parent: &'d Directory) -> Result<Self, ApplyError> {
        let name = draft_name();
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(parent, &*name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|err| disk("create")(err.into()))?;
        Ok(Self { parent, name, file: File::from(fd) })
    }

    fn becomes(self, name: &[u8], replaces: bool, change: &Change) -> Result<bool, ApplyError> {
        put(self.parent, &self.name, name, replaces, change)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // Gone already if it became what it should.
        rustix::fs::unlinkat(self.parent, &*self.name, AtFlags::empty()).ok();
    }
}

/// Gives a draft its name, over what the run started from or over nothing.
fn put(
    parent: &Directory,
    draft: &str,
    name: &[u8],
    replaces: bool,
    change: &Change,
) -> Result<bool, ApplyError> {
    if !replaces {
        let flags = RenameFlags::NOREPLACE;
        return match rustix::fs::renameat_with(parent, draft, parent, name, flags) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::EXIST) => Err(ApplyError::Moved(check::Refusal::AlreadyThere)),
            Err(err) => Err(disk("put in place")(err.into())),
        };
    }
    let now = parent.look(name).map_err(disk("look at"))?;
    unmoved(parent, name, &now.ok_or(ApplyError::Moved(check::Refusal::Gone))?, change)?;
    rustix::fs::renameat(parent, draft, parent, name)
        .map_err(|err| disk("put in place")(err.into()))?;
    Ok(true)
}

fn unmoved(parent: &Directory, name: &[u8], now: &Seen, change: &Change) -> Result<(), ApplyError> {
    check::still(parent, name, now, change).map_err(disk("compare"))?.map_err(ApplyError::Moved)
}

/// The owner of what stands there, or of its directory: root applies for others.
fn give(file: impl std::os::fd::AsFd, model: &Seen) -> Result<(), ApplyError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let (uid, gid) = model.owner();
    rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
        .map_err(|err| disk("give away")(err.into()))
}

fn copy(mut from: File, mut to: &File) -> io::Result<Digest> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(hasher.into()),
            Ok(count) => count,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => continue,
            Err(err) => return Err(err),
        };
        let piece = buffer.get(..count).unwrap_or_default();
        hasher.update(piece);
        to.write_all(piece)?;
    }
}

fn draft_name() -> String {
    format!(".sluice-{}", uuid::Uuid::now_v7())
}

fn disk(step: &'static str) -> impl Fn(io::Error) -> ApplyError {
    move |source| ApplyError::Disk { step, source }
}
