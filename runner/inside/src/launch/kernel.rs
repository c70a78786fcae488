//! The system calls that have no safe wrapper.
//!
//! Each changes the process that asks, or takes a structure the standard library
//! does not know. Every function here can be called from safe code, and says
//! what makes that so.

use std::ffi::c_int;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rustix::process::Pid;
use rustix::thread::UnshareFlags;

/// Which of the two we are.
#[derive(Debug)]
pub(super) enum Forked {
    Child,
    Parent(Pid),
}

/// Splits this process in two; the child is in new namespaces of these kinds.
///
/// Only a process with one thread may: another thread could hold a lock that
/// nobody would ever let go in the child. That is checked, not assumed.
pub(super) fn fork_into(namespaces: UnshareFlags) -> io::Result<Forked> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!("cannot fork with {threads} threads")));
    }
    let flags = i64::from(namespaces.bits()) | i64::from(libc::SIGCHLD);
    // SAFETY: without CLONE_VM the child has memory of its own, and with no stack
    // given it goes on from here on a copy of this one: it is `fork` with further
    // flags. There is one thread, so no lock is held by another.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0_i64, 0_i64, 0_i64, 0_i64) };
    match i32::try_from(pid) {
        Ok(0) => Ok(Forked::Child),
        Ok(pid) if pid > 0 => Ok(Forked::Parent(Pid::from_raw(pid).expect("it is positive"))),
        Ok(_) | Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Forgets which signals whoever started us ignores: a program behind `nohup`,
/// or in the background of a script, would never hear of control and C.
pub(super) fn heed_signals() {
    for number in 1..=libc::SIGRTMAX() {
        // SAFETY: the default needs no code of ours. The two signals that cannot
        // be set are refused, and stay as they are.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
}

/// Moves this process into new namespaces of these kinds.
pub(super) fn unshare(namespaces: UnshareFlags) -> io::Result<()> {
    // SAFETY: the one thread there is moves as a whole. No table of descriptors
    // is split off, so none that is owned elsewhere goes away.
    unsafe { rustix::thread::unshare_unsafe(namespaces) }.map_err(Into::into)
}

/// The user namespace that a namespace belongs to.
pub(super) fn owner_of_namespace(namespace: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: takes a number and no further argument, and changes nothing.
    let owner = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS) };
    if owner < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(owner) })
}

/// From `linux/nsfs.h`.
const NS_GET_USERNS: libc::Ioctl = 0xb701;

/// What a mount is to be, besides what it is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MountFlags {
    pub(super) read_only: bool,
    pub(super) no_devices: bool,
    pub(super) no_exec: bool,
}

/// Sets flags of a mount and, if asked, of everything mounted below it. Set-user
/// bits never count, and nothing that is mounted elsewhere later appears here.
pub(super) fn restrict_mount(
    mount: BorrowedFd<'_>,
    flags: MountFlags,
    below: bool,
) -> io::Result<()> {
    let mut set = libc::MOUNT_ATTR_NOSUID;
    for (wanted, flag) in [
        (flags.read_only, libc::MOUNT_ATTR_RDONLY),
        (flags.no_devices, libc::MOUNT_ATTR_NODEV),
        (flags.no_exec, libc::MOUNT_ATTR_NOEXEC),
    ] {
        set |= if wanted { flag } else { 0 };
    }
    let attributes = libc::mount_attr {
        attr_set: set,
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    let at = libc::AT_EMPTY_PATH | if below { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty C string, and the structure is the kernel's
    // own, as long as we say it is; the kernel only reads both.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            at,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes every capability out of what can ever be gained again.
///
/// By number, to the last the kernel knows: it may know more than we do.
pub(super) fn empty_bounding_set() -> io::Result<()> {
    for number in 0..=63_u64 {
        // SAFETY: takes numbers, no pointers, and changes this process alone.
        let done = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
        if done != 0 {
            let err = io::Error::last_os_error();
            let beyond_the_last = number > 0 && err.raw_os_error() == Some(libc::EINVAL);
            return if beyond_the_last { Ok(()) } else { Err(err) };
        }
    }
    Ok(())
}

/// No descriptor from `first` on survives becoming another program.
pub(super) fn close_on_exec_from(first: RawFd) -> io::Result<()> {
    let first = u32::try_from(first).map_err(io::Error::other)?;
    // SAFETY: marks descriptors; none is closed while somebody here owns it.
    let done =
        unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Puts a copy of `fd` at the number `at`, where it survives becoming another
/// program. Whatever was there is closed.
///
/// Only for the moment before `exec`, when nothing of ours is used any more.
pub(super) fn place_at(fd: BorrowedFd<'_>, at: c_int) -> io::Result<()> {
    // SAFETY: takes numbers. What stood at `at` may have been owned here; the
    // caller is about to be replaced, and uses nothing of it.
    let done = unsafe { libc::dup2(fd.as_raw_fd(), at) };
    if done == at { Ok(()) } else { Err(io::Error::last_os_error()) }
}
