//! One command: started, watched over, recorded, and told of when it has ended.
//!
//! A thread of its own reads what it prints into the spool, feeds its terminal and
//! keeps its deadline. That thread is there before the command is, so a sandbox
//! full of processes can still be recorded and ended.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command as Program;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use protocol::init::{CommandEnd, CommandSpec, InitMessage, Streams, TerminalSize};
use protocol::spool::SpoolEnd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::process::{Pid, Signal};

use super::measure::Counted;
use super::server::CommandServer;
use super::spool::Spool;
use super::start::say;
use super::terminal::{self, Outside};
use crate::passing;

/// A command that was started.
#[derive(Debug)]
pub(super) struct StartedCommand {
    pub(super) pid: Pid,
    pub(super) ends_sandbox: bool,
    /// What the kernel had counted before it.
    pub(super) before: Counted,
    terminal: Option<Arc<Outside>>,
    spool: Option<Spool>,
    clients: Mutex<Vec<UnixStream>>,
    /// What we did to it, which explains its end.
    ended_by_us: Mutex<Option<CommandEnd>>,
    /// How it ended, once it was reaped.
    ended: Mutex<Option<SpoolEnd>>,
    /// Wakes the thread that watches over it.
    wake: PipeWriter,
}

/// What the watching thread reads and writes.
pub(super) struct Flows {
    /// Its output, and whether it is the error stream.
    printed: Vec<(bool, OwnedFd)>,
    /// What is typed, for a terminal; other commands read their input themselves.
    typed: Option<OwnedFd>,
    woken: PipeReader,
    deadline: Option<Instant>,
    output_left: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a command in a process group of its own.
pub(super) fn start(
    spec: &CommandSpec,
    given: Vec<OwnedFd>,
) -> Result<(StartedCommand, Flows), CommandEnd> {
    let Some((program, arguments)) = spec.words.split_first() else {
        return Err(unstartable(127, "no command"));
    };
    if let Some(directory) = &spec.directory
        && !Path::new(directory).is_dir()
    {
        let why = format!("there is no directory `{directory}` to start `{program}` in");
        return Err(unstartable(126, &why));
    }
    let with = |program: &mut Program| {
        program.envs(spec.environment.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &spec.directory {
            program.current_dir(directory);
        }
    };
    let no_streams = |_| unstartable(126, &format!("`{program}` has no streams"));
    let failed = |err: io::Error| not_started(program, &err);
    let before = Counted::now();
    let (woken, wake) = io::pipe().map_err(failed)?;
    let deadline = spec.deadline.map(|after| Instant::now() + after);
    let mut flows =
        Flows { printed: Vec::new(), typed: None, woken, deadline, output_left: u64::MAX };
    let (child, terminal, spool) = match spec.streams {
        Streams::Direct => {
            let [input, output, errors] = <[OwnedFd; 3]>::try_from(given).map_err(no_streams)?;
            let mut wanted = Program::new(program);
            wanted.args(arguments).stdin(input).stdout(output).stderr(errors).process_group(0);
            with(&mut wanted);
            (wanted.spawn().map_err(failed)?, None, None)
        }
        Streams::Spooled { max_output_bytes, terminal: None } => {
            let [input, spool] = <[OwnedFd; 2]>::try_from(given).map_err(no_streams)?;
            flows.output_left = max_output_bytes;
            // Ours, so that the command may open them again, as `/dev/stdout`.
            let (output, theirs) = io::pipe().map_err(failed)?;
            let (errors, their_errors) = io::pipe().map_err(failed)?;
            let mut wanted = Program::new(program);
            wanted.args(arguments).stdin(input).stdout(theirs).stderr(their_errors);
            wanted.process_group(0);
            with(&mut wanted);
            let child = wanted.spawn().map_err(failed)?;
            flows.printed = vec![(false, output.into()), (true, errors.into())];
            (child, None, Some(Spool::new(spool)))
        }
        Streams::Spooled { max_output_bytes, terminal: Some(size) } => {
            let [input, spool] = <[OwnedFd; 2]>::try_from(given).map_err(no_streams)?;
            flows.output_left = max_output_bytes;
            let (child, outside) = terminal::start(&spec.words, size, |wanted| {
                with(wanted);
                wanted
            })?;
            flows.printed = vec![(false, outside.0.try_clone().map_err(failed)?)];
            flows.typed = Some(input);
            (child, Some(Arc::new(outside)), Some(Spool::new(spool)))
        }
    };
    let command = StartedCommand {
        // Reaped with everything else, never through this handle.
        pid: Pid::from_child(&child),
        ends_sandbox: spec.ends_sandbox,
        before,
        terminal,
        spool,
        clients: Mutex::default(),
        ended_by_us: Mutex::default(),
        ended: Mutex::default(),
        wake,
    };
    Ok((command, flows))
}

/// The codes are a shell's.
pub(super) fn not_started(program: &str, err: &io::Error) -> CommandEnd {
    let code = if err.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    unstartable(code, &format!("cannot start `{program}`: {err}"))
}

/// Why nothing was started, as much of it as fits a line and a frame: the name of a
/// program may be longer.
pub(super) fn unstartable(code: u8, why: &str) -> CommandEnd {
    CommandEnd::Unstartable { code, why: why.chars().take(MAX_WHY_CHARS).collect() }
}

impl StartedCommand {
    /// One more who hears of it.
    pub(super) fn add_client(&self, client: UnixStream) {
        lock(&self.clients).push(client);
    }

    pub(super) fn resize(&self, size: TerminalSize) {
        if let Some(terminal) = &self.terminal {
            terminal.resize(size);
            if let Some(spool) = &self.spool {
                // A spool that cannot be written ends the command when it prints.
                spool.resized(size).ok();
            }
        }
    }

    /// It was reaped; how it ended if we did not end it, and what was measured then.
    /// The watching thread tells everybody, after the last that it printed.
    pub(super) fn was_reaped(&self, end: CommandEnd, facts: Vec<(String, String)>) {
        *lock(&self.ended) = Some(SpoolEnd { end, facts });
        (&self.wake).write_all(&[0]).ok();
    }

    fn end_by_us(&self, why: CommandEnd) {
        lock(&self.ended_by_us).get_or_insert(why);
    }

    /// Watches over it to its end, and returns how it ended.
    pub(super) fn watch(&self, flows: Flows, server: &CommandServer) -> CommandEnd {
        let Flows { mut printed, mut typed, woken, deadline, mut output_left } = flows;
        for (_, from) in &printed {
            // Only our side of it: the command's is another description.
            rustix::io::ioctl_fionbio(from, true).ok();
        }
        let mut keys = Keys::default();
        let mut next_deadline = deadline;
        let mut pause = SMALL_PIECES_WAIT;
        let ended = loop {
            let timeout = [next_deadline, keys.repeat_at(typed.is_none())].into_iter().flatten();
            let timeout = timeout.min().map(|at| at.saturating_duration_since(Instant::now()));
            let waiting = Instant::now();
            let ready = self.wait(&printed, typed.as_ref(), &woken, &keys, timeout);
            let was_quiet = waiting.elapsed() > QUIET;
            let mut small = false;
            printed.retain(|(is_error, from)| match read_some(from) {
                Piece::Bytes(bytes) => {
                    small |= bytes.len() < SMALL_BYTES;
                    self.record(*is_error, &bytes, &mut output_left, server);
                    true
                }
                Piece::NotYet => true,
                Piece::Closed => false,
            });
            if ready.typed
                && let Some(from) = &typed
            {
                match read_some(from) {
                    Piece::Bytes(bytes) => keys.add(&bytes),
                    Piece::NotYet => {}
                    Piece::Closed => {
                        typed = None;
                        keys.end_of_input();
                    }
                }
            }
            if let Some(terminal) = &self.terminal {
                keys.feed(&terminal.0, typed.is_none());
            }
            if next_deadline.is_some_and(|at| Instant::now() >= at) {
                next_deadline = self.enforce_deadline(deadline, server);
            }
            if let Some(ended) = lock(&self.ended).take() {
                break ended;
            }
            if small && !was_quiet {
                // What comes in small pieces shares a frame with what follows soon.
                thread::sleep(pause);
                pause = MAX_SMALL_PIECES_WAIT.min(pause * 2);
            } else {
                pause = SMALL_PIECES_WAIT;
            }
        };
        // What it wrote itself is there already; nobody waits for what something in
        // the background may still print.
        for (is_error, from) in &printed {
            let mut left = match self.terminal {
                // What a terminal holds is not all counted before it is read.
                Some(_) => MAX_LAST_TERMINAL_BYTES,
                None => rustix::io::ioctl_fionread(from).unwrap_or_default(),
            };
            while left > 0 && lock(&self.ended_by_us).is_none() {
                let Piece::Bytes(bytes) = read_some(from) else { break };
                left = left.saturating_sub(bytes.len() as u64);
                self.record(*is_error, &bytes, &mut output_left, server);
            }
        }
        self.tell_end(ended)
    }

    /// Ends it, first by asking; returns when to look again.
    fn enforce_deadline(
        &self,
        deadline: Option<Instant>,
        server: &CommandServer,
    ) -> Option<Instant> {
        let asked_to_end = lock(&self.ended_by_us).is_some();
        if !asked_to_end {
            self.end_by_us(CommandEnd::Deadline);
            server.signal(self, Signal::TERM);
            return deadline.map(|at| at + server.grace());
        }
        server.signal(self, Signal::KILL);
        Some(Instant::now() + server.grace().max(KILL_AGAIN))
    }

    /// Writes down what it printed, and ends it when that is too much or cannot be
    /// recorded: nothing it does after that would be on record.
    fn record(&self, is_error: bool, bytes: &[u8], left: &mut u64, server: &CommandServer) {
        let Some(spool) = &self.spool else { return };
        let room = usize::try_from(*left).unwrap_or(usize::MAX);
        let kept = bytes.get(..room).unwrap_or(bytes);
        *left -= kept.len() as u64;
        if !kept.is_empty() {
            match spool.output(is_error, kept) {
                Ok(()) => self.tell_output(),
                Err(err) => {
                    *left = 0;
                    self.end_by_us(CommandEnd::Unrecorded(err.to_string()));
                    server.signal(self, Signal::KILL);
                }
            }
        }
        if kept.len() < bytes.len() {
            self.end_by_us(CommandEnd::OutputLimit);
            server.signal(self, Signal::KILL);
        }
    }

    /// A client that has not read the last such word needs no other.
    pub(super) fn tell_output(&self) {
        let Ok(line) = passing::line(&InitMessage::Output) else { return };
        lock(&self.clients).retain(|client| {
            let sent = rustix::net::send(client, &line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            matches!(sent, Ok(_) | Err(Errno::AGAIN))
        });
    }

    /// The last words: to the spool, then to whoever listens.
    fn tell_end(&self, ended: SpoolEnd) -> CommandEnd {
        let end = lock(&self.ended_by_us).take().unwrap_or(ended.end);
        if let Some(spool) = &self.spool {
            // Without it the host takes the sandbox for one that was killed.
            spool.ended(SpoolEnd { end: end.clone(), facts: ended.facts.clone() }).ok();
        }
        for client in lock(&self.clients).drain(..) {
            let facts = ended.facts.iter().map(|(name, value)| InitMessage::Fact {
                name: name.clone(),
                value: value.clone(),
            });
            let last = std::iter::once(InitMessage::Ended(end.clone()));
            // A client that does not read has the spool.
            facts.chain(last).try_for_each(|message| say(&client, &message)).ok();
            client.shutdown(std::net::Shutdown::Both).ok();
        }
        end
    }

    /// Waits until something can be read or fed, or for so long.
    fn wait(
        &self,
        printed: &[(bool, OwnedFd)],
        typed: Option<&OwnedFd>,
        woken: &PipeReader,
        keys: &Keys,
        timeout: Option<Duration>,
    ) -> Ready {
        let mut polled: Vec<PollFd<'_>> = Vec::with_capacity(printed.len() + 3);
        polled.push(PollFd::new(woken, PollFlags::IN));
        polled.extend(printed.iter().map(|(_, from)| PollFd::new(from, PollFlags::IN)));
        let typed_at = polled.len();
        if let Some(from) = typed.filter(|_| keys.has_room()) {
            polled.push(PollFd::new(from, PollFlags::IN));
        }
        if let Some(terminal) = self.terminal.as_ref().filter(|_| keys.is_waiting()) {
            polled.push(PollFd::new(&terminal.0, PollFlags::OUT));
        }
        let timeout = timeout.and_then(|span| Timespec::try_from(span).ok());
        if poll(&mut polled, timeout.as_ref()).is_err() {
            // Out of memory, for now: everything is tried instead, now and then.
            thread::sleep(MAX_SMALL_PIECES_WAIT);
        }
        let is_ready = |at: usize| polled.get(at).is_some_and(|one| !one.revents().is_empty());
        Ready { typed: typed.is_some() && keys.has_room() && is_ready(typed_at) }
    }
}

struct Ready {
    typed: bool,
}

/// What was typed and the terminal has not taken yet.
#[derive(Default)]
struct Keys {
    waiting: VecDeque<u8>,
    repeat: Option<Instant>,
}

impl Keys {
    fn add(&mut self, bytes: &[u8]) {
        self.waiting.extend(bytes);
    }

    fn has_room(&self) -> bool {
        self.waiting.len() < PIECE_BYTES
    }

    fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// What a person would type to say that there is no more. Again and again: a
    /// program that sets up its terminal loses what was typed before.
    fn end_of_input(&mut self) {
        self.waiting.push_back(CONTROL_D);
        self.repeat = Some(Instant::now() + REPEAT_END_OF_INPUT);
    }

    fn repeat_at(&self, has_ended: bool) -> Option<Instant> {
        self.repeat.filter(|_| has_ended)
    }

    fn feed(&mut self, terminal: &OwnedFd, has_ended: bool) {
        if self.repeat_at(has_ended).is_some_and(|at| Instant::now() >= at) {
            self.end_of_input();
        }
        while self.is_waiting() {
            let (bytes, _) = self.waiting.as_slices();
            match rustix::io::write(terminal, bytes) {
                Ok(written) => drop(self.waiting.drain(..written)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // Nobody has it any more.
                Err(_) => return self.waiting.clear(),
            }
        }
    }
}

enum Piece {
    Bytes(Vec<u8>),
    Closed,
    NotYet,
}

fn read_some(from: impl AsFd) -> Piece {
    let from: BorrowedFd<'_> = from.as_fd();
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        match rustix::io::read(from, &mut *buffer) {
            Ok(0) => return Piece::Closed,
            Ok(length) => {
                buffer.truncate(length);
                return Piece::Bytes(buffer);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Piece::NotYet,
            // How a terminal says that nobody has it any more.
            Err(_) => return Piece::Closed,
        }
    }
}

const PIECE_BYTES: usize = 32 * 1024;
const MAX_WHY_CHARS: usize = 4096;
/// Less than this at once, and the next piece is waited for: a command that prints
/// byte by byte must not fill the spool with the heads of frames.
const SMALL_BYTES: usize = 256;
const SMALL_PIECES_WAIT: Duration = Duration::from_millis(1);
const MAX_SMALL_PIECES_WAIT: Duration = Duration::from_millis(20);
/// After this long without output a piece is passed on at once.
const QUIET: Duration = Duration::from_millis(50);
const MAX_LAST_TERMINAL_BYTES: u64 = 256 << 10;
const REPEAT_END_OF_INPUT: Duration = Duration::from_millis(500);
const KILL_AGAIN: Duration = Duration::from_millis(100);
const CONTROL_D: u8 = 4;
