//! What the host asks of a sandbox's first process, over its socket.
//!
//! Connecting, asking and the first answer take a moment and are done without a
//! runtime. What answers is our own program, in a place that is not ours: lines are
//! short, facts are few, and nothing is waited for without end.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use inside::passing::{frame, receive_line, send_all};
use protocol::UserIds;
use protocol::init::{CommandEnd, CommandSpec, InitMessage, InitRequest};

/// Whether a sandbox lives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answer {
    /// It does, and so many commands run.
    Alive { commands: u64 },
    /// Nobody listens any more.
    Gone,
    /// Somebody listens and does not answer: it is frozen, or very busy.
    Silent,
}

/// Why a command has not begun.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("the sandbox does not answer")]
    Io(#[from] io::Error),
    #[error("the command is longer than the kernel takes")]
    Long,
    #[error("the sandbox answered with something else")]
    NotAnAnswer,
    /// With an exit code, as from a shell.
    #[error("{why}")]
    Unstartable { code: u8, why: String },
}

/// Where the first process answers, in the folder of its run.
pub fn socket_in(folder: &Path) -> PathBuf {
    folder.join("session.sock")
}

impl CallError {
    /// The sandbox has ended, or ended while it was asked.
    pub fn says_nobody_is_there(&self) -> bool {
        let Self::Io(err) = self else { return false };
        is_nobody(err) || err.kind() == io::ErrorKind::UnexpectedEof
    }
}

/// Asks whether anybody is there.
pub fn hello(socket: &Path) -> Answer {
    let stream = match ask(socket, &InitRequest::Hello, &[]) {
        Ok(stream) => stream,
        Err(CallError::Io(err)) if is_nobody(&err) => return Answer::Gone,
        Err(_) => return Answer::Silent,
    };
    match facts(&stream, ANSWER_TIMEOUT) {
        Ok((facts, InitMessage::Ready)) => {
            let commands = facts.get("commands").and_then(|number| number.parse().ok());
            Answer::Alive { commands: commands.unwrap_or_default() }
        }
        Ok(_) => Answer::Silent,
        // It ended while we asked, or it is of another version and hung up on us.
        Err(_) if UnixStream::connect(socket).is_err_and(|err| is_nobody(&err)) => Answer::Gone,
        Err(_) => Answer::Silent,
    }
}

fn is_nobody(err: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound};
    matches!(err.kind(), ConnectionRefused | ConnectionReset | NotFound)
}

/// Asks everything in the sandbox to end, and then the sandbox. What it took,
/// if it said so in time.
pub fn end(socket: &Path, within: Duration) -> Option<BTreeMap<String, String>> {
    let stream = ask(socket, &InitRequest::End, &[]).ok()?;
    match facts(&stream, within) {
        Ok((facts, InitMessage::Ended(_))) => Some(facts),
        Ok(_) | Err(_) => None,
    }
}

/// Begins a command with these descriptors; the connection it is spoken about on.
pub fn run(
    socket: &Path,
    command: CommandSpec,
    given: &[BorrowedFd<'_>],
) -> Result<UnixStream, CallError> {
    if command.words.iter().any(|word| word.contains('\0')) {
        let why = "an argument holds a zero byte".to_owned();
        return Err(CallError::Unstartable { code: 126, why });
    }
    let stream = ask(socket, &InitRequest::Run(command), given)?;
    started(stream)
}

/// A connection about the command of a run that was started before.
pub fn attach(socket: &Path) -> Result<UnixStream, CallError> {
    started(ask(socket, &InitRequest::Attach, &[])?)
}

fn started(stream: UnixStream) -> Result<UnixStream, CallError> {
    stream.set_read_timeout(Some(START_TIMEOUT))?;
    match receive_line(&stream)?.0 {
        InitMessage::Started => {
            stream.set_read_timeout(None)?;
            Ok(stream)
        }
        InitMessage::Ended(CommandEnd::Unstartable { code, why }) => {
            Err(CallError::Unstartable { code, why })
        }
        _ => Err(CallError::NotAnAnswer),
    }
}

/// A pipe into a command, whose end belongs to `user` where we may give it away:
/// programs open it again, as `/dev/stdin`.
pub fn pipe_for(user: UserIds) -> io::Result<(OwnedFd, OwnedFd)> {
    let (theirs, ours) = io::pipe()?;
    give(theirs.as_fd(), user)?;
    Ok((theirs.into(), ours.into()))
}

/// Gives one end of a pipe to `user`, where we may.
pub fn give(pipe: BorrowedFd<'_>, user: UserIds) -> io::Result<()> {
    match rustix::process::geteuid().is_root() {
        true => std::os::unix::fs::fchown(pipe, Some(user.uid), Some(user.gid)),
        false => Ok(()),
    }
}

fn ask(
    socket: &Path,
    request: &InitRequest,
    given: &[BorrowedFd<'_>],
) -> Result<UnixStream, CallError> {
    let frame = frame(request).map_err(|_| CallError::Long)?;
    let stream = UnixStream::connect(socket)?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    send_all(&stream, &frame, given)?;
    Ok(stream)
}

/// Facts, and what comes after them.
pub fn facts(
    stream: &UnixStream,
    within: Duration,
) -> io::Result<(BTreeMap<String, String>, InitMessage)> {
    stream.set_read_timeout(Some(within))?;
    let mut facts = BTreeMap::new();
    while facts.len() < MAX_FACTS {
        match receive_line(stream)?.0 {
            InitMessage::Fact { name, value } => drop(facts.insert(name, value)),
            other => return Ok((facts, other)),
        }
    }
    Err(io::Error::other("more facts than there are"))
}

const MAX_FACTS: usize = 64;
/// A first process that lives answers in no time; on a busy machine, in this.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
const START_TIMEOUT: Duration = Duration::from_secs(30);

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
        assert_eq!(
            answered(
                concat!(r#"{"fact":{"name":"commands","value":"3"}}"#, "\n\"ready\"\n").as_bytes()
            ),
            Answer::Alive { commands: 3 }
        );
        assert_eq!(answered(b"{\"ended\":{\"exited\":0}}\n"), Answer::Silent);
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
