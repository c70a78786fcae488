//! The sandbox's root: what stands in it, and that nothing else can be reached.
//!
//! First everything of the host's that will be inside is opened as a mount that
//! is nowhere yet ([`open_sources`]): by the launcher where that is root's
//! privilege, else by the sandbox's own process. Then the root is put together
//! from them ([`build`]), and last it becomes the only one ([`enter`]).

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use protocol::launcher::{GroupKind, MountEntry, SandboxSpec};
use rustix::fs::{
    CWD, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2, symlinkat,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags as Flags, MountPropagationFlags,
    MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, mount, mount_change, move_mount, open_tree, unmount,
};

use super::kernel::{MountFlags, restrict_mount};
use super::pools::MAX_TERMINALS;

/// What failed, and at which path.
#[derive(Debug)]
pub(super) struct At {
    pub(super) path: String,
    pub(super) source: io::Error,
}

fn at<E: Into<io::Error>>(path: impl Into<String>) -> impl FnOnce(E) -> At {
    move |source| At { path: path.into(), source: source.into() }
}

/// No mount that is made or removed elsewhere is seen here, nor one of ours there.
pub(super) fn keep_to_ourselves() -> io::Result<()> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(Into::into)
}

/// Mounts of everything in `order` that comes from the host, in its order; what
/// is optional and missing is nothing. The image, if there is one, is the first.
pub(super) fn open_sources(order: &SandboxSpec) -> Result<Vec<Option<OwnedFd>>, At> {
    let mut opened = Vec::new();
    if let Some(image) = &order.image {
        let flags = MountFlags { read_only: true, no_devices: true, no_exec: false };
        opened.push(Some(open(image, flags).map_err(at(image.display().to_string()))?));
    }
    for place in &order.places {
        match place {
            MountEntry::Bind { source, read_only, device, optional, .. } => {
                let flags =
                    MountFlags { read_only: *read_only, no_devices: !device, no_exec: *device };
                match open(source, flags) {
                    Ok(found) => opened.push(Some(found)),
                    Err(err) if *optional && err.kind() == io::ErrorKind::NotFound => {
                        opened.push(None);
                    }
                    Err(err) => return Err(at(source.display().to_string())(err)),
                }
            }
            MountEntry::Overlay { at: path, options } => {
                opened.push(Some(overlay(options).map_err(at(path))?));
            }
            _ => {}
        }
    }
    Ok(opened)
}

fn open(source: &Path, flags: MountFlags) -> io::Result<OwnedFd> {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let opened = open_tree(CWD, source, clone | OpenTreeFlags::AT_RECURSIVE)?;
    restrict_mount(opened.as_fd(), flags, true)?;
    Ok(opened)
}

/// The newer calls take no option longer than 256 bytes, and paths are. So it is
/// mounted the old way, on a directory of nobody's interest, and taken off again.
fn overlay(options: &str) -> io::Result<OwnedFd> {
    let options = CString::new(options)?;
    mount(c"overlay", SCRATCH, c"overlay", Flags::NODEV | Flags::NOSUID, Some(options.as_c_str()))?;
    let opened = open(Path::new(SCRATCH), MountFlags { no_devices: true, ..MountFlags::default() });
    unmount(SCRATCH, UnmountFlags::DETACH)?;
    opened
}

/// Puts the root together from `sources`, which are those of [`open_sources`].
pub(super) fn build(order: &SandboxSpec, sources: Vec<Option<OwnedFd>>) -> Result<Root, At> {
    let mut sources = sources.into_iter();
    let image = match &order.image {
        Some(_) => sources.next().unwrap_or_default(),
        None => None,
    };
    let root = match image {
        None => Root::empty().map_err(at("/"))?,
        Some(image) => Root::over(&image, order, sources.as_slice())?,
    };
    let mut next = || sources.next().unwrap_or_default();
    for (number, place) in order.places.iter().enumerate() {
        // What is no mount stands in the layer over the image already.
        if order.image.is_none() || !belongs_to_root(order, number) {
            root.put(place, &mut next)?;
        }
    }
    root.seal().map_err(at("/"))?;
    Ok(root)
}

/// Whether a place is a file, link or directory of the root itself, rather than
/// a mount or something in one.
fn belongs_to_root(order: &SandboxSpec, number: usize) -> bool {
    let path = match order.places.get(number) {
        Some(
            MountEntry::Directory { at }
            | MountEntry::File { at, .. }
            | MountEntry::Link { at, .. },
        ) => at,
        Some(_) | None => return false,
    };
    let before = order.places.iter().take(number);
    !before
        .filter_map(mounted_at)
        .any(|mount| path.strip_prefix(mount).is_some_and(|below| below.starts_with('/')))
}

fn mounted_at(place: &MountEntry) -> Option<&str> {
    match place {
        MountEntry::Bind { at, .. }
        | MountEntry::Groups { at, .. }
        | MountEntry::Overlay { at, .. }
        | MountEntry::Proc { at }
        | MountEntry::Terminals { at }
        | MountEntry::Tmpfs { at, .. } => Some(at),
        MountEntry::Cover { .. }
        | MountEntry::Directory { .. }
        | MountEntry::File { .. }
        | MountEntry::Link { .. }
        | MountEntry::ReadOnly { .. } => None,
    }
}

/// A root that is being made, mounted at [`SCRATCH`].
#[derive(Debug)]
pub(super) struct Root {
    fd: OwnedFd,
}

impl Root {
    fn empty() -> io::Result<Self> {
        let made = tmpfs(ROOT_BYTES, ROOT_INODES, 0o755)?;
        restrict_mount(made.as_fd(), MountFlags { no_devices: true, ..Default::default() }, false)?;
        attach(made.as_fd(), SCRATCH)?;
        Ok(Self { fd: directory(SCRATCH)? })
    }

    /// An image is never written to, so what it lacks (places to mount on, files
    /// of ours) stands in a small layer over it.
    fn over(image: &OwnedFd, order: &SandboxSpec, sources: &[Option<OwnedFd>]) -> Result<Self, At> {
        attach(image.as_fd(), SCRATCH).map_err(at("the image"))?;
        let below = Self { fd: directory(SCRATCH).map_err(at("the image"))? };
        let above = Self::empty().map_err(at("/"))?;
        let mut sources = sources.iter();
        for (number, place) in order.places.iter().enumerate() {
            let (path, is_directory) = match place {
                MountEntry::File { .. } | MountEntry::Link { .. } => {
                    if belongs_to_root(order, number) {
                        above.put(place, &mut || None)?;
                    }
                    continue;
                }
                MountEntry::Cover { .. } | MountEntry::ReadOnly { .. } => continue,
                MountEntry::Bind { at: path, .. } | MountEntry::Overlay { at: path, .. } => {
                    let Some(Some(source)) = sources.next() else { continue };
                    (path, is_directory(source.as_fd()).map_err(at(path))?)
                }
                MountEntry::Directory { at: path }
                | MountEntry::Groups { at: path, .. }
                | MountEntry::Proc { at: path }
                | MountEntry::Terminals { at: path }
                | MountEntry::Tmpfs { at: path, .. } => (path, true),
            };
            if below.find(path).is_err() {
                above.make_point(path, is_directory)?;
            }
        }
        let options = format!("lowerdir={}:{}", by_number(&above.fd), by_number(&below.fd));
        let options = CString::new(options).map_err(at("/"))?;
        let flags = Flags::RDONLY | Flags::NODEV | Flags::NOSUID;
        mount(c"overlay", SCRATCH, c"overlay", flags, Some(options.as_c_str())).map_err(at("/"))?;
        Ok(Self { fd: directory(SCRATCH).map_err(at("/"))? })
    }

    fn put(&self, place: &MountEntry, next: &mut dyn FnMut() -> Option<OwnedFd>) -> Result<(), At> {
        match place {
            MountEntry::Bind { at: path, .. } | MountEntry::Overlay { at: path, .. } => {
                // Optional, and not there.
                let Some(source) = next() else { return Ok(()) };
                self.mount(source.as_fd(), path)
            }
            MountEntry::Cover { at: path } => self.cover(path),
            MountEntry::Directory { at: path } => self.make_point(path, true).map(drop),
            MountEntry::File { at: path, text } => {
                let file = self.make_point(path, false)?;
                let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
                let file = openat(CWD, by_number(&file), flags, Mode::empty());
                let mut file = File::from(file.map_err(at(path))?);
                file.write_all(text.as_bytes()).map_err(at(path))
            }
            MountEntry::Groups { at: path, kind } => {
                let view = groups(kind).map_err(at(path))?;
                self.mount(view.as_fd(), path)
            }
            MountEntry::Link { at: path, to } => {
                let (parent, name) = self.parent(path)?;
                match symlinkat(to.as_str(), &parent, name) {
                    Ok(()) | Err(Errno::EXIST) => Ok(()),
                    Err(err) => Err(at(path)(err)),
                }
            }
            MountEntry::Proc { at: path } => {
                let proc = processes().map_err(at(path))?;
                self.mount(proc.as_fd(), path)
            }
            MountEntry::ReadOnly { at: path } => self.protect(path),
            MountEntry::Terminals { at: path } => {
                let made = terminals().map_err(at(path))?;
                self.mount(made.as_fd(), path)
            }
            MountEntry::Tmpfs { at: path, bytes, inodes, mode, executable } => {
                let made = tmpfs(*bytes, *inodes, *mode).map_err(at(path))?;
                let flags = MountFlags { read_only: false, no_devices: true, no_exec: !executable };
                restrict_mount(made.as_fd(), flags, false).map_err(at(path))?;
                self.mount(made.as_fd(), path)
            }
        }
    }

    /// Puts `source` at `path`, which is made where it does not exist.
    fn mount(&self, source: BorrowedFd<'_>, path: &str) -> Result<(), At> {
        let is_directory = is_directory(source).map_err(at(path))?;
        let point = self.make_point(path, is_directory)?;
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(source, c"", &point, c"", flags).map_err(at(path))
    }

    /// Hides what is at `path`, whatever it is.
    fn cover(&self, path: &str) -> Result<(), At> {
        let Ok(found) = self.find(path) else { return Ok(()) };
        let made = if is_directory(found.as_fd()).map_err(at(path))? {
            tmpfs(4096, 2, 0o555)
        } else {
            let flags = MountFlags { no_exec: true, ..MountFlags::default() };
            self.find("/dev/null").and_then(|null| clone_of(&null, flags))
        };
        let made = made.map_err(at(path))?;
        let flags = MountFlags { read_only: true, no_devices: false, no_exec: true };
        restrict_mount(made.as_fd(), flags, false).map_err(at(path))?;
        self.mount(made.as_fd(), path)
    }

    /// Keeps what is at `path`, read-only.
    fn protect(&self, path: &str) -> Result<(), At> {
        let Ok(found) = self.find(path) else { return Ok(()) };
        let flags = MountFlags { read_only: true, no_devices: true, no_exec: true };
        let made = clone_of(&found, flags).map_err(at(path))?;
        self.mount(made.as_fd(), path)
    }

    /// What is at `path`, seen as from inside: no link leads out of the root.
    fn find(&self, path: &str) -> io::Result<OwnedFd> {
        let below = path.trim_start_matches('/');
        let below = if below.is_empty() { "." } else { below };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        openat2(&self.fd, below, flags, Mode::empty(), inside).map_err(Into::into)
    }

    /// The same; made, with what is above it, where there is nothing.
    fn make_point(&self, path: &str, is_directory: bool) -> Result<OwnedFd, At> {
        match self.find(path) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => {}
            found => return found.map_err(at(path)),
        }
        let (parent, name) = self.parent(path)?;
        if is_directory {
            mkdirat(&parent, name, Mode::from_raw_mode(0o755)).map_err(at(path))?;
        } else {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            openat(&parent, name, flags, Mode::from_raw_mode(0o644)).map_err(at(path))?;
        }
        self.find(path).map_err(at(path))
    }

    fn parent<'p>(&self, path: &'p str) -> Result<(OwnedFd, &'p str), At> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.make_point(above, true)?, name))
    }

    /// Nothing more is put there.
    fn seal(&self) -> io::Result<()> {
        let flags = MountFlags { read_only: true, no_devices: true, no_exec: false };
        restrict_mount(self.fd.as_fd(), flags, false)?;
        match self.find("/dev") {
            Ok(devices) => {
                let flags = MountFlags { read_only: true, no_devices: false, no_exec: true };
                restrict_mount(devices.as_fd(), flags, false)
            }
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(err) => Err(err),
        }
    }
}

/// Makes `root` the only root there is: what was the root before has no name any
/// more, and nothing in here can give it one.
pub(super) fn enter(root: &Root) -> io::Result<()> {
    rustix::process::fchdir(&root.fd)?;
    // The old root lands on top of the new one, and is taken away from there.
    rustix::process::pivot_root(c".", c".")?;
    unmount(c".", UnmountFlags::DETACH)?;
    rustix::process::chdir(c"/").map_err(Into::into)
}

fn tmpfs(bytes: u64, inodes: u64, mode: u32) -> io::Result<OwnedFd> {
    let size = bytes.to_string();
    let (inodes, mode) = (inodes.to_string(), format!("{mode:o}"));
    let options = [("size", size.as_str()), ("nr_inodes", &inodes), ("mode", &mode)];
    new(c"tmpfs", &options)
}

/// Processes of this sandbox alone, and each sees only those it may look into.
fn processes() -> io::Result<OwnedFd> {
    new(c"proc", &[("hidepid", "invisible")]).or_else(|_| new(c"proc", &[]))
}

/// Few of them: the machine has a number for all sandboxes together.
fn terminals() -> io::Result<OwnedFd> {
    let most = MAX_TERMINALS.to_string();
    let options = [("newinstance", ""), ("ptmxmode", "0666"), ("mode", "0620"), ("max", &most)];
    new(c"devpts", &options)
}

fn groups(kind: &GroupKind) -> io::Result<OwnedFd> {
    let made = match kind {
        GroupKind::First(controllers) => {
            let names: Vec<_> = controllers.split(',').map(|name| (name, "")).collect();
            new(c"cgroup", &names)
        }
        GroupKind::Second => new(c"cgroup2", &[]),
    }?;
    let flags = MountFlags { read_only: true, no_devices: true, no_exec: true };
    restrict_mount(made.as_fd(), flags, false)?;
    Ok(made)
}

/// A new file system that is mounted nowhere yet.
fn new(kind: &CStr, options: &[(&str, &str)]) -> io::Result<OwnedFd> {
    let opened = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        if value.is_empty() {
            fsconfig_set_flag(opened.as_fd(), *name)?;
        } else {
            fsconfig_set_string(opened.as_fd(), *name, *value)?;
        }
    }
    fsconfig_create(opened.as_fd())?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let flags = if kind == c"tmpfs" { MountAttrFlags::MOUNT_ATTR_NOSUID } else { flags };
    fsmount(opened.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags).map_err(Into::into)
}

/// A second mount of what is already there.
fn clone_of(found: &OwnedFd, flags: MountFlags) -> io::Result<OwnedFd> {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let made = open_tree(found, c"", clone | OpenTreeFlags::AT_EMPTY_PATH)?;
    restrict_mount(made.as_fd(), flags, false)?;
    Ok(made)
}

fn is_directory(found: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(found)?.st_mode) == FileType::Directory)
}

/// A path to what is open already, whatever stands in front of it now.
fn by_number(open: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", open.as_raw_fd())
}

fn attach(mount: BorrowedFd<'_>, at: &str) -> io::Result<()> {
    move_mount(mount, c"", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(Into::into)
}

fn directory(path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty()).map_err(Into::into)
}

/// A directory that every system has and of which nothing is used: while a root
/// is being made, it stands there. By then every source is open.
const SCRATCH: &str = "/sys";
/// Holds directories, links and a few short files.
const ROOT_BYTES: u64 = 4 << 20;
const ROOT_INODES: u64 = 4096;
