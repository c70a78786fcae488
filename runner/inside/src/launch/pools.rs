//! What the kernel counts for a whole user, bounded for a sandbox alone.
//!
//! Instances and watches of inotify belong to a user, and what is taken in a user
//! namespace is taken from whoever made it too: without a bound of its own, one
//! sandbox leaves its owner none. A namespace may bound what is taken in it, so
//! it gets a share, and no further namespaces at all.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// `sluice-launch pools PID`: sets the bounds of the user namespace that an engine
/// without root made for that process. Whoever owns the engine's namespace may.
pub fn main() -> ExitCode {
    let process = std::env::args().nth(2).and_then(|written| written.parse::<u32>().ok());
    let Some(process) = process else { return ExitCode::from(super::USAGE) };
    match enter(process).and_then(|()| bound()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            // Nobody may be listening; the code says it too.
            drop(writeln!(io::stderr(), "{err}"));
            ExitCode::FAILURE
        }
    }
}

fn enter(process: u32) -> io::Result<()> {
    let namespace = File::open(format!("/proc/{process}/ns/user"))?;
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::User))?)
}

/// Whether a namespace can be bounded here at all: inside a container the
/// kernel's settings may be closed.
pub fn can_bound() -> bool {
    let settings = rustix::fs::statvfs("/proc/sys/user/max_inotify_instances");
    settings.is_ok_and(|found| !found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

/// Sets the bounds of this process's own user namespace. To be called while it
/// has every capability in there, after the last namespace was made.
pub(super) fn bound() -> io::Result<()> {
    for name in NO_MORE {
        write(name, 0)?;
    }
    for (name, most) in SHARED {
        write(name, share(most))?;
    }
    Ok(())
}

fn write(name: &str, most: u64) -> io::Result<()> {
    match fs::write(format!("/proc/sys/user/{name}"), most.to_string()) {
        // A kernel that does not count it does not know it.
        Err(err) if err.kind() != io::ErrorKind::NotFound => {
            Err(io::Error::new(err.kind(), format!("{name}: {err}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// An eighth of what the machine lets a user have.
fn share(of: &str) -> u64 {
    let most = fs::read_to_string(format!("/proc/sys/fs/inotify/{of}")).unwrap_or_default();
    let most = most.trim().parse::<u64>().unwrap_or(128);
    (most / 8).max(1)
}

/// Terminals of one sandbox.
pub const MAX_TERMINALS: u32 = 64;

/// Bounds in a user namespace, and what the machine lets a user have of it.
const SHARED: [(&str, &str); 2] =
    [("max_inotify_instances", "max_user_instances"), ("max_inotify_watches", "max_user_watches")];

/// The filter refuses them as well. Not those of mounts: a mount that stands
/// nowhere yet is in one of its own, and the root is made of such.
const NO_MORE: [&str; 9] = [
    "max_cgroup_namespaces",
    "max_fanotify_groups",
    "max_fanotify_marks",
    "max_ipc_namespaces",
    "max_net_namespaces",
    "max_pid_namespaces",
    "max_time_namespaces",
    "max_user_namespaces",
    "max_uts_namespaces",
];
