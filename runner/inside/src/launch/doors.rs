//! `sluice-launch doors`: a gateway's sockets, in a sandbox that an engine made.
//!
//! The sandbox was made without a network: its network namespace has loopback and
//! nothing else. This process enters it, makes every address lead to loopback and opens
//! the sockets, as `sluice-launch sandbox` does in namespaces of its own; then it hands
//! them to the runner and ends.
//!
//! A network that is not empty is left as it is: were it another's, or this machine's
//! own, what is done here would cut it off.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::process::ExitCode;

use protocol::launcher::{DoorsSpec, LauncherMessage};
use rustix::process::geteuid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::sandbox::{Failed, Runner, failed, say};
use super::{USAGE, kernel, network};

/// Opens the sockets, or says why not.
pub fn main() -> ExitCode {
    let Ok(mut runner) = Runner::on_stdin() else { return ExitCode::from(USAGE) };
    let Some(spec) = runner.hear::<DoorsSpec>() else { return ExitCode::from(USAGE) };
    let told = match open(&spec) {
        Ok(sockets) => {
            let fds: Vec<BorrowedFd<'_>> = sockets.iter().map(OwnedFd::as_fd).collect();
            say(runner.socket(), &LauncherMessage::ListenersOpened, &fds)
        }
        Err(Failed { step, why }) => {
            say(runner.socket(), &LauncherMessage::Failed { step, why }, &[])
        }
    };
    if told.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn open(spec: &DoorsSpec) -> Result<Vec<OwnedFd>, Failed> {
    enter(spec.pid).map_err(failed("enter the sandbox's network"))?;
    let devices = network::devices().map_err(failed("look at the sandbox's network"))?;
    if devices != ["lo"] {
        let why = format!("it has {}, and not loopback alone", devices.join(", "));
        return Err(failed("use the sandbox's network")(why));
    }
    network::without_ipv6().map_err(failed("switch IPv6 off"))?;
    network::lead_everything_here().map_err(failed("make the sandbox's network"))?;
    let sockets: Result<Vec<OwnedFd>, _> = spec.listeners.iter().map(network::open).collect();
    sockets.map_err(failed("open the gateway's sockets"))
}

/// Enters the network of process `pid`. Root may; somebody else only by way of the user
/// namespace that the network belongs to, if that is their own.
fn enter(pid: i32) -> io::Result<()> {
    let theirs = File::open(format!("/proc/{pid}/ns/net"))?;
    if is_same(&theirs, &File::open("/proc/self/ns/net")?)? {
        return Err(io::Error::other("it is the network that this process is in"));
    }
    if !geteuid().is_root() {
        let owner = File::from(kernel::owner_of_namespace(theirs.as_fd())?);
        if !is_same(&owner, &File::open("/proc/self/ns/user")?)? {
            move_into_link_name_space(owner.as_fd(), Some(LinkNameSpaceType::User))?;
        }
    }
    move_into_link_name_space(theirs.as_fd(), Some(LinkNameSpaceType::Network)).map_err(Into::into)
}

fn is_same(one: &File, other: &File) -> io::Result<bool> {
    let (one, other) = (one.metadata()?, other.metadata()?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}
