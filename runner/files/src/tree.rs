//! Reading a tree that somebody hostile may have written.
//!
//! Every step is one name in one open directory, and a link is an answer, never
//! a way: a component that is a link does not open. So whatever the tree looks
//! like, nothing outside it is read, and a pipe or a device is seen but not
//! opened. Depth and width are the caller's to bound.
//!
//! `openat2` could resolve a whole path beneath a root in one call; one call per
//! part does the same without its limit of 4096 bytes, which a hostile tree
//! exceeds at will.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::path::TreePath;

/// One open directory of a tree.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
}

/// What stands under a name.
#[derive(Clone, Copy, Debug)]
pub struct FileStat {
    stat: Stat,
}

impl Directory {
    /// Opens the root of a tree. Links on the way there are followed: the way
    /// was chosen by the person who runs us.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { fd: rustix::fs::open(path, flags, Mode::empty())? })
    }

    /// Opens a directory in this one.
    pub fn child(&self, name: &[u8]) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self { fd: rustix::fs::openat(&self.fd, name, flags, Mode::empty())? })
    }

    /// Opens a directory in this one, unless something is mounted on it.
    pub fn child_here(&self, name: &[u8]) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        match rustix::fs::openat2(&self.fd, name, flags, Mode::empty(), within) {
            Ok(fd) => Ok(Self { fd }),
            // Before Linux 5.6 only another file system is noticed.
            Err(Errno::NOSYS) => {
                let child = self.child(name)?;
                let devices = (self.itself()?.stat.st_dev, child.itself()?.stat.st_dev);
                if devices.0 == devices.1 { Ok(child) } else { Err(Errno::XDEV.into()) }
            }
            Err(err) => Err(err.into()),
        }
    }

    /// Opens the directory at `path`, part by part.
    pub fn at(&self, path: &TreePath) -> io::Result<Self> {
        let mut here = Self { fd: self.fd.try_clone()? };
        for part in path.parts() {
            here = here.child(part)?;
        }
        Ok(here)
    }

    /// The directory that holds `path`, if every part on the way is a directory.
    pub fn holding(&self, path: &TreePath) -> io::Result<Option<Self>> {
        match self.at(&path.parent().unwrap_or_default()) {
            Ok(directory) => Ok(Some(directory)),
            Err(err) if is_absent(&err) => Ok(None),
            Err(err) => Err(err),
        }
    }

    /// What stands under `name` here, if anything does.
    pub fn look(&self, name: &[u8]) -> io::Result<Option<FileStat>> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileStat { stat })),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(err) => Err(err.into()),
        }
    }

    /// What stands at `path`, if anything does; nothing stands behind a link.
    pub fn look_at(&self, path: &TreePath) -> io::Result<Option<FileStat>> {
        let Some(name) = path.name() else { return self.itself().map(Some) };
        match self.holding(path)? {
            Some(directory) => directory.look(name),
            None => Ok(None),
        }
    }

    pub fn itself(&self) -> io::Result<FileStat> {
        Ok(FileStat { stat: rustix::fs::fstat(&self.fd)? })
    }

    /// The names in this directory, sorted, with what the directory says they
    /// are; at most `most`, and whether there are more.
    pub fn names(&self, most: usize) -> io::Result<(Vec<Named>, bool)> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if names.len() == most {
                return Ok((names, true));
            }
            names.push(Named { name: name.to_vec(), says: entry.file_type() });
        }
        names.sort_by(|a, b| a.name.cmp(&b.name));
        Ok((names, false))
    }

    /// Opens a regular file for reading. Anything else is an error, and nothing
    /// is waited for: a pipe that took a file's place does not hold us up.
    pub fn file(&self, name: &[u8]) -> io::Result<(File, FileStat)> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty())?;
        let seen = FileStat { stat: rustix::fs::fstat(&fd)? };
        if seen.kind() != FileType::RegularFile {
            return Err(io::Error::other("it is not a regular file"));
        }
        Ok((File::from(fd), seen))
    }

    /// The whole of a regular file, unless it is larger than `most`.
    pub fn contents(&self, name: &[u8], most: u64) -> io::Result<Option<Vec<u8>>> {
        let (file, seen) = self.file(name)?;
        if seen.size() > most {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        // It may have grown since; what was promised is the limit.
        file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        Ok((bytes.len() as u64 <= most).then_some(bytes))
    }

    /// Where the link under `name` points.
    pub fn link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&self.fd, name, Vec::new())?.into_bytes())
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A name in a directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Named {
    pub name: Vec<u8>,
    /// Some file systems say `Unknown`.
    pub says: FileType,
}

impl FileStat {
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    pub fn is_directory(&self) -> bool {
        self.kind() == FileType::Directory
    }

    /// The permission bits.
    pub fn mode(&self) -> u32 {
        self.stat.st_mode & 0o7777
    }

    pub fn size(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or_default()
    }

    pub fn owner(&self) -> (u32, u32) {
        (self.stat.st_uid, self.stat.st_gid)
    }

    /// When its content last changed, in seconds since 1970.
    pub fn modified(&self) -> u64 {
        u64::try_from(self.stat.st_mtime).unwrap_or_default()
    }

    /// How overlayfs says "deleted": a character device of number 0/0.
    pub fn is_whiteout(&self) -> bool {
        self.kind() == FileType::CharacterDevice && self.stat.st_rdev == 0
    }

    pub fn stat(&self) -> &Stat {
        &self.stat
    }
}

/// An extended attribute of an open file, if it has it.
pub fn mark(file: impl AsFd, name: &str) -> io::Result<Option<Vec<u8>>> {
    // The marks we ask for are a few bytes; a longer one is not the kernel's.
    let mut value = [0; 256];
    match rustix::fs::fgetxattr(file, name, &mut value[..]) {
        Ok(length) => Ok(Some(value.get(..length).unwrap_or_default().to_vec())),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(Errno::RANGE) => Ok(Some(value.to_vec())),
        Err(err) => Err(err.into()),
    }
}

/// Nothing is there, or a link or a file stands where a directory should.
pub fn is_absent(err: &io::Error) -> bool {
    [Errno::NOENT, Errno::NOTDIR, Errno::LOOP]
        .iter()
        .any(|absent| err.raw_os_error() == Some(absent.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_leads_anywhere() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "s").unwrap();
        let inside = tempfile::tempdir().unwrap();
        symlink(outside.path(), inside.path().join("way")).unwrap();
        symlink(outside.path().join("secret"), inside.path().join("file")).unwrap();
        symlink("loop", inside.path().join("loop")).unwrap();

        let root = Directory::open(inside.path()).unwrap();
        assert!(root.child(b"way").is_err() && root.child(b"loop").is_err());
        assert!(root.file(b"file").is_err());
        let behind = TreePath::parse(b"way/secret").unwrap();
        assert!(root.look_at(&behind).unwrap().is_none());
        assert_eq!(root.look(b"loop").unwrap().unwrap().kind(), FileType::Symlink);
        assert_eq!(root.link(b"loop").unwrap(), b"loop");
    }

    #[test]
    fn a_pipe_is_refused_without_waiting_for_a_writer() {
        let dir = tempfile::tempdir().unwrap();
        let root = Directory::open(dir.path()).unwrap();
        rustix::fs::mkfifoat(&root, "pipe", Mode::RUSR).unwrap();
        assert_eq!(root.file(b"pipe").unwrap_err().to_string(), "it is not a regular file");
    }

    #[test]
    fn a_file_larger_than_asked_for_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "12345").unwrap();
        let root = Directory::open(dir.path()).unwrap();
        assert_eq!(root.contents(b"f", 4).unwrap(), None);
        assert_eq!(root.contents(b"f", 5).unwrap(), Some(b"12345".to_vec()));
    }

    #[test]
    fn names_are_sorted_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b", "a", "c"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let root = Directory::open(dir.path()).unwrap();
        let (names, more) = root.names(9).unwrap();
        let names: Vec<&[u8]> = names.iter().map(|named| named.name.as_slice()).collect();
        assert_eq!((names, more), (vec![&b"a"[..], b"b", b"c"], false));
        assert!(root.names(2).unwrap().1);
    }
}
