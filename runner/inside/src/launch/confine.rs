//! The walls, one after the other.
//!
//! [`walls`] is the list. This process was made in a user, mount, PID, network,
//! IPC and host name namespace of its own, and has every capability in them and
//! none outside. Step by step it gives up what it no longer needs, and at the
//! end it becomes the sandbox's first process. A step that fails ends it:
//! nothing ever runs behind half of the walls.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, exit};

use protocol::launcher::{LauncherMessage, NamespaceSpec, SandboxSpec};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::UnshareFlags;

use super::sandbox::{Failed, Said, failed, say};
use super::{SECOND_WALL, filter, kernel, landlock_wall, mounts, network, pools, privileges};
use crate::passing;

/// Becomes the first process of the sandbox, or says why not and ends.
pub(super) fn confine(launcher: &OwnedFd, runner: BorrowedFd<'_>, ground: &NamespaceSpec) -> ! {
    let Err(Failed { step, why }) = walls(launcher, runner, ground);
    let said = serde_json::to_vec(&Said::Failed { step, why }).unwrap_or_default();
    drop(passing::send_all(launcher, &said, &[]));
    exit(1)
}

fn walls(
    launcher: &OwnedFd,
    runner: BorrowedFd<'_>,
    ground: &NamespaceSpec,
) -> Result<Infallible, Failed> {
    // Whatever happens to the launcher, nothing goes on unwatched.
    end_with_the_launcher()?;

    // Until the launcher has said who we are in here, we are nobody.
    hear(launcher, b"mapped")?;
    privileges::become_user(ground.user, ground.group).map_err(failed("become its user"))?;
    // To become another user makes the kernel forget it.
    end_with_the_launcher()?;

    // IPv6 first: loopback would get an address of it when it comes up.
    network::without_ipv6().map_err(failed("switch IPv6 off"))?;
    if !ground.doors.is_empty() {
        network::lead_everything_here().map_err(failed("make its network"))?;
        let opened: Result<Vec<OwnedFd>, _> = ground.doors.iter().map(network::open).collect();
        let opened = opened.map_err(failed("open the gateway's sockets"))?;
        let fds: Vec<BorrowedFd<'_>> = opened.iter().map(OwnedFd::as_fd).collect();
        // Ours close here: a gateway that is gone leaves nobody listening.
        say(runner, &LauncherMessage::ListenersOpened, &fds).map_err(failed("hand out sockets"))?;
    }

    // The runner now starts the gateway, and knows the rest when that serves.
    let (order, opened) = hear_order(launcher)?;

    // While the launcher waits for the kernel to put us into our groups.
    rustix::system::sethostname(order.hostname.as_bytes()).map_err(failed("name its host"))?;
    let build = "build its root";
    mounts::keep_to_ourselves().map_err(failed(build))?;
    let told = |mounts::At { path, source }: mounts::At| format!("{path}: {source}");
    let sources = match opened {
        Some(opened) => opened,
        None => mounts::open_sources(&order).map_err(told).map_err(failed(build))?,
    };
    // Compiled before anything is given up, so that only the installing is left.
    let filter = filter::compile().map_err(failed("compile the filter of system calls"))?;

    // Only when we are in our groups: the root of this namespace is where we are.
    hear(launcher, b"entered")?;
    kernel::unshare(UnshareFlags::NEWCGROUP).map_err(failed("have control groups of its own"))?;
    // Namespaces are among it, and that was the last.
    pools::bound().map_err(failed("bound what the kernel counts for a user"))?;
    let root = mounts::build(&order, sources).map_err(told).map_err(failed(build))?;
    mounts::enter(&root).map_err(failed("enter its root"))?;
    drop(root);

    silence().map_err(failed("close its streams"))?;

    privileges::limit(&order.limits).map_err(failed("limit what a process takes"))?;
    // Names paths of the new root, so not before it is entered.
    let wall = landlock_wall::build(&order.writable);

    // After the last thing that takes a capability.
    privileges::give_up_everything().map_err(failed("give up capabilities"))?;
    end_with_the_launcher()?;
    rustix::process::chdir(order.directory.as_str()).map_err(failed("enter its directory"))?;
    let said = serde_json::to_vec(&Said::SecondWall(wall.clone())).map_err(failed("speak"))?;
    passing::send_all(launcher, &said, &[]).map_err(failed("speak"))?;
    kernel::close_on_exec_from(3).map_err(failed("close what is open"))?;

    kernel::heed_signals();

    // The very last: it refuses most of what was done above.
    filter::install(&filter).map_err(failed("filter system calls"))?;
    let environment = order.environment.iter().map(|(name, value)| (name, value));
    let err = Command::new(&order.program)
        .args(order.arguments.iter().map(OsString::from))
        .env_clear()
        .envs(environment)
        .env(SECOND_WALL, wall)
        .exec();
    Err(failed("start its first process")(err))
}

fn end_with_the_launcher() -> Result<(), Failed> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed("end with the launcher"))
}

fn hear(launcher: &OwnedFd, word: &[u8]) -> Result<Vec<OwnedFd>, Failed> {
    let step = "hear from the launcher";
    let mut buffer = [0; 16];
    let mut fds = Vec::new();
    let length = passing::receive(launcher, &mut buffer, &mut fds).map_err(failed(step))?;
    if buffer.get(..length) == Some(word) { Ok(fds) } else { Err(failed(step)("it is gone")) }
}

/// The order, and the mounts that were opened for it if that is the launcher's.
type Heard = (SandboxSpec, Option<Vec<Option<OwnedFd>>>);

fn hear_order(launcher: &OwnedFd) -> Result<Heard, Failed> {
    let step = "hear the order";
    let paper = hear(launcher, b"order")?.pop().ok_or_else(|| failed(step)("there is none"))?;
    let mut text = Vec::new();
    let mut paper = File::from(paper);
    paper.rewind().and_then(|()| paper.read_to_end(&mut text)).map_err(failed(step))?;
    let (order, present): (SandboxSpec, Option<Vec<bool>>) =
        serde_json::from_slice(&text).map_err(failed(step))?;
    let Some(present) = present else { return Ok((order, None)) };
    let wanted = present.iter().filter(|there| **there).count();
    let mut fds = Vec::new();
    while fds.len() < wanted {
        fds.extend(hear(launcher, b"mounts")?);
    }
    let mut fds = fds.into_iter();
    let opened = present.iter().map(|there| if *there { fds.next() } else { None });
    Ok((order, Some(opened.collect())))
}

/// Leaves the first process nothing to read or print to: what it has to say goes
/// over its socket, and commands have streams of their own.
fn silence() -> io::Result<()> {
    // A session of its own, so that no process outside shares its terminal.
    rustix::process::setsid()?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing).map_err(Into::into)
}
