//! `sluice-launch relay`: the end of a relay that is on the host.
//!
//! For a sandbox in which nobody can open the gateway's sockets. This process makes a
//! network that is a twin of the sandbox's: loopback alone, with the sockets at the
//! addresses that the sandbox has for them. It hands them to the runner, who
//! hands them to a gateway outside, and keeps none. Then it is given a channel, and for every
//! connection that the sandbox announces there it connects to the same address, here.
//!
//! What comes over the channel is hostile, so it is read behind every wall there is:
//! a network in which nothing can be reached but the gateway, an empty root, no
//! capability, and system calls that open nothing. The walls stand before the runner
//! is answered: a wall that cannot be built is an answer, not a surprise.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use protocol::launcher::{
    LauncherCommand, LauncherMessage, ListenerSpec, ProcessLimits, RelaySpec, SandboxSpec,
    SocketKind,
};
use protocol::relay::{MAX_QUESTIONS, MAX_STREAMS};
use rustix::net::{SocketType, sockopt};
use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

use super::gateway::map_to_itself;
use super::sandbox::{Failed, failed, say, take_stdin};
use super::{USAGE, filter, forbidden, kernel, mounts, network, privileges};
use crate::passing;
use crate::relay::RelayEnd;
use crate::relay::twin::Twin;

/// Opens the sockets and serves one channel, or says why not.
#[expect(clippy::print_stderr, reason = "whoever started it may keep it as a log")]
pub fn main() -> ExitCode {
    let Ok(runner) = take_stdin().map(UnixStream::from) else { return ExitCode::from(USAGE) };
    let Ok((spec, _)) = passing::receive_line::<RelaySpec>(&runner) else {
        return ExitCode::from(USAGE);
    };
    let listeners = match prepare(&spec) {
        Ok(listeners) => listeners,
        Err(Failed { step, why }) => {
            say(runner.as_fd(), &LauncherMessage::Failed { step, why }, &[]).ok();
            return ExitCode::FAILURE;
        }
    };
    let fds: Vec<BorrowedFd<'_>> = listeners.iter().map(OwnedFd::as_fd).collect();
    if say(runner.as_fd(), &LauncherMessage::ListenersOpened, &fds).is_err() {
        return ExitCode::FAILURE;
    }
    // When the gateway is gone nobody listens.
    drop(listeners);
    let Some(channel) = receive_channel(&runner) else { return ExitCode::from(USAGE) };
    // A session's channel ends with its sandbox, whoever started that.
    let runner = if spec.session { None } else { Some(runner) };
    match Twin::new(spec.listeners).serve(channel, runner.as_ref().map(UnixStream::as_fd)) {
        RelayEnd::Channel | RelayEnd::Owner => ExitCode::SUCCESS,
        RelayEnd::Violation(what) => {
            eprintln!("sluice-launch: the sandbox's relay was cut off: {what}");
            ExitCode::FAILURE
        }
    }
}

/// Makes the network, opens the sockets in it, and builds the walls around this process.
fn prepare(spec: &RelaySpec) -> Result<Vec<OwnedFd>, Failed> {
    let root = geteuid().is_root();
    if root && (spec.user == 0 || spec.group == 0) {
        return Err(failed("choose a user")("nothing that a sandbox speaks to is root"));
    }
    let own = "have a network of its own";
    if root {
        // Root's groups open root's files.
        rustix::thread::set_thread_groups(&[]).map_err(failed("give up groups"))?;
        kernel::unshare(UnshareFlags::NEWNS | UnshareFlags::NEWNET).map_err(failed(own))?;
    } else {
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        kernel::unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS | UnshareFlags::NEWNET)
            .map_err(|err| forbidden::explain(&err))
            .map_err(failed(own))?;
        map_to_itself(uid, gid).map_err(failed("map its user"))?;
    }
    network::raise_loopback().map_err(failed(own))?;
    let listeners = open(&spec.listeners)?;

    let build = "build its root";
    mounts::keep_to_ourselves().map_err(failed(build))?;
    let told = |mounts::At { path, source }: mounts::At| format!("{path}: {source}");
    let nothing = SandboxSpec::default();
    let made = mounts::build(&nothing, Vec::new()).map_err(told).map_err(failed(build))?;
    mounts::enter(&made).map_err(failed("enter its root"))?;
    drop(made);

    privileges::limit(&LIMITS).map_err(failed("limit what it takes"))?;
    let filter =
        filter::compile_for_relay().map_err(failed("compile the filter of system calls"))?;
    // Takes a capability, which a user that is not root does not have any more.
    kernel::empty_bounding_set().map_err(failed("give up capabilities"))?;
    if root {
        privileges::become_user(spec.user, spec.group).map_err(failed("become its user"))?;
    }
    privileges::give_up_what_is_left().map_err(failed("give up capabilities"))?;
    filter::install(&filter).map_err(failed("filter system calls"))?;
    Ok(listeners)
}

fn open(listeners: &[ListenerSpec]) -> Result<Vec<OwnedFd>, Failed> {
    let step = "open the gateway's sockets";
    if listeners.len() > passing::MAX_DESCRIPTORS {
        return Err(failed(step)("there are too many to hand over"));
    }
    let opened = listeners.iter().map(|listener| match listener.kind {
        // Every packet in here is one that this process or the gateway sent.
        SocketKind::RawTcp | SocketKind::RawUdp => Err("a relay has none for packets".to_owned()),
        SocketKind::Tcp | SocketKind::Udp => network::open(listener).map_err(|err| {
            let ListenerSpec { name, address, port, .. } = listener;
            format!("{name} on {address}:{port}: {err}")
        }),
    });
    opened.collect::<Result<_, _>>().map_err(failed(step))
}

/// The one descriptor that comes with the runner's second line: a stream.
fn receive_channel(runner: &UnixStream) -> Option<OwnedFd> {
    let (LauncherCommand::Relay, descriptors) = passing::receive_line(runner).ok()? else {
        return None;
    };
    let [channel] = <[OwnedFd; 1]>::try_from(descriptors).ok()?;
    let is_stream = sockopt::socket_type(&channel) == Ok(SocketType::STREAM);
    is_stream.then_some(channel)
}

/// A socket for every stream and question, and a few besides. Memory is at most a
/// window for every stream, and what a small program has.
const LIMITS: ProcessLimits = ProcessLimits {
    open_files: (MAX_STREAMS + MAX_QUESTIONS + 64) as u64,
    // It can open none to write to.
    file_size: u64::MAX,
    // It starts none.
    processes: 0,
    data: Some(256 << 20),
};
