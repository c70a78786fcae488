//! A terminal made inside the sandbox, and the command that has it.
//!
//! To have a terminal, a process must lead a session, and only a process itself
//! can begin one. So the command is started by way of our own program, which
//! does that and becomes the command. Its errors come back through what is its
//! standard error until then.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use protocol::init::{CommandEnd, TerminalSize};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::command::unstartable;

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
    let failed = |err: io::Error| CommandEnd::Unstartable {
        code: 126,
        why: format!("there is no terminal for `{program}`: {err}"),
    };
    let (outside, inside) = open(size).map_err(failed)?;
    let (mut answer, told) = io::pipe().map_err(failed)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg("terminal").args(words);
    let again = inside.try_clone().map_err(failed)?;
    command.stdin(inside).stdout(again).stderr(told);
    let child = with(&mut command).spawn().map_err(failed)?;
    // The command holds our halves too, until it is dropped.
    drop(command);
    let mut words = String::new();
    answer.read_to_string(&mut words).map_err(failed)?;
    match words.split_once(' ') {
        None => Ok((child, outside)),
        Some((code, why)) => {
            Err(CommandEnd::Unstartable { code: code.parse().unwrap_or(126), why: why.to_owned() })
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
        Err(err) => {
            let why = format!("there is no terminal for `{program}`: {err}");
            return Err((told, CommandEnd::Unstartable { code: 126, why }));
        }
    };
    let err = Command::new(program).args(arguments).stderr(Stdio::from(terminal)).exec();
    Err((told, unstartable(program, &err)))
}

/// A place for words that nobody can hear.
fn nowhere() -> File {
    File::options().write(true).open("/dev/null").unwrap_or_else(|_| std::process::exit(126))
}
