//! Makes an archive of a file or a directory.

use std::cell::Cell;
use std::io::{self, Read as _, Write};
use std::rc::Rc;

use rustix::fs::FileType;
use tar::{Builder, EntryType, Header};

use super::{ArchiveError, ArchiveLimits, Moved, disk, tar_failed};
use crate::tree::{Directory, FileStat};
use crate::{Quoted, TreePath, leads_out};

/// Writes `name` of `directory`, and everything in it, to `out` as a tar whose
/// entries belong to `owner`.
pub fn pack(
    directory: &Directory,
    name: &[u8],
    owner: (u32, u32),
    limits: &ArchiveLimits,
    out: impl Write,
) -> Result<Moved, ArchiveError> {
    let path = TreePath::parse(name)?;
    let broken_off = Rc::new(Cell::new(false));
    let out = Unfinished { out, broken_off: Rc::clone(&broken_off) };
    let mut packing =
        Packing { tar: Builder::new(out), owner, limits: *limits, moved: Moved::default() };
    if let Err(err) = packing.entry(directory, name, &path) {
        broken_off.set(true);
        return Err(err);
    }
    packing.tar.into_inner().and_then(|mut out| out.flush()).map_err(tar_failed)?;
    Ok(packing.moved)
}

/// Where an archive goes. The library ends one whatever happened, and then half
/// of it would be read as the whole; one that broke off has no end.
struct Unfinished<W> {
    out: W,
    broken_off: Rc<Cell<bool>>,
}

impl<W: Write> Write for Unfinished<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.broken_off.get() {
            true => Err(io::ErrorKind::BrokenPipe.into()),
            false => self.out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

struct Packing<W: Write> {
    tar: Builder<W>,
    owner: (u32, u32),
    limits: ArchiveLimits,
    moved: Moved,
}

impl<W: Write> Packing<W> {
    fn entry(
        &mut self,
        parent: &Directory,
        name: &[u8],
        path: &TreePath,
    ) -> Result<(), ArchiveError> {
        if path.depth() > self.limits.depth {
            return Err(ArchiveError::Nested { path: path.clone() });
        }
        let gone = || disk("find", path)(io::ErrorKind::NotFound.into());
        let seen = parent.look(name).map_err(disk("look at", path))?.ok_or_else(gone)?;
        let what = match seen.kind() {
            FileType::Directory => return self.directory(parent, name, path, &seen),
            FileType::RegularFile => return self.file(parent, name, path),
            FileType::Symlink => return self.link(parent, name, path, &seen),
            FileType::Fifo => "pipe",
            FileType::Socket => "socket",
            FileType::BlockDevice | FileType::CharacterDevice => "device",
            FileType::Unknown => "file of an unknown kind",
        };
        Err(ArchiveError::Kind { path: path.clone(), what })
    }

    fn directory(
        &mut self,
        parent: &Directory,
        name: &[u8],
        path: &TreePath,
        seen: &FileStat,
    ) -> Result<(), ArchiveError> {
        self.moved.count(0, &self.limits)?;
        let mut header = self.header(EntryType::Directory, seen, 0);
        self.tar.append_data(&mut header, path.to_path(), io::empty()).map_err(tar_failed)?;
        let inside = parent.child(name).map_err(disk("open", path))?;
        let most = usize::try_from(self.limits.entries).unwrap_or(usize::MAX);
        let (names, more) = inside.names(most).map_err(disk("read", path))?;
        if more {
            return Err(ArchiveError::Many { limit: self.limits.entries });
        }
        names.iter().try_for_each(|named| self.entry(&inside, &named.name, &path.join(&named.name)))
    }

    fn file(
        &mut self,
        parent: &Directory,
        name: &[u8],
        path: &TreePath,
    ) -> Result<(), ArchiveError> {
        let (file, seen) = parent.file(name).map_err(disk("open", path))?;
        self.moved.count(seen.size(), &self.limits)?;
        let mut header = self.header(EntryType::Regular, &seen, seen.size());
        // The header has said how long it is; a file that shrank is filled up,
        // since an archive that lies about lengths is read as something else.
        let bytes = file.take(seen.size()).chain(io::repeat(0)).take(seen.size());
        self.tar.append_data(&mut header, path.to_path(), bytes).map_err(tar_failed)
    }

    fn link(
        &mut self,
        parent: &Directory,
        name: &[u8],
        path: &TreePath,
        seen: &FileStat,
    ) -> Result<(), ArchiveError> {
        let target = parent.link(name).map_err(disk("read", path))?;
        if leads_out(path, &target) {
            let target = Quoted(&target).to_string();
            return Err(ArchiveError::LinkOut { path: path.clone(), target });
        }
        self.moved.count(0, &self.limits)?;
        let mut header = self.header(EntryType::Symlink, seen, 0);
        let target = crate::Bytes(target).to_path();
        self.tar.append_link(&mut header, path.to_path(), target).map_err(tar_failed)
    }

    fn header(&self, kind: EntryType, seen: &FileStat, size: u64) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        // No bits that lend rights.
        header.set_mode(seen.mode() & 0o777);
        header.set_uid(self.owner.0.into());
        header.set_gid(self.owner.1.into());
        header.set_mtime(seen.modified());
        header
    }
}
