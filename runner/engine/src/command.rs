//! A command that runs, as its host sees it: what happens to it, and what can be
//! ordered.
//!
//! What it prints comes out of its spool, which the sandbox's first process writes
//! and nothing in the sandbox can reach. A word on the connection says that the
//! spool has grown; the end of the connection, that there is no more. Nobody is
//! stalled by a slow reader: it only reads later.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::Pin;
use std::thread;
use std::time::Duration;

use inside::passing;
use protocol::UserIds;
use protocol::init::{CommandOrder, CommandSpec, TerminalSize};
use protocol::spool::{HEADER_BYTES, MAX_PAYLOAD_BYTES, SpoolEnd, SpoolEvent};
use rustix::io::{pread, retry_on_intr};
use tokio::io::{AsyncRead, AsyncWriteExt as _};
use tokio::net::unix::pipe::Sender;
use tokio::sync::mpsc;

use crate::backend::{Chunk, OutputSide};
use crate::first_process::{self, CallError};

/// A command that was started.
#[derive(Debug)]
pub struct RunningCommand {
    pub events: mpsc::Receiver<CommandEvent>,
    pub orders: mpsc::UnboundedSender<CommandOrder>,
}

/// What happens to a command, and how long after its start.
#[derive(Clone, Debug)]
pub enum CommandEvent {
    /// It ended. The last event, unless the sandbox vanished before.
    Ended(SpoolEnd),
    Printed(Chunk, Duration),
    Resized(TerminalSize, Duration),
}

/// What a command reads.
pub type Input = Pin<Box<dyn AsyncRead + Send>>;

/// Starts a command whose output goes to a new file at `spool`.
pub fn start(
    socket: &Path,
    command: CommandSpec,
    spool: &Path,
    user: UserIds,
    input: Option<Input>,
) -> Result<RunningCommand, CallError> {
    let mut options = OpenOptions::new();
    let theirs = options.append(true).create_new(true).mode(0o600).open(spool)?;
    let (their_input, our_input) = first_process::pipe_for(user)?;
    let given = [their_input.as_fd(), theirs.as_fd()];
    let connection = first_process::run(socket, command, &given)?;
    if let Some(input) = input {
        tokio::spawn(feed(input, our_input));
    }
    Ok(follow(connection, SpoolReader::open(spool, 0)?)?)
}

/// Follows the command of a run that somebody else started, from `offset` in its
/// spool.
pub fn attach(socket: &Path, spool: &Path, offset: u64) -> io::Result<RunningCommand> {
    let reader = SpoolReader::open(spool, offset)?;
    match first_process::attach(socket) {
        Ok(connection) => follow(connection, reader),
        // It has ended: what it printed is there.
        Err(err) if err.says_nobody_is_there() => {
            let (tell, events) = mpsc::channel(EVENTS_AT_ONCE);
            let (orders, _) = mpsc::unbounded_channel();
            thread::Builder::new().spawn(move || pass_on(reader, &tell))?;
            Ok(RunningCommand { events, orders })
        }
        Err(err) => Err(io::Error::other(err)),
    }
}

/// Reads events until the connection ends, in a thread of its own: reading a file
/// blocks.
fn follow(connection: UnixStream, mut spool: SpoolReader) -> io::Result<RunningCommand> {
    let (tell, events) = mpsc::channel(EVENTS_AT_ONCE);
    let (orders, mut ordered) = mpsc::unbounded_channel();
    let reading = connection.try_clone()?;
    thread::Builder::new().spawn(move || {
        let mut words = BufReader::new(reading);
        loop {
            // Which word it is does not matter: the spool says the rest.
            let came = words.fill_buf().map_or(0, <[u8]>::len);
            words.consume(came);
            if !spool.pass_on(&tell) || came == 0 {
                return;
            }
        }
    })?;
    connection.set_nonblocking(false)?;
    thread::Builder::new().spawn(move || {
        while let Some(order) = ordered.blocking_recv() {
            // A command that is gone needs no order.
            let Ok(line) = passing::line(&order) else { return };
            if passing::send_all(&connection, &line, &[]).is_err() {
                return;
            }
        }
        // Whoever could order anything is gone: the first process hears so.
        connection.shutdown(std::net::Shutdown::Both).ok();
    })?;
    Ok(RunningCommand { events, orders })
}

fn pass_on(mut spool: SpoolReader, tell: &mpsc::Sender<CommandEvent>) {
    spool.pass_on(tell);
}

/// Passes what is typed into the command, until either ends.
async fn feed(mut input: Input, into: OwnedFd) {
    let Ok(mut into) = Sender::from_owned_fd(into) else { return };
    drop(tokio::io::copy(&mut input, &mut into).await);
    drop(into.shutdown().await);
}

/// A spool, read from its beginning or from an offset.
#[derive(Debug)]
pub struct SpoolReader {
    file: File,
    /// Where the buffer begins.
    offset: u64,
    buffer: Vec<u8>,
    /// How much of the buffer was read.
    read: usize,
}

impl SpoolReader {
    pub fn open(path: &Path, offset: u64) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, offset, buffer: Vec::new(), read: 0 })
    }

    /// The next event; nothing if there is none yet.
    pub fn next_event(&mut self) -> io::Result<Option<(SpoolEvent, Duration)>> {
        if let Some(event) = self.next_in_buffer()? {
            return Ok(Some(event));
        }
        // A frame that was not all there is read anew from its beginning: whoever wrote
        // it may have taken it back, and something else stands there.
        let begins = self.offset + self.read as u64;
        let mut piece = vec![0; PIECE_BYTES];
        let came = retry_on_intr(|| pread(&self.file, &mut *piece, begins))?;
        piece.truncate(came);
        (self.offset, self.buffer, self.read) = (begins, piece, 0);
        self.next_in_buffer()
    }

    fn next_in_buffer(&mut self) -> io::Result<Option<(SpoolEvent, Duration)>> {
        let unread = self.buffer.get(self.read..).unwrap_or_default();
        let parsed = SpoolEvent::parse(unread).map_err(io::Error::other)?;
        Ok(parsed.map(|(event, at, length)| {
            self.read += length;
            (event, at)
        }))
    }

    /// Passes on everything there is; whether there may be more.
    fn pass_on(&mut self, tell: &mpsc::Sender<CommandEvent>) -> bool {
        while let Ok(Some((event, at))) = self.next_event() {
            let chunk =
                |to, bytes: Vec<u8>| CommandEvent::Printed(Chunk { to, bytes: bytes.into() }, at);
            let event = match event {
                SpoolEvent::Error(bytes) => chunk(OutputSide::Err, bytes),
                SpoolEvent::Output(bytes) => chunk(OutputSide::Out, bytes),
                SpoolEvent::Resized(size) => CommandEvent::Resized(size, at),
                SpoolEvent::Ended(end) => CommandEvent::Ended(end),
            };
            let is_last = matches!(event, CommandEvent::Ended(_));
            if tell.blocking_send(event).is_err() || is_last {
                return false;
            }
        }
        true
    }
}

const EVENTS_AT_ONCE: usize = 16;
/// As much as the longest frame.
const PIECE_BYTES: usize = HEADER_BYTES + MAX_PAYLOAD_BYTES;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_frame_that_was_taken_back_hides_nothing_that_comes_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        let mut writer = OpenOptions::new().append(true).create_new(true).open(&path).unwrap();
        let event = |length| SpoolEvent::Output(vec![b'x'; length]);
        let frame = |length| event(length).frame(Duration::ZERO);
        writer.write_all(&frame(MAX_PAYLOAD_BYTES)).unwrap();
        let whole = writer.metadata().unwrap().len();
        let mut reader = SpoolReader::open(&path, 0).unwrap();
        let mut next = || reader.next_event().unwrap().map(|(event, _)| event);
        assert_eq!(next(), Some(event(MAX_PAYLOAD_BYTES)));
        // What follows is shorter than what was there, as long, and longer.
        for length in [10, 87, 1000] {
            let end = writer.metadata().unwrap().len();
            writer.write_all(&frame(5000)[..100]).unwrap();
            assert_eq!(next(), None, "it is torn");
            writer.set_len(end).unwrap();
            assert_eq!(next(), None, "it is gone");
            writer.write_all(&frame(5000)[..100]).unwrap();
            assert_eq!(next(), None);
            writer.set_len(end).unwrap();
            writer.write_all(&frame(length)).unwrap();
            assert_eq!(next(), Some(event(length)));
        }
        let mut from_there = SpoolReader::open(&path, whole).unwrap();
        assert_eq!(from_there.next_event().unwrap().unwrap().0, event(10));
    }
}
