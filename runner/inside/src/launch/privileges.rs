//! What a process must not have when it becomes somebody else's program.

use std::io;

use protocol::launcher::ProcessLimits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, clear_ambient_capability_set, set_capabilities,
    set_no_new_privs, set_thread_res_gid, set_thread_res_uid,
};

use super::kernel;

/// Becomes this user, as the user namespace we are in calls it.
///
/// The group first: afterwards we might not be allowed to.
pub(super) fn become_user(user: u32, group: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(group));
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid).map_err(Into::into)
}

/// Bounds what each process can take. No bound is ever raised.
pub(super) fn limit(limits: &ProcessLimits) -> io::Result<()> {
    for (resource, most) in [
        // The memory of a program that fell over holds what it knew.
        (Resource::Core, 0),
        (Resource::Fsize, limits.file_size),
        (Resource::Nofile, limits.open_files),
        (Resource::Nproc, limits.processes),
        // Counted for the whole user, who may be somebody outside too.
        (Resource::Msgqueue, MESSAGE_QUEUES),
        (Resource::Sigpending, QUEUED_SIGNALS),
        // Only where nobody counts memory but who looks after it.
        (Resource::Data, limits.data.unwrap_or(u64::MAX)),
    ] {
        let most = getrlimit(resource).maximum.map_or(most, |hard| hard.min(most));
        if most < u64::MAX {
            setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
        }
    }
    Ok(())
}

/// Bytes in message queues: a third of what a user usually has.
pub const MESSAGE_QUEUES: u64 = 256 << 10;
/// Signals, and clocks, that wait for somebody.
pub const QUEUED_SIGNALS: u64 = 4096;

/// Gives up every capability, and every way to get one back.
pub(super) fn give_up_everything() -> io::Result<()> {
    // Before the rest: to empty the bounding set takes a capability.
    kernel::empty_bounding_set()?;
    give_up_what_is_left()
}

/// The same for one whose bounding set is empty already.
pub(super) fn give_up_what_is_left() -> io::Result<()> {
    clear_ambient_capability_set()?;
    set_no_new_privs(true)?;
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, none).map_err(Into::into)
}
