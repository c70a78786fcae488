//! A terminal made inside the sandbox, and the command that has it.
//!
//! To have a terminal, a process must lead a session, and only a process itself
//! can begin one. So the command is started by way of our own program, which
//! does that and becomes the command. Its errors come back through what is its
//! standard error until then.

use std::fs::File;
use std::io::{self, PipeReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use protocol::init::{CommandEnd, TerminalSize};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{DumpableBehavior, Pid, Signal, kill_process_group, set_dumpable_behavior};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::command::{not_started, unstartable};

/// The end of a terminal that is outside.
#[derive(Debug)]
pub(super) struct Outside(pub(super) OwnedFd);

impl Outside {
    /// That it keeps its old size ends nothing.
    pub(super) fn resize(&self, size: TerminalSize) {
        let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.0, size).ok();
    }
}

/// Starts `words` with a terminal of its own.
pub(super) fn start(
    words: &[String],
    size: TerminalSize,
    with: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<(Child, Outside), CommandEnd> {
    let program = words.first().map(String::as_str).unwrap_or_default();
    let failed = |err: io::Error| no_terminal(program, &err);
    let (outside, inside) = open(size).map_err(failed)?;
    let (answer, told) = io::pipe().map_err(failed)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg("terminal").args(words);
    let again = inside.try_clone().map_err(failed)?;
    command.stdin(inside).stdout(again).stderr(told);
    let mut child = with(&mut command).spawn().map_err(failed)?;
    // The command holds our halves too, until it is dropped.
    drop(command);
    let end = match read_answer(answer, START_TIMEOUT) {
        Err(err) => failed(err),
        Ok(words) => match words.split_once(' ') {
            None => return Ok((child, outside)),
            Some((code, why)) => unstartable(code.parse().unwrap_or(126), why),
        },
    };
    // Nobody else reaps it before it is known to have started.
    kill_process_group(Pid::from_child(&child), Signal::KILL).ok();
    child.kill().and_then(|()| child.wait()).ok();
    Err(end)
}

fn no_terminal(program: &str, err: &io::Error) -> CommandEnd {
    unstartable(126, &format!("there is no terminal for `{program}`: {err}"))
}

/// Everything that is said, which is nothing if all went well. Whoever else holds the
/// other end is neither waited for without end nor listened to.
fn read_answer(mut answer: PipeReader, within: Duration) -> io::Result<String> {
    let deadline = Instant::now() + within;
    let mut said = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        let is_ready = poll(&mut [PollFd::new(&answer, PollFlags::IN)], timeout.as_ref())? > 0;
        if !is_ready || left.is_zero() || said.len() > MAX_ANSWER_BYTES {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut piece = [0; 4096];
        match answer.read(&mut piece)? {
            0 => return Ok(String::from_utf8_lossy(&said).into_owned()),
            length => said.extend(piece.get(..length).unwrap_or_default()),
        }
    }
}

fn open(size: TerminalSize) -> io::Result<(Outside, OwnedFd)> {
    // The first process must not get it as its own.
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let outside = openpt(flags)?;
    unlockpt(&outside)?;
    let inside = ioctl_tiocgptpeer(&outside, flags)?;
    let outside = Outside(outside);
    outside.resize(size);
    Ok((outside, inside))
}

/// Takes the terminal that is our input, and becomes the command. Returns only
/// if that failed.
pub fn take(words: &[String]) -> i32 {
    let Some((program, arguments)) = words.split_first() else { return 125 };
    // Until it is the command, nobody is to hold on to what we answer through.
    if set_dumpable_behavior(DumpableBehavior::NotDumpable).is_err() {
        return 125;
    }
    let end = match become_it(program, arguments) {
        Err((mut told, end)) => {
            if let CommandEnd::Unstartable { code, why } = &end {
                drop(write!(told, "{code} {why}"));
            }
            end
        }
        Ok(never) => match never {},
    };
    match end {
        CommandEnd::Unstartable { code, .. } => code.into(),
        _ => 125,
    }
}

fn become_it(
    program: &str,
    arguments: &[String],
) -> Result<std::convert::Infallible, (File, CommandEnd)> {
    // Closed by the very step that succeeds, which is how that is known.
    let told = io::stderr().as_fd().try_clone_to_owned();
    let told = told.map(File::from).unwrap_or_else(|_| nowhere());
    let prepared = rustix::process::setsid()
        .and_then(|_| rustix::process::ioctl_tiocsctty(io::stdin()))
        .map_err(io::Error::from)
        .and_then(|()| io::stdin().as_fd().try_clone_to_owned());
    let terminal = match prepared {
        Ok(terminal) => terminal,
        Err(err) => return Err((told, no_terminal(program, &err))),
    };
    let err = Command::new(program).args(arguments).stderr(Stdio::from(terminal)).exec();
    Err((told, not_started(program, &err)))
}

/// A place for words that nobody can hear.
fn nowhere() -> File {
    File::options().write(true).open("/dev/null").unwrap_or_else(|_| std::process::exit(126))
}

/// Less than whoever asked for the command waits for it.
const START_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_ANSWER_BYTES: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_not_waited_for_without_end_nor_read_without_end() {
        let (answer, told) = io::pipe().unwrap();
        let held = told.try_clone().unwrap();
        drop(told);
        let late = read_answer(answer, Duration::from_millis(50)).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        drop(held);

        let (answer, mut told) = io::pipe().unwrap();
        let talker = std::thread::spawn(move || while told.write_all(&[b'x'; 4096]).is_ok() {});
        assert!(read_answer(answer, Duration::from_secs(60)).is_err());
        talker.join().unwrap();

        let (answer, mut told) = io::pipe().unwrap();
        told.write_all(b"127 there is none").unwrap();
        drop(told);
        assert_eq!(read_answer(answer, Duration::from_secs(60)).unwrap(), "127 there is none");
    }
}
