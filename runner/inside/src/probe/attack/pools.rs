//! What the kernel has one number of for a whole user, or for the whole machine.
//!
//! Each attempt takes until it is refused, or until it has as many as would hurt
//! somebody, keeps them for a moment, so that whoever needs one outside misses it,
//! and lets go. It has succeeded if next to nothing would be left for anybody else
//! who is the same user; whether anybody is, is not seen from in here.

use std::fs;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use rustix::fs::inotify;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with};
use rustix::process::{Resource, getrlimit};
use rustix::pty::{OpenptFlags, openpt};

use super::{Attack, AttackVerdict, Targets};
use crate::launch::raw::{Call, attempt};

pub(super) const ATTACKS: &[Attack] = &[
    attack("aio-contexts", "a context of the machine's asynchronous input and output", |_| {
        AttackVerdict::unless_let_in(attempt(Call::IoSetup))
    }),
    attack(INOTIFY, "every inotify instance of its user", inotify_instances),
    attack(PIPES, "every page that its user may have in pipes", pipe_pages),
    attack(TERMINALS, "hundreds of terminals", terminals),
    attack("queued-signals", "as many queued signals as a user has", |_| {
        bounded(Resource::Sigpending, 16_384)
    }),
    attack("message-queues", "as many bytes in message queues as a user has", |_| {
        bounded(Resource::Msgqueue, 800_000)
    }),
];

pub const INOTIFY: &str = "inotify-instances";
pub const PIPES: &str = "pipe-pages";
pub const TERMINALS: &str = "terminals";

/// What somebody else may need at any moment, and whether it can be had: one of
/// each, let go at once.
pub fn ask() -> [(&'static str, bool); 4] {
    let contexts = number("/proc/sys/fs/aio-nr").zip(number("/proc/sys/fs/aio-max-nr"));
    [
        ("aio", contexts.is_none_or(|(taken, most)| taken < most)),
        ("inotify", inotify::init(inotify::CreateFlags::CLOEXEC).is_ok()),
        ("pipes", usual_pipe().is_ok()),
        ("terminals", terminal().is_ok()),
    ]
}

/// Asks for ever, and says what was missed, once each.
pub(super) fn keep_asking(mut say: impl FnMut(&str)) {
    let mut missed = Vec::new();
    loop {
        for (pool, had) in ask() {
            if !had && !missed.contains(&pool) {
                missed.push(pool);
                say(&format!("{MISSED}{pool}"));
            }
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// What the line begins with.
pub const MISSED: &str = "missed ";

/// The names that [`ask`] answers for.
pub const ASKED: [&str; 4] = ["aio", "inotify", "pipes", "terminals"];

const fn attack(
    name: &'static str,
    tried: &'static str,
    attempt: fn(&Targets) -> AttackVerdict,
) -> Attack {
    super::attack("H15", name, tried, attempt)
}

fn inotify_instances(_: &Targets) -> AttackVerdict {
    let most = number("/proc/sys/fs/inotify/max_user_instances").unwrap_or(128);
    let taken = take(most, || inotify::init(inotify::CreateFlags::CLOEXEC));
    judge(taken, most / 2, most)
}

fn terminals(_: &Targets) -> AttackVerdict {
    let most = number("/proc/sys/kernel/pty/max").unwrap_or(4096);
    let many = 200;
    judge(take(many, terminal), many - 1, most)
}

fn terminal() -> rustix::io::Result<OwnedFd> {
    openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)
}

/// Who has more pages than a user may gets pipes that hold next to nothing.
fn pipe_pages(_: &Targets) -> AttackVerdict {
    let most = number("/proc/sys/fs/pipe-user-pages-soft").unwrap_or(16_384);
    if most == 0 {
        return AttackVerdict::Untried("this machine counts no pages of pipes".to_owned());
    }
    let largest = number("/proc/sys/fs/pipe-max-size").unwrap_or(1 << 20);
    let size = usize::try_from(largest).unwrap_or(1 << 20);
    // Twice as many as there are, in the largest pipes and then in usual ones.
    let many = 2 * most / (largest / PAGE).max(1) + 64;
    let taken = take(many, || {
        let (pipe, _) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setpipe_size(&pipe, size).or_else(|_| fcntl_getpipe_size(&pipe))?;
        if fcntl_getpipe_size(&pipe)? < USUAL_PIPE { Err(Errno::DQUOT) } else { Ok(pipe) }
    });
    match taken < many {
        true => AttackVerdict::broken(format_args!("all {most} of its user, in {taken} pipes")),
        false => AttackVerdict::held(format_args!("{taken} pipes, and there were more")),
    }
}

fn usual_pipe() -> rustix::io::Result<()> {
    let (pipe, _) = pipe_with(PipeFlags::CLOEXEC)?;
    if fcntl_getpipe_size(&pipe)? < USUAL_PIPE { Err(Errno::DQUOT) } else { Ok(()) }
}

const USUAL_PIPE: usize = 65_536;
const PAGE: u64 = 4096;

/// As many as there are to be had, up to `most`, for a moment.
fn take(most: u64, mut one: impl FnMut() -> rustix::io::Result<OwnedFd>) -> u64 {
    let mut taken = Vec::new();
    while (taken.len() as u64) < most {
        match one() {
            Ok(fd) => taken.push(fd),
            Err(_) => break,
        }
    }
    thread::sleep(FELT);
    taken.len() as u64
}

/// Long enough for somebody who asks a hundred times a second.
const FELT: Duration = Duration::from_millis(300);

fn judge(taken: u64, bearable: u64, of: u64) -> AttackVerdict {
    match taken {
        0 => AttackVerdict::Untried("not one is to be had in here".to_owned()),
        taken if taken <= bearable => {
            AttackVerdict::held(format_args!("{taken} of {of}, and no more"))
        }
        taken => AttackVerdict::broken(format_args!("{taken} of {of} were taken")),
    }
}

fn bounded(resource: Resource, too_many: u64) -> AttackVerdict {
    match getrlimit(resource).maximum {
        Some(most) if most < too_many => AttackVerdict::held(format_args!("{most}, and no more")),
        Some(most) => AttackVerdict::broken(format_args!("{most} are permitted")),
        None => AttackVerdict::broken("there is no limit"),
    }
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
