//! The host's half of a session's socket.
//!
//! Connecting, asking and the first answer take a moment and are done without a
//! runtime. What answers is our own program, in a place that is not ours: lines
//! are short, facts are few, and nothing is waited for without end.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::init::passing::{receive_line, send_all};
use crate::init::wire::ask::{Ask, Command, Streams};
use crate::init::wire::{End, Report};
use crate::plan::UserIds;

/// Whether a session lives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    /// It does, and so many commands run.
    Alive { commands: u64 },
    /// Nobody listens any more.
    Gone,
    /// Somebody listens and does not answer: it is frozen, or very busy.
    Silent,
}

/// A command that has begun, and the ends of its streams that are ours.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) link: UnixStream,
    pub(super) streams: Ends,
}

#[derive(Debug)]
pub(super) enum Ends {
    Pipes { input: OwnedFd, output: OwnedFd, errors: OwnedFd },
    Terminal(OwnedFd),
}

/// Why a command has not begun.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("the session does not answer; `sluice session ls` says how it is")]
    Io(#[from] io::Error),
    #[error("the command is longer than the kernel takes")]
    Long,
    #[error("the session answered with something else")]
    NotAnAnswer,
    /// With an exit code, as from a shell.
    #[error("{why}")]
    Unstartable { code: u8, why: String },
}

/// Asks whether anybody is there.
pub(super) fn hello(socket: &Path) -> Answer {
    let asked = ask(socket, &Ask::Hello, &[]);
    let stream = match asked {
        Ok(stream) => stream,
        Err(CallError::Io(err)) if is_nobody(&err) => return Answer::Gone,
        Err(_) => return Answer::Silent,
    };
    match facts(&stream, ANSWER) {
        Ok((facts, Report::Ready)) => {
            let commands = facts.get("commands").and_then(|number| number.parse().ok());
            Answer::Alive { commands: commands.unwrap_or_default() }
        }
        Ok(_) => Answer::Silent,
        // It ended while we asked.
        Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => Answer::Gone,
        Err(err) if is_nobody(&err) => Answer::Gone,
        Err(_) => Answer::Silent,
    }
}

fn is_nobody(err: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound};
    matches!(err.kind(), ConnectionRefused | ConnectionReset | NotFound)
}

/// Asks everything in the sandbox to end, and then the sandbox. What it took,
/// if it said so in time.
pub(super) fn end(socket: &Path, within: Duration) -> Option<BTreeMap<String, String>> {
    let stream = ask(socket, &Ask::End, &[]).ok()?;
    match facts(&stream, within) {
        Ok((facts, Report::Ended(_))) => Some(facts),
        Ok(_) | Err(_) => None,
    }
}

/// Begins a command, whose pipes belong to `user` where we may give them away:
/// programs open them again, as `/dev/stdout`.
pub(super) fn run(socket: &Path, command: Command, user: UserIds) -> Result<Begun, CallError> {
    match command.streams {
        Streams::Pipes => {
            let (theirs_in, ours_in) = io::pipe()?;
            let (ours_out, theirs_out) = io::pipe()?;
            let (ours_err, theirs_err) = io::pipe()?;
            let given = [theirs_in.as_fd(), theirs_out.as_fd(), theirs_err.as_fd()];
            if rustix::process::geteuid().is_root() {
                for pipe in given {
                    std::os::unix::fs::fchown(pipe, Some(user.uid), Some(user.gid))?;
                }
            }
            let (link, _) = begin(socket, command, &given)?;
            let (input, output) = (ours_in.into(), ours_out.into());
            Ok(Begun { link, streams: Ends::Pipes { input, output, errors: ours_err.into() } })
        }
        Streams::Terminal(_) => {
            let (link, came) = begin(socket, command, &[])?;
            let [terminal] = <[OwnedFd; 1]>::try_from(came).map_err(|_| CallError::NotAnAnswer)?;
            Ok(Begun { link, streams: Ends::Terminal(terminal) })
        }
    }
}

fn begin(
    socket: &Path,
    command: Command,
    given: &[BorrowedFd<'_>],
) -> Result<(UnixStream, Vec<OwnedFd>), CallError> {
    let stream = ask(socket, &Ask::Run(command), given)?;
    stream.set_read_timeout(Some(STARTING))?;
    let (line, came) = receive_line(&stream)?;
    match Report::parse(&line) {
        Ok(Report::Started) => {
            stream.set_read_timeout(None)?;
            Ok((stream, came))
        }
        Ok(Report::Ended(End::Unstartable { code, why })) => {
            Err(CallError::Unstartable { code, why })
        }
        Ok(_) | Err(_) => Err(CallError::NotAnAnswer),
    }
}

fn ask(socket: &Path, ask: &Ask, given: &[BorrowedFd<'_>]) -> Result<UnixStream, CallError> {
    let frame = ask.frame().ok_or(CallError::Long)?;
    let stream = UnixStream::connect(socket)?;
    stream.set_write_timeout(Some(ANSWER))?;
    send_all(&stream, &frame, given)?;
    Ok(stream)
}

/// Facts, and what comes after them.
fn facts(stream: &UnixStream, within: Duration) -> io::Result<(BTreeMap<String, String>, Report)> {
    stream.set_read_timeout(Some(within))?;
    let mut facts = BTreeMap::new();
    while facts.len() < MOST_FACTS {
        let (line, _) = receive_line(stream)?;
        match Report::parse(&line).map_err(io::Error::other)? {
            Report::Fact { name, value } => facts.insert(name, value),
            other => return Ok((facts, other)),
        };
    }
    Err(io::Error::other("more facts than there are"))
}

const MOST_FACTS: usize = 64;
/// A first process that lives answers in no time; on a busy machine, in this.
const ANSWER: Duration = Duration::from_secs(3);
const STARTING: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// What `hello` makes of somebody who answers with these bytes.
    fn answered(bytes: &'static [u8]) -> Answer {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(bytes).unwrap();
            // Until the other side has had enough.
            std::io::copy(&mut stream, &mut std::io::sink()).ok();
        });
        let answer = hello(&path);
        answering.join().unwrap();
        answer
    }

    #[test]
    fn only_an_answer_is_a_sign_of_life() {
        assert_eq!(answered(b"fact commands 3\nready\n"), Answer::Alive { commands: 3 });
        assert_eq!(answered(b"ended exited 0\n"), Answer::Silent);
        assert_eq!(answered(b"nonsense\n"), Answer::Silent);
        assert_eq!(answered(&[b'x'; 70_000]), Answer::Silent);

        let home = tempfile::tempdir().unwrap();
        assert_eq!(hello(&home.path().join("none")), Answer::Gone);
        let left = home.path().join("left");
        drop(UnixListener::bind(&left).unwrap());
        assert_eq!(hello(&left), Answer::Gone, "the file stays, nobody listens");
    }

    #[test]
    fn somebody_who_listens_and_says_nothing_is_silent_not_gone() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        assert_eq!(hello(&path), Answer::Silent);
    }
}
