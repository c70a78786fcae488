//! `sluice-launch sandbox`: a sandbox made of Linux namespaces.
//!
//! This half stays outside: it makes the process that will be the sandbox, says
//! who it is, opens for it what only the caller may open, and stays until it has
//! ended. The other half is [`super::confine`], which is the list of walls.
//!
//! When the runner is gone the socket to it ends, and the sandbox with it; when
//! this process is gone, the kernel ends the sandbox.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use protocol::launcher::{LauncherCommand, LauncherMessage, NamespaceSpec, SandboxSpec};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getegid, geteuid, kill_process, pidfd_open,
    waitid,
};
use rustix::thread::UnshareFlags;
use serde::de::DeserializeOwned;

use super::kernel::{self, Forked};
use super::memory::Memory;
use super::{USAGE, confine, forbidden, mounts};
use crate::passing;

/// Makes one sandbox and stays until it has ended.
pub fn main() -> ExitCode {
    let mut runner = match Runner::on_stdin() {
        Ok(runner) => runner,
        Err(_) => return ExitCode::from(USAGE),
    };
    let Some(ground) = runner.hear::<NamespaceSpec>() else { return ExitCode::from(USAGE) };
    let (session, groups) = (ground.session, ground.groups.clone());
    let said = match launch(&mut runner, ground) {
        Ok((sandbox, memory)) => {
            let (code, out_of_memory) = watch(&mut runner, sandbox, session, memory);
            LauncherMessage::Ended { code, out_of_memory }
        }
        Err(Failed { step, why }) => LauncherMessage::Failed { step, why },
    };
    if runner.say(&said).is_err() {
        // Nobody is there to remove them; whoever comes later need not look.
        for group in groups {
            drop(fs::remove_dir(group));
        }
    }
    ExitCode::SUCCESS
}

/// Why there is no sandbox.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) step: String,
    pub(super) why: String,
}

pub(super) fn failed<E: std::fmt::Display>(step: &str) -> impl FnOnce(E) -> Failed {
    move |why| Failed { step: step.to_owned(), why: why.to_string() }
}

fn launch(runner: &mut Runner, ground: NamespaceSpec) -> Result<(Pid, Option<Memory>), Failed> {
    // While they are in view: our mounts change from here on, beside who enters.
    let groups = open_groups(&ground.groups).map_err(failed("open its control groups"))?;
    let root = geteuid().is_root();
    if ground.user == 0 || ground.group == 0 || ground.host_user == 0 {
        return Err(failed("choose a user")("nothing in a sandbox is root"));
    }
    if root {
        // Root's groups open root's files. In there nobody could give them up.
        rustix::thread::set_thread_groups(&[]).map_err(failed("give up groups"))?;
        // Where the host's mounts are opened for the sandbox, which may not.
        kernel::unshare(UnshareFlags::NEWNS).map_err(failed("have mounts of our own"))?;
        mounts::keep_to_ourselves().map_err(failed("have mounts of our own"))?;
    }
    let (near, far) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(failed("speak to the sandbox"))?;

    let all = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS;
    let sandbox = match kernel::fork_into(all) {
        Ok(Forked::Child) => {
            drop(near);
            confine::confine(&far, runner.socket(), &ground);
        }
        Ok(Forked::Parent(sandbox)) => sandbox,
        Err(err) => return Err(failed("make namespaces")(forbidden::explain(&err))),
    };
    drop(far);
    // From here on a failure ends the sandbox too: its half sees ours close.
    let entering = enter(groups, sandbox);
    map(sandbox, &ground).map_err(failed("map its user"))?;
    passing::send_all(&near, b"mapped", &[]).map_err(failed("speak to the sandbox"))?;

    let order: SandboxSpec = match runner.hear_beside(&near)? {
        Some(order) => order,
        None => return Err(failed("hear the order")("the runner is gone")),
    };
    let sources = if root {
        mounts::open_sources(&order)
            .map_err(|mounts::At { path, source }| format!("{path}: {source}"))
            .map(Some)
            .map_err(failed("open what it will see"))?
    } else {
        None
    };
    hand_over(&near, &order, sources).map_err(failed("speak to the sandbox"))?;
    // It prepares meanwhile, and waits for this word before it does anything of what it was
    // made for: from then on it is counted.
    let entered = entering.join().unwrap_or_else(|_| Err("a thread broke".to_owned()));
    entered.map_err(failed("enter its control groups"))?;
    // If it has failed by now, what it said of that is what is told.
    drop(passing::send_all(&near, b"entered", &[]));
    let second_wall = started(&near)?;
    let pid = sandbox.as_raw_pid();
    runner
        .say(&LauncherMessage::Started { pid, second_wall })
        .map_err(failed("speak to the runner"))?;
    Ok((sandbox, order.watched_memory.map(Memory::new)))
}

/// Opens where processes are put into `groups`.
fn open_groups(groups: &[PathBuf]) -> Result<Vec<(PathBuf, File)>, String> {
    let open = |group: &PathBuf| {
        let opened = File::options().write(true).open(group.join("cgroup.procs"));
        let opened = opened.map_err(|err| format!("{}: {err}", group.display()))?;
        Ok((group.clone(), opened))
    };
    groups.iter().map(open).collect()
}

/// Puts the sandbox into its control groups. Beside everything else, because the
/// kernel waits for all processors before it moves anybody.
fn enter(groups: Vec<(PathBuf, File)>, sandbox: Pid) -> JoinHandle<Result<(), String>> {
    thread::spawn(move || {
        for (group, mut processes) in groups {
            processes
                .write_all(sandbox.as_raw_pid().to_string().as_bytes())
                .map_err(|err| format!("{}: {err}", group.display()))?;
        }
        Ok(())
    })
}

/// One user and one group, and nobody else.
fn map(sandbox: Pid, ground: &NamespaceSpec) -> io::Result<()> {
    let NamespaceSpec { user, group, host_user, .. } = ground;
    let of = |name: &str| format!("/proc/{}/{name}", sandbox.as_raw_pid());
    // Before the groups, or the kernel would not let us map any.
    fs::write(of("setgroups"), "deny")?;
    let (ours, our_group) = (geteuid(), getegid());
    // Root is mapped to nothing: in there it is a number nobody has.
    let (outer_user, outer_group) = match ours.is_root() {
        true => (*host_user, *group),
        false => (ours.as_raw(), our_group.as_raw()),
    };
    fs::write(of("gid_map"), format!("{group} {outer_group} 1"))?;
    fs::write(of("uid_map"), format!("{user} {outer_user} 1"))
}

/// The order, and the mounts that were opened for it.
fn hand_over(
    near: &OwnedFd,
    order: &SandboxSpec,
    sources: Option<Vec<Option<OwnedFd>>>,
) -> io::Result<()> {
    let paper = rustix::fs::memfd_create(c"order", MemfdFlags::CLOEXEC)?;
    let opened = sources.is_some();
    let sources = sources.unwrap_or_default();
    let present: Vec<bool> = sources.iter().map(Option::is_some).collect();
    let written = (order, opened.then_some(&present));
    File::from(paper.try_clone()?).write_all(&serde_json::to_vec(&written)?)?;
    passing::send_all(near, b"order", &[paper.as_fd()])?;
    let fds: Vec<BorrowedFd<'_>> = sources.iter().flatten().map(AsFd::as_fd).collect();
    for some in fds.chunks(passing::MAX_DESCRIPTORS) {
        passing::send_all(near, b"mounts", some)?;
    }
    Ok(())
}

/// What the sandbox's half said before it became the first process, or why it
/// did not.
fn started(near: &OwnedFd) -> Result<String, Failed> {
    let mut second_wall = String::new();
    loop {
        let mut buffer = vec![0; 16 * 1024];
        let length = passing::receive(near, &mut buffer, &mut Vec::new())
            .map_err(failed("hear from the sandbox"))?;
        let packet = buffer.get(..length).unwrap_or_default();
        match serde_json::from_slice(packet) {
            // Its end closes by itself when it becomes another program.
            Err(_) if packet.is_empty() && !second_wall.is_empty() => return Ok(second_wall),
            Err(err) if packet.is_empty() => {
                return Err(failed("confine it")(format!("it ended on the way ({err})")));
            }
            Err(err) => return Err(failed("hear from the sandbox")(err)),
            Ok(Said::Failed { step, why }) => return Err(Failed { step, why }),
            Ok(Said::SecondWall(made)) => second_wall = made,
        }
    }
}

/// From the half inside to this one.
#[derive(Debug, serde::Deserialize, serde::Serialize)]
pub(super) enum Said {
    Failed { step: String, why: String },
    SecondWall(String),
}

/// Stays until the sandbox has ended; its exit code as a shell would say it, and
/// whether it was ended for want of memory.
fn watch(
    runner: &mut Runner,
    sandbox: Pid,
    session: bool,
    mut memory: Option<Memory>,
) -> (i32, bool) {
    let ended = pidfd_open(sandbox, PidfdFlags::empty());
    let (mut listening, mut out_of_memory) = (true, false);
    if let Ok(ended) = &ended {
        loop {
            let pause = memory.as_ref().map(Memory::pause);
            match ready(ended, if listening { Some(runner.socket()) } else { None }, pause) {
                Readiness::Ended => break,
                Readiness::Nobody => {}
                Readiness::Other => match runner.hear::<LauncherCommand>() {
                    Some(LauncherCommand::Kill) => end(sandbox),
                    // It is for another word.
                    Some(LauncherCommand::Relay) => {}
                    // It goes on by itself.
                    None if session => listening = false,
                    None => {
                        listening = false;
                        end(sandbox);
                    }
                },
            }
            if memory.as_mut().is_some_and(|memory| memory.is_too_much(sandbox)) {
                (memory, out_of_memory) = (None, true);
                end(sandbox);
            }
        }
    }
    loop {
        match waitid(WaitId::Pid(sandbox), WaitIdOptions::EXITED) {
            Ok(Some(status)) => {
                let signal = status.terminating_signal().map(|number| 128 + number);
                return (status.exit_status().or(signal).unwrap_or(-1), out_of_memory);
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return (-1, out_of_memory),
        }
    }
}

/// Who has something for us.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Readiness {
    Ended,
    /// It took too long.
    Nobody,
    Other,
}

/// Waits until `ended` is ready, or `other` if one is given, or for so long.
fn ready(ended: &OwnedFd, other: Option<BorrowedFd<'_>>, pause: Option<Duration>) -> Readiness {
    let mut watched = vec![PollFd::new(ended, PollFlags::IN)];
    watched.extend(other.map(|other| PollFd::from_borrowed_fd(other, PollFlags::IN)));
    let pause = pause.and_then(|pause| Timespec::try_from(pause).ok());
    loop {
        match poll(&mut watched, pause.as_ref()) {
            Ok(0) => return Readiness::Nobody,
            Ok(_) if watched.first().is_none_or(|fd| !fd.revents().is_empty()) => {
                return Readiness::Ended;
            }
            Ok(_) => return Readiness::Other,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Readiness::Ended,
        }
    }
}

/// The first process of a PID namespace takes every other with it.
fn end(sandbox: Pid) {
    // That it has ended by itself meanwhile is as good.
    kill_process(sandbox, Signal::KILL).ok();
}

/// The socket to whoever started us.
#[derive(Debug)]
pub(super) struct Runner {
    lines: BufReader<File>,
}

impl Runner {
    /// Takes our standard input for it, and leaves nothing in its place.
    pub(super) fn on_stdin() -> io::Result<Self> {
        Ok(Self { lines: BufReader::new(File::from(take_stdin()?)) })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.lines.get_ref().as_fd()
    }

    /// The next line; nothing when the other end is gone or speaks nonsense.
    pub(super) fn hear<T: DeserializeOwned>(&mut self) -> Option<T> {
        let mut line = String::new();
        let length = self.lines.read_line(&mut line).ok()?;
        if length == 0 { None } else { serde_json::from_str(&line).ok() }
    }

    /// The same, unless the sandbox has something to say before: then it failed.
    fn hear_beside<T: DeserializeOwned>(&mut self, near: &OwnedFd) -> Result<Option<T>, Failed> {
        if self.lines.buffer().is_empty()
            && ready(near, Some(self.socket()), None) == Readiness::Ended
        {
            started(near)?;
        }
        Ok(self.hear())
    }

    fn say(&self, report: &LauncherMessage) -> io::Result<()> {
        say(self.socket(), report, &[])
    }
}

/// Our standard input, with nothing left in its place.
pub(super) fn take_stdin() -> io::Result<OwnedFd> {
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let nothing = File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    Ok(socket)
}

/// One line to the runner.
pub(super) fn say(
    runner: BorrowedFd<'_>,
    report: &LauncherMessage,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    debug_assert!(runner.as_raw_fd() > 2, "standard streams are the sandbox's");
    passing::send_all(runner, &line, fds)
}
