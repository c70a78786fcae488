//! `sluice-launch gateway`: a gateway on the host, shut in.
//!
//! It keeps the host's network, since it is the way out, and the sockets that
//! were planted in the sandbox's. Of the host's files it sees its settings, its
//! control socket's folder, its log's, and what it takes to resolve a name; a
//! gateway that was taken over by what it relays finds nothing else to read.
//!
//! Its standard input stays what it is: when the runner is gone it ends, and
//! the gateway with it.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use protocol::launcher::GatewaySpec;
use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

use super::sandbox::{Failed, failed};
use super::{filter, forbidden, kernel, mounts, privileges};
use crate::passing;

/// Becomes the gateway, or says on stderr why not.
#[expect(clippy::print_stderr, reason = "whoever started it reads its log there")]
pub fn main() -> ExitCode {
    let Err(Failed { step, why }) = jail();
    eprintln!("sluice-launch: cannot {step}: {why}");
    ExitCode::FAILURE
}

fn jail() -> Result<Infallible, Failed> {
    let (GatewaySpec { user, group, names, order }, sockets) =
        hear().map_err(failed("hear the order"))?;
    let root = geteuid().is_root();
    if root {
        rustix::thread::set_thread_groups(&[]).map_err(failed("give up groups"))?;
        kernel::unshare(UnshareFlags::NEWNS).map_err(failed("have mounts of its own"))?;
    } else {
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        kernel::unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)
            .map_err(|err| forbidden::explain(&err))
            .map_err(failed("have mounts of its own"))?;
        map_to_itself(uid, gid).map_err(failed("map its user"))?;
    }
    mounts::keep_to_ourselves().map_err(failed("have mounts of its own"))?;
    let told = |mounts::At { path, source }: mounts::At| format!("{path}: {source}");
    let sources = mounts::open_sources(&order).map_err(told).map_err(failed("open its files"))?;
    let made = mounts::build(&order, sources).map_err(told).map_err(failed("build its root"))?;
    mounts::enter(&made).map_err(failed("enter its root"))?;
    drop(made);

    privileges::limit(&order.limits).map_err(failed("limit what it takes"))?;
    let filter = filter::compile().map_err(failed("compile the filter of system calls"))?;
    // Takes a capability, which a user that is not root does not have any more.
    kernel::empty_bounding_set().map_err(failed("give up capabilities"))?;
    if root {
        privileges::become_user(user, group).map_err(failed("become its user"))?;
    }
    privileges::give_up_what_is_left().map_err(failed("give up capabilities"))?;
    rustix::process::chdir(c"/").map_err(failed("enter its root"))?;

    // Theirs are the numbers from 3 on. Ours may stand in the way, so all of them
    // move out of it first.
    let place = "place the sockets";
    let beyond = FIRST + i32::try_from(sockets.len()).map_err(failed(place))?;
    let moved: Result<Vec<OwnedFd>, _> =
        sockets.iter().map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, beyond)).collect();
    let moved = moved.map_err(failed(place))?;
    std::mem::forget(sockets);
    kernel::close_on_exec_from(FIRST).map_err(failed(place))?;
    for (at, socket) in (FIRST..).zip(&moved) {
        kernel::place_at(socket.as_fd(), at).map_err(failed(place))?;
    }

    filter::install(&filter).map_err(failed("filter system calls"))?;
    let err = Command::new(&order.program)
        .args(&order.arguments)
        .env_clear()
        .envs(order.environment.iter().map(|(name, value)| (name, value)))
        .env("LISTEN_FDS", moved.len().to_string())
        .env("LISTEN_FDNAMES", names.join(":"))
        .exec();
    Err(failed("start")(err))
}

/// One line, and the sockets that come with it.
fn hear() -> io::Result<(GatewaySpec, Vec<OwnedFd>)> {
    let (mut text, mut sockets) = (Vec::new(), Vec::new());
    while !text.ends_with(b"\n") {
        let mut buffer = [0; 4096];
        let length = passing::receive(rustix::stdio::stdin(), &mut buffer, &mut sockets)?;
        if length == 0 {
            return Err(io::Error::other("the runner is gone"));
        }
        text.extend(buffer.get(..length).unwrap_or_default());
    }
    Ok((serde_json::from_slice(&text)?, sockets))
}

/// In a user namespace of its own, the caller is who it was and nobody else is there.
pub(super) fn map_to_itself(uid: u32, gid: u32) -> io::Result<()> {
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))
}

/// The first socket's number, as systemd's protocol has it.
const FIRST: i32 = 3;
