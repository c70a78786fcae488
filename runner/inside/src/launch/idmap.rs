//! A copy of a mount in which two owners have changed places.
//!
//! Root's project belongs to root, and nothing in a sandbox is root. Seen through
//! such a copy the project belongs to the sandbox's user, and what that user
//! writes there belongs to the project's owner on disk. Nothing on disk changes,
//! and nobody gains a right outside the copy.
//!
//! The two change places, rather than one taking the other's: a mapping has to be
//! one to one, and a file whose owner has no name in it could not be copied up
//! by an overlay. Everybody else stays who they are.
//!
//! The kernel takes the mapping from a user namespace, which exists only as long
//! as a process is in it: a child enters one, waits until the mapping was taken,
//! and ends. Needs root, Linux 5.12 (5.19 below an overlay) and a file system
//! that can; whoever asks is told which step failed.

use std::ffi::{OsStr, OsString, c_int};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, PipeWriter, Read as _, Write as _};
use std::mem;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use protocol::UserIds;
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use rustix::process::{Pid, WaitOptions, waitpid};

/// Two owners that change places.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Swap {
    /// Who owns the files on disk.
    pub disk: UserIds,
    /// As whose they appear.
    pub shown: UserIds,
}

impl Swap {
    /// As whom somebody appears.
    pub fn shown(&self, who: UserIds) -> UserIds {
        let swap = |id, one, other| match id {
            id if id == one => other,
            id if id == other => one,
            id => id,
        };
        UserIds {
            uid: swap(who.uid, self.disk.uid, self.shown.uid),
            gid: swap(who.gid, self.disk.gid, self.shown.gid),
        }
    }
}

/// A step that this kernel, this file system or this user cannot do.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step}")]
pub struct IdmapError {
    step: IdMapStep,
    #[source]
    source: io::Error,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum IdMapStep {
    Attach,
    Copy,
    Enter,
    Map,
    Show,
}

impl fmt::Display for IdMapStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Attach => "attach the copy",
            Self::Copy => "copy the mount",
            Self::Enter => "enter a user namespace",
            Self::Map => "map the owners",
            Self::Show => "show files under another owner",
        })
    }
}

/// A copy of the mount that `directory` is on, from there downwards, attached
/// nowhere yet: it is gone when the descriptor is. Mounts below are not in it.
pub fn detached(directory: impl AsFd, swap: &Swap) -> Result<OwnedFd, IdmapError> {
    let namespace = namespace(swap)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(directory, "", flags).map_err(failed(IdMapStep::Copy))?;
    let wanted = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::try_from(namespace.as_raw_fd()).unwrap_or(u64::MAX),
    };
    // SAFETY: both descriptors are open, the path is an empty string with its
    // end, and the kernel reads exactly the size we name of a structure that
    // lives on our stack until it returns.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const wanted,
            mem::size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 { Ok(tree) } else { Err(failed(IdMapStep::Show)(io::Error::last_os_error())) }
}

/// Attaches a copy to the directory `at`, where it stays until it is unmounted.
pub fn attach(tree: impl AsFd, at: &Path) -> Result<(), IdmapError> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(tree, "", CWD, at, flags).map_err(failed(IdMapStep::Attach))
}

/// A user namespace that holds the mapping.
fn namespace(swap: &Swap) -> Result<File, IdmapError> {
    let entered = Entered::new().map_err(failed(IdMapStep::Enter))?;
    let process = format!("/proc/{}", entered.child.as_raw_pid());
    let write = |file: &str, map: String| {
        fs::write(format!("{process}/{file}"), map).map_err(failed(IdMapStep::Map))
    };
    write("uid_map", map(swap.disk.uid, swap.shown.uid))?;
    write("gid_map", map(swap.disk.gid, swap.shown.gid))?;
    File::open(format!("{process}/ns/user")).map_err(failed(IdMapStep::Map))
}

/// The lines of a mapping: who is on disk, who that is outside, how many.
fn map(disk: u32, shown: u32) -> String {
    let (low, high) = (disk.min(shown), disk.max(shown));
    let mut lines = Vec::new();
    let mut line = |disk: u32, shown: u32, count: u32| {
        if count > 0 {
            lines.push(format!("{disk} {shown} {count}\n"));
        }
    };
    if low == high {
        line(0, 0, EVERYBODY);
        return lines.concat();
    }
    line(0, 0, low);
    line(low, high, 1);
    line(low + 1, low + 1, high - low - 1);
    line(high, low, 1);
    line(high + 1, high + 1, EVERYBODY - high - 1);
    lines.concat()
}

/// Every id but the last, which means nobody.
const EVERYBODY: u32 = u32::MAX;

/// A child in a user namespace of its own; it ends with this.
struct Entered {
    child: Pid,
    /// The child waits until nobody holds the other end.
    hold: Option<PipeWriter>,
}

impl Entered {
    fn new() -> io::Result<Self> {
        let (mut said, say) = io::pipe()?;
        let (wait, hold) = io::pipe()?;
        // SAFETY: the child calls nothing but what POSIX allows between fork and
        // exec even in a program with threads, and leaves by `_exit`.
        let child = match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => enter(say.as_raw_fd(), wait.as_raw_fd(), hold.as_raw_fd()),
            child => Pid::from_raw(child).ok_or_else(|| io::Error::other("no child"))?,
        };
        let entered = Self { child, hold: Some(hold) };
        drop(say);
        let mut word = [0; 4];
        said.read_exact(&mut word)?;
        match i32::from_ne_bytes(word) {
            0 => Ok(entered),
            number => Err(io::Error::from_raw_os_error(number)),
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        drop(self.hold.take());
        waitpid(Some(self.child), WaitOptions::empty()).ok();
    }
}

/// The child's whole life.
fn enter(say: c_int, wait: c_int, hold: c_int) -> ! {
    // SAFETY: plain system calls on descriptors that fork gave us, with a buffer
    // on our own stack; nothing is allocated, nothing is locked, and what `fork`
    // copied is not touched again.
    unsafe {
        // Ours too, or we would wait for ourselves.
        libc::close(hold);
        let number = match libc::unshare(libc::CLONE_NEWUSER) {
            0 => 0,
            _ => io::Error::last_os_error().raw_os_error().unwrap_or(libc::EPERM),
        };
        let mut word = number.to_ne_bytes();
        libc::write(say, word.as_ptr().cast(), word.len());
        libc::read(wait, word.as_mut_ptr().cast(), word.len());
        libc::_exit(0)
    }
}

fn failed<E: Into<io::Error>>(step: IdMapStep) -> impl FnOnce(E) -> IdmapError {
    move |source| IdmapError { step, source: source.into() }
}

/// The subcommand: `--disk UID:GID --shown UID:GID [--at DIRECTORY]`, with the
/// directory to copy as standard input, so that it is the one its caller looked
/// at. Without a place to attach to, it only says whether that could be done.
pub fn main() -> ExitCode {
    match carry_out(std::env::args_os().skip(2)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            // Nobody may be listening; the code says it too.
            drop(writeln!(io::stderr(), "{err:#}"));
            ExitCode::FAILURE
        }
    }
}

fn carry_out(mut arguments: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let (mut disk, mut shown, mut at) = (None, None, None);
    while let Some(argument) = arguments.next() {
        let value = arguments.next();
        match argument.to_str() {
            Some("--at") => at = value,
            Some("--disk") => disk = value.as_deref().and_then(owner),
            Some("--shown") => shown = value.as_deref().and_then(owner),
            _ => bail!("it does not know {}", argument.display()),
        }
    }
    let (Some(disk), Some(shown)) = (disk, shown) else { bail!("it was not told whose files") };
    let tree = detached(io::stdin(), &Swap { disk, shown })?;
    match at {
        Some(at) => Ok(attach(&tree, Path::new(&at))?),
        None => Ok(()),
    }
}

fn owner(written: &OsStr) -> Option<UserIds> {
    let (uid, gid) = written.to_str()?.split_once(':')?;
    Some(UserIds { uid: uid.parse().ok()?, gid: gid.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, chown};

    use rustix::mount::{UnmountFlags, unmount};

    use super::*;
    use crate::skip::skip;

    const ROOT: UserIds = UserIds { uid: 0, gid: 0 };
    const AGENT: UserIds = UserIds { uid: 1000, gid: 1001 };

    #[test]
    fn a_mapping_names_everybody_once() {
        assert_eq!(map(0, 1000), "0 1000 1\n1 1 999\n1000 0 1\n1001 1001 4294966294\n");
        assert_eq!(map(5, 4), "0 0 4\n4 5 1\n5 4 1\n6 6 4294967289\n");
        assert_eq!(map(7, 7), "0 0 4294967295\n");
        for (disk, shown) in [(0, 1000), (1, 0), (3, 3), (0, u32::MAX - 1)] {
            let counted: u64 = map(disk, shown)
                .lines()
                .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
                .sum();
            assert_eq!(counted, u64::from(EVERYBODY), "{disk} {shown}");
        }
    }

    #[test]
    fn two_change_places_and_others_stay_who_they_are() {
        let swap = Swap { disk: ROOT, shown: AGENT };
        assert_eq!((swap.shown(ROOT), swap.shown(AGENT)), (AGENT, ROOT));
        let other = UserIds { uid: 7, gid: 0 };
        assert_eq!(swap.shown(other), UserIds { uid: 7, gid: 1001 });
    }

    #[test]
    fn what_is_roots_on_disk_is_the_agents_in_the_copy() {
        if !rustix::process::geteuid().is_root() {
            return skip("root");
        }
        let home = tempfile::tempdir().unwrap();
        let (real, copy) = (home.path().join("real"), home.path().join("copy"));
        for path in [&real, &copy] {
            fs::create_dir(path).unwrap();
        }
        fs::write(real.join("ours"), "").unwrap();
        fs::write(real.join("theirs"), "").unwrap();
        chown(real.join("theirs"), Some(1000), Some(1001)).unwrap();
        let swap = Swap { disk: ROOT, shown: AGENT };
        let tree = match detached(File::open(&real).unwrap(), &swap) {
            Ok(tree) => tree,
            Err(_) => return skip("a file system that can be shown under another owner"),
        };
        attach(&tree, &copy).unwrap();
        let owner = |path: &Path| path.metadata().map(|found| (found.uid(), found.gid()));
        let seen = (owner(&copy.join("ours")).unwrap(), owner(&copy.join("theirs")).unwrap());
        // What is the agent's there is root's on disk.
        fs::write(copy.join("new"), "").unwrap();
        let given = chown(copy.join("new"), Some(1000), Some(1001));
        unmount(&copy, UnmountFlags::DETACH).unwrap();
        given.unwrap();
        assert_eq!(seen, ((1000, 1001), (0, 0)));
        assert_eq!(owner(&real.join("new")).unwrap(), (0, 0));
        assert_eq!(fs::read_dir(&copy).unwrap().count(), 0, "it is gone");
    }
}
