//! Unpacks an archive from a sandbox.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Write as _};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tar::{Archive, Entry, EntryType};

use super::names::Names;
use super::{ArchiveError, ArchiveLimits, Moved, disk, tar_failed};
use crate::removal::remove_all;
use crate::tree::Directory;
use crate::{Quoted, TreePath, leads_out};

/// Unpacks `from` into the directory `into`.
///
/// Files that are there are replaced, directories are merged, and where one
/// stands in the place of the other the archive is refused.
pub fn unpack(
    from: impl Read,
    into: &Directory,
    limits: &ArchiveLimits,
) -> Result<Moved, ArchiveError> {
    staged(from, into, limits, |_| Ok(()))
}

/// The same for an archive of one file or directory, which gets the name `called`.
pub(super) fn unpack_as(
    from: impl Read,
    into: &Directory,
    called: Option<&[u8]>,
    limits: &ArchiveLimits,
) -> Result<Moved, ArchiveError> {
    staged(from, into, limits, |stage| {
        let (names, more) = stage.names(1).map_err(disk("read", &TreePath::ROOT))?;
        let ([only], false) = (names.as_slice(), more) else { return Err(ArchiveError::Extra) };
        let Some(called) = called else { return Ok(()) };
        rustix::fs::renameat(stage, &*only.name, stage, called)
            .map_err(|err| disk("name", &TreePath::ROOT)(err.into()))
    })
}

fn staged(
    from: impl Read,
    into: &Directory,
    limits: &ArchiveLimits,
    adjust: impl FnOnce(&Directory) -> Result<(), ArchiveError>,
) -> Result<Moved, ArchiveError> {
    let name = format!(".sluice-{}", uuid::Uuid::now_v7());
    let root = TreePath::ROOT;
    rustix::fs::mkdirat(into, &*name, Mode::RWXU)
        .map_err(|err| disk("unpack into", &root)(err.into()))?;
    let unpacked = into.child(name.as_bytes()).map_err(disk("open", &root)).and_then(|stage| {
        let moved = read(from, &stage, limits)?;
        adjust(&stage)?;
        check(&stage, into, &root)?;
        settle(&stage, into, &root)?;
        Ok(moved)
    });
    let removed = remove_all(into, name.as_bytes()).map_err(disk("clean up in", &root));
    unpacked.and_then(|moved| removed.map(|()| moved))
}

/// Unpacks everything into an empty directory of ours.
fn read(from: impl Read, stage: &Directory, limits: &ArchiveLimits) -> Result<Moved, ArchiveError> {
    let cut_off = Cell::new(false);
    let mut archive = Archive::new(Whole { from, cut_off: &cut_off });
    let mut moved = Moved::default();
    let mut links = Vec::new();
    let mut names = Names::default();
    // Raw: the library would read a name of any length into memory.
    for entry in archive.entries().map_err(tar_failed)?.raw(true) {
        let mut entry = entry.map_err(tar_failed)?;
        let kind = entry.header().entry_type();
        if names.take(kind, &mut entry)? {
            continue;
        }
        let Names { path, link } = std::mem::take(&mut names);
        let path = path.unwrap_or_else(|| entry.header().path_bytes().into_owned());
        let path = TreePath::parse(&path)?;
        if path.depth() > limits.depth {
            return Err(ArchiveError::Nested { path });
        }
        moved.count(entry.size(), limits)?;
        let what = match kind {
            EntryType::Directory => {
                way_to(stage, &path)?;
                continue;
            }
            EntryType::Regular | EntryType::Continuous => {
                file(stage, &path, &mut entry)?;
                continue;
            }
            EntryType::Symlink => {
                let target = link
                    .or_else(|| Some(entry.header().link_name_bytes()?.into_owned()))
                    .unwrap_or_default();
                if leads_out(&path, &target) {
                    let target = Quoted(&target).to_string();
                    return Err(ArchiveError::LinkOut { path, target });
                }
                links.push((path, target));
                continue;
            }
            EntryType::Link => "hard link",
            EntryType::Block | EntryType::Char => "device",
            EntryType::Fifo => "pipe",
            EntryType::GNUSparse => "sparse file",
            _ => "file of an unknown kind",
        };
        return Err(ArchiveError::Kind { path, what });
    }
    if cut_off.get() {
        return Err(tar_failed(io::ErrorKind::UnexpectedEof.into()));
    }
    // Last, so that nothing is written past one.
    for (path, target) in links {
        let (parent, name) = place(stage, &path)?;
        rustix::fs::symlinkat(&*target, &parent, name).map_err(|err| match err {
            Errno::EXIST => ArchiveError::Occupied { path: path.clone() },
            err => disk("create", &path)(err.into()),
        })?;
    }
    Ok(moved)
}

/// An archive says where it ends. The library also takes the end of the stream
/// for that, and half an archive for a whole one.
struct Whole<'c, R> {
    from: R,
    cut_off: &'c Cell<bool>,
}

impl<R: Read> Read for Whole<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(into)?;
        if length == 0 && !into.is_empty() {
            self.cut_off.set(true);
        }
        Ok(length)
    }
}

fn file<R: Read>(
    stage: &Directory,
    path: &TreePath,
    entry: &mut Entry<'_, R>,
) -> Result<(), ArchiveError> {
    let (parent, name) = place(stage, path)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match rustix::fs::openat(&parent, name, flags, Mode::RUSR | Mode::WUSR) {
        // The same name twice: which one is meant is anybody's guess.
        Err(Errno::EXIST) => return Err(ArchiveError::Occupied { path: path.clone() }),
        opened => opened.map_err(|err| disk("create", path)(err.into()))?,
    };
    let mut file = File::from(fd);
    let size = entry.size();
    if io::copy(entry, &mut file).map_err(disk("write", path))? != size {
        return Err(tar_failed(io::ErrorKind::UnexpectedEof.into()));
    }
    file.flush().map_err(disk("write", path))?;
    let mode = entry.header().mode().unwrap_or(0o644) & 0o777;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))
        .map_err(|err| disk("set the permissions of", path)(err.into()))
}

/// Whether everything in `stage` has a place in `into`, before any of it moves.
fn check(stage: &Directory, into: &Directory, at: &TreePath) -> Result<(), ArchiveError> {
    for named in stage.names(usize::MAX).map_err(disk("read", at))?.0 {
        let path = at.join(&named.name);
        let look = |dir: &Directory| dir.look(&named.name).map_err(disk("look at", &path));
        let (Some(new), Some(old)) = (look(stage)?, look(into)?) else { continue };
        if new.is_directory() != old.is_directory() {
            return Err(ArchiveError::Occupied { path });
        }
        if new.is_directory() {
            let open = |dir: &Directory| dir.child(&named.name).map_err(disk("open", &path));
            check(&open(stage)?, &open(into)?, &path)?;
        }
    }
    Ok(())
}

/// Moves everything in `stage` to its place.
fn settle(stage: &Directory, into: &Directory, at: &TreePath) -> Result<(), ArchiveError> {
    for named in stage.names(usize::MAX).map_err(disk("read", at))?.0 {
        let path = at.join(&named.name);
        let look = |dir: &Directory| dir.look(&named.name).map_err(disk("look at", &path));
        let is_directory = look(stage)?.is_some_and(|seen| seen.is_directory());
        if is_directory && look(into)?.is_some() {
            let open = |dir: &Directory| dir.child(&named.name).map_err(disk("open", &path));
            settle(&open(stage)?, &open(into)?, &path)?;
            continue;
        }
        // Over a link, this replaces the link and not what it points to.
        rustix::fs::renameat(stage, &*named.name, into, &*named.name)
            .map_err(|err| disk("put in place", &path)(err.into()))?;
    }
    Ok(())
}

/// Makes the directories of `path` below `stage`.
fn way_to(stage: &Directory, path: &TreePath) -> Result<Directory, ArchiveError> {
    let mut here = stage.at(&TreePath::ROOT).map_err(disk("open", path))?;
    for part in path.parts() {
        match rustix::fs::mkdirat(&here, part, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(err) => return Err(disk("create", path)(err.into())),
        }
        here = match here.look(part).map_err(disk("look at", path))? {
            Some(seen) if seen.is_directory() => here.child(part).map_err(disk("open", path))?,
            _ => return Err(ArchiveError::Occupied { path: path.clone() }),
        };
    }
    Ok(here)
}

fn place<'p>(stage: &Directory, path: &'p TreePath) -> Result<(Directory, &'p [u8]), ArchiveError> {
    let name = path.name().ok_or_else(|| ArchiveError::Occupied { path: path.clone() })?;
    Ok((way_to(stage, &path.parent().unwrap_or_default())?, name))
}
