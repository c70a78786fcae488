//! Serves whoever connects, until the sandbox's time is over.
//!
//! One thread reaps, one keeps the time, one accepts, and each connection and each
//! command has one of its own. The first three are there from the beginning, so a
//! sandbox full of processes can still be ended from outside and ends by itself.
//!
//! **Invariant:** a process group is signalled only while its leader has not been
//! reaped: its number is nobody else's.
//! **Invariant:** nobody waits for a command that is being started but whoever starts
//! it: another process of the sandbox may have stopped it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::exit;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, TryLockError, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use protocol::init::{
    CommandEnd, CommandOrder, CommandSpec, InitMessage, InitRequest, MAX_LINE_BYTES,
};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process_group, wait, waitid,
    waitpid,
};

use super::command::{self, StartedCommand, unstartable};
use super::measure;
use super::start::{REFUSED, say};
use crate::passing;

/// Everything the threads share.
#[derive(Clone, Debug)]
pub(super) struct CommandServer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Commands that have not been reaped.
    running: Mutex<BTreeMap<i32, Arc<StartedCommand>>>,
    /// Held, by any number at once, from before a child is made until it is known to
    /// be none or is in the table. Whether the run is over, and nobody starts any more.
    starting: RwLock<bool>,
    /// One more for each command whose end is not on record.
    unrecorded: Arc<()>,
    /// The one command that the sandbox ends with, if it has one.
    run: Mutex<Option<Arc<StartedCommand>>>,
    something_started: Condvar,
    grace: Duration,
    bounded: Vec<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CommandServer {
    pub(super) fn new(grace: Duration, bounded: Vec<String>) -> Self {
        Self(Arc::new(Shared {
            running: Mutex::default(),
            starting: RwLock::default(),
            unrecorded: Arc::default(),
            run: Mutex::default(),
            something_started: Condvar::new(),
            grace,
            bounded,
        }))
    }

    pub(super) fn grace(&self) -> Duration {
        self.0.grace
    }

    /// Serves `listener`, and never returns before everything has ended.
    pub(super) fn serve(self, listener: UnixListener) -> i32 {
        let accepting = self.clone();
        match thread::Builder::new().spawn(move || accepting.accept_loop(&listener)) {
            Ok(_) => self.reap(),
            Err(_) => REFUSED,
        }
    }

    /// Waits for every process that comes our way.
    fn reap(&self) -> ! {
        loop {
            match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Ok(_) => {
                    let mut ended = self.reap_ended();
                    // Nobody is told anything after the one that the sandbox ends with.
                    ended.sort_by_key(|(command, _)| command.ends_sandbox);
                    for (command, end) in ended {
                        self.was_reaped(&command, end);
                    }
                }
                Err(rustix::io::Errno::CHILD) => {
                    let nobody = |running: &mut BTreeMap<i32, _>| running.is_empty();
                    drop(self.0.something_started.wait_while(lock(&self.0.running), nobody));
                }
                Err(_) => {}
            }
        }
    }

    /// Reaps whoever has ended; the commands among them.
    fn reap_ended(&self) -> Vec<(Arc<StartedCommand>, CommandEnd)> {
        let nobody_starts = self.0.starting.try_write();
        let mut running = lock(&self.0.running);
        let known: Vec<i32> = running.keys().copied().collect();
        let mut ended = Vec::new();
        let mut note = |pid: Pid, status| {
            if let Some(end) = end_of(status) {
                let command = running.remove(&pid.as_raw_nonzero().get());
                ended.extend(command.map(|command| (command, end)));
            }
        };
        let is_starting = matches!(nobody_starts, Err(TryLockError::WouldBlock));
        if is_starting {
            // Starting a command waits for its own failed child, and must find it: of
            // those who are not in the table, one may be that.
            for pid in known.into_iter().filter_map(Pid::from_raw) {
                if let Ok(Some((pid, status))) = waitpid(Some(pid), WaitOptions::NOHANG) {
                    note(pid, status);
                }
            }
        } else {
            while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
                note(pid, status);
            }
        }
        drop(running);
        if is_starting && ended.is_empty() {
            // Whoever has ended is left for later.
            thread::sleep(PROCESS_POLL_INTERVAL);
        }
        ended
    }

    fn was_reaped(&self, command: &StartedCommand, end: CommandEnd) {
        if !command.ends_sandbox {
            return self.tell_reaped(command, end);
        }
        let facts = measure::after(&self.0.bounded);
        // Whoever hears that the run has ended may rely on it that nobody is left:
        // its gateway is closed at that word.
        self.end_all_others();
        command.was_reaped(end, facts);
        // Its watching thread ends all of us, when the last is recorded.
        thread::sleep(RUN_RECORDS_TIMEOUT);
        exit(REFUSED);
    }

    fn tell_reaped(&self, command: &StartedCommand, end: CommandEnd) {
        command.was_reaped(end, measure::since(&command.before, &self.0.bounded));
    }

    /// Ends everybody whom the run leaves behind, also who is being started, and has
    /// their ends recorded. Nobody starts after that.
    fn end_all_others(&self) {
        let begun = Instant::now();
        loop {
            signal_everybody(Signal::KILL);
            for (command, end) in self.reap_ended() {
                self.tell_reaped(&command, end);
            }
            let nobody_starts = self.0.starting.try_write().map(|mut is_over| *is_over = true);
            let is_nobody_left = nobody_starts.is_ok() && has_no_children();
            // What is there besides is ours and the run's.
            let are_recorded = Arc::strong_count(&self.0.unrecorded) <= 2;
            if is_nobody_left && (are_recorded || begun.elapsed() > RECORDS_TIMEOUT)
                || begun.elapsed() > RUN_RECORDS_TIMEOUT
            {
                return;
            }
            thread::sleep(PROCESS_POLL_INTERVAL);
        }
    }

    /// Ends everything at `until`. A sleep does not count the time that the machine
    /// itself slept, so the wall clock is asked; and one that is set back gives
    /// nobody more time than there was.
    pub(super) fn expire_at(&self, until: SystemTime) {
        let most = until.duration_since(SystemTime::now()).unwrap_or_default();
        let begun = Instant::now();
        loop {
            let left = until.duration_since(SystemTime::now()).unwrap_or_default();
            let left = left.min(most.saturating_sub(begun.elapsed()));
            if left.is_zero() {
                self.close();
                exit(EXPIRED);
            }
            thread::sleep(left.min(CLOCK_CHECK_INTERVAL));
        }
    }

    /// Asks everybody to end, and ends whoever does not, with the last that they print
    /// on record.
    fn close(&self) {
        signal_everybody(Signal::TERM);
        let deadline = Instant::now() + self.grace();
        while !is_alone() && Instant::now() < deadline {
            thread::sleep(PROCESS_POLL_INTERVAL);
        }
        self.end_everybody();
    }

    /// Ends everybody, and waits until what they printed is on record, for a while.
    pub(super) fn end_everybody(&self) {
        let deadline = Instant::now() + RECORDS_TIMEOUT;
        loop {
            signal_everybody(Signal::KILL);
            if Arc::strong_count(&self.0.unrecorded) == 1 || Instant::now() > deadline {
                return;
            }
            thread::sleep(PROCESS_POLL_INTERVAL);
        }
    }

    fn accept_loop(&self, listener: &UnixListener) {
        loop {
            let Ok((client, _)) = listener.accept() else {
                // Out of descriptors, for now.
                thread::sleep(PROCESS_POLL_INTERVAL);
                continue;
            };
            // A client asks as soon as it comes, or is none.
            client.set_read_timeout(Some(CLIENT_TIMEOUT)).ok();
            client.set_write_timeout(Some(CLIENT_TIMEOUT)).ok();
            // What is no request is hung up on.
            let Ok((request, descriptors)) = passing::receive_frame(&client) else { continue };
            match request {
                InitRequest::Attach => self.attach(client),
                InitRequest::End => self.end(&client),
                InitRequest::Hello => self.greet(&client),
                InitRequest::Run(spec) => self.begin(client, spec, descriptors),
            }
        }
    }

    fn greet(&self, client: &UnixStream) {
        let commands = lock(&self.0.running).len().to_string();
        let fact = InitMessage::Fact { name: "commands".to_owned(), value: commands };
        [fact, InitMessage::Ready].iter().try_for_each(|message| say(client, message)).ok();
    }

    fn end(&self, client: &UnixStream) -> ! {
        self.close();
        let facts = measure::after(&self.0.bounded).into_iter();
        let facts = facts.map(|(name, value)| InitMessage::Fact { name, value });
        let last = std::iter::once(InitMessage::Ended(CommandEnd::Exited(0)));
        facts.chain(last).try_for_each(|message| say(client, &message)).ok();
        exit(0)
    }

    /// Lets another client hear of the run's command, and tell it what to do.
    fn attach(&self, client: UnixStream) {
        let Some(command) = lock(&self.0.run).clone() else { return };
        let Ok(listener) = client.try_clone() else { return };
        say(&client, &InitMessage::Started).ok();
        command.add_client(client);
        // Whatever was printed before is in the spool.
        command.tell_output();
        let server = self.clone();
        // Without a thread for it, it hears and is not heard.
        drop(thread::Builder::new().spawn(move || server.obey(&listener, &command)));
    }

    /// Gives a command the threads it needs, which a full sandbox may not have.
    fn begin(&self, client: UnixStream, spec: CommandSpec, given: Vec<OwnedFd>) {
        let refused = client.try_clone();
        let begun = match lock(&self.0.running).len() {
            MAX_COMMANDS.. => Err(std::io::Error::other("too many commands at once")),
            _ => {
                let server = self.clone();
                let carry_out = move || server.carry_out(client, &spec, given);
                thread::Builder::new().spawn(carry_out).map(drop)
            }
        };
        if let (Err(err), Ok(client)) = (begun, refused) {
            refuse_for_want_of_room(&client, &err);
        }
    }

    /// Starts the command, and listens to its client until one of them is gone.
    fn carry_out(&self, client: UnixStream, spec: &CommandSpec, given: Vec<OwnedFd>) {
        let (hand_over, started) = mpsc::channel::<(Arc<StartedCommand>, command::Flows)>();
        let server = self.clone();
        let unrecorded = Arc::clone(&self.0.unrecorded);
        let watching = thread::Builder::new().spawn(move || {
            let Ok((command, flows)) = started.recv() else { return };
            let end = command.watch(flows, &server);
            if command.ends_sandbox {
                exit(code_of(&end));
            }
            drop(unrecorded);
        });
        if let Err(err) = watching {
            return refuse_for_want_of_room(&client, &err);
        }
        let (command, flows) = match self.start(spec, given) {
            Ok(started) => started,
            Err(end) => {
                let code = code_of(&end);
                say(&client, &InitMessage::Ended(end)).ok();
                return if spec.ends_sandbox {
                    exit(code)
                };
            }
        };
        let listener = client.try_clone();
        // Said before anything it prints can be.
        let told = say(&client, &InitMessage::Started);
        if let (Ok(()), Ok(listener)) = (told, listener) {
            command.add_client(listener);
        }
        // Whoever waits for it is a thread of ours, which does not end before.
        hand_over.send((Arc::clone(&command), flows)).ok();
        self.obey(&client, &command);
        if !spec.outlives_client {
            self.end_command(&command);
        }
    }

    /// Starts the command, and puts it into the table, where its end finds it.
    fn start(
        &self,
        spec: &CommandSpec,
        given: Vec<OwnedFd>,
    ) -> Result<(Arc<StartedCommand>, command::Flows), CommandEnd> {
        let starting = self.0.starting.read().unwrap_or_else(PoisonError::into_inner);
        if *starting {
            return Err(unstartable(126, "the run has ended"));
        }
        let (command, flows) = command::start(spec, given)?;
        let command = Arc::new(command);
        if spec.ends_sandbox {
            *lock(&self.0.run) = Some(Arc::clone(&command));
        }
        lock(&self.0.running).insert(command.pid.as_raw_nonzero().get(), Arc::clone(&command));
        self.0.something_started.notify_all();
        drop(starting);
        Ok((command, flows))
    }

    /// Does what a client says about a command, until it hangs up.
    fn obey(&self, client: &UnixStream, command: &StartedCommand) {
        client.set_read_timeout(None).ok();
        let Ok(reading) = client.try_clone() else { return };
        let mut orders = BufReader::new(reading);
        loop {
            let mut line = Vec::new();
            let limit = MAX_LINE_BYTES as u64;
            match (&mut orders).take(limit).read_until(b'\n', &mut line) {
                Ok(length) if length > 0 => {}
                Ok(_) | Err(_) => return,
            }
            let Ok(order) = serde_json::from_slice(&line) else { return };
            match order {
                CommandOrder::Kill => self.signal(command, Signal::KILL),
                CommandOrder::Resize(size) => command.resize(size),
                CommandOrder::Signal(number) => {
                    if let Some(signal) = Signal::from_named_raw(number.into()) {
                        self.signal_group(command, signal);
                    }
                }
            }
        }
    }

    /// Asks one command's processes to end, then ends them; one that has ended
    /// already is left in peace.
    fn end_command(&self, command: &StartedCommand) {
        self.signal_group(command, Signal::TERM);
        let deadline = Instant::now() + self.grace();
        while self.is_running(command) {
            if Instant::now() > deadline {
                return self.signal_group(command, Signal::KILL);
            }
            thread::sleep(PROCESS_POLL_INTERVAL);
        }
    }

    fn is_running(&self, command: &StartedCommand) -> bool {
        is_among(&lock(&self.0.running), command)
    }

    /// Signals a command, and with the one that the sandbox ends with everybody.
    pub(super) fn signal(&self, command: &StartedCommand, signal: Signal) {
        match command.ends_sandbox {
            true => signal_everybody(signal),
            false => self.signal_group(command, signal),
        }
    }

    fn signal_group(&self, command: &StartedCommand, signal: Signal) {
        let running = lock(&self.0.running);
        if is_among(&running, command) {
            kill_process_group(command.pid, signal).ok();
        }
    }
}

/// Whether it is this very command: its number may be another's by now.
fn is_among(running: &BTreeMap<i32, Arc<StartedCommand>>, command: &StartedCommand) -> bool {
    let same = running.get(&command.pid.as_raw_nonzero().get());
    same.is_some_and(|same| std::ptr::eq(&raw const **same, command))
}

fn refuse_for_want_of_room(client: &UnixStream, err: &std::io::Error) {
    let end = unstartable(126, &format!("the sandbox has no room for a command: {err}"));
    say(client, &InitMessage::Ended(end)).ok();
}

/// How a process ended that was waited for, if it did.
fn end_of(status: WaitStatus) -> Option<CommandEnd> {
    if let Some(number) = status.terminating_signal() {
        return Some(CommandEnd::Signaled(u8::try_from(number).unwrap_or(u8::MAX)));
    }
    let code = status.exit_status()?;
    Some(CommandEnd::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX)))
}

/// Every process of the sandbox but this one: to signal "group one" is to signal
/// everything that may be signalled, which never includes the first.
pub(super) fn signal_everybody(signal: Signal) {
    kill_process_group(Pid::INIT, signal).ok();
}

fn has_no_children() -> bool {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    matches!(waitid(WaitId::All, how), Err(rustix::io::Errno::CHILD))
}

/// The exit code of a sandbox that ends with its command.
fn code_of(end: &CommandEnd) -> i32 {
    match end {
        CommandEnd::Deadline => EXPIRED,
        CommandEnd::Exited(code) | CommandEnd::Unstartable { code, .. } => (*code).into(),
        CommandEnd::OutputLimit => 137,
        CommandEnd::Signaled(number) => 128 + i32::from(*number),
        CommandEnd::Unrecorded(_) => REFUSED,
    }
}

/// Whether nobody is here but us. In a namespace of its own, a process sees all
/// there are.
fn is_alone() -> bool {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| *id != 1).count() == 0
}

/// The exit code when the time was over.
const EXPIRED: i32 = 124;
/// How long a client has for asking, and for hearing an answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(10);
const PROCESS_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// What a run printed is recorded by then, however slow the disk is.
const RUN_RECORDS_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for whoever is waited for.
const RECORDS_TIMEOUT: Duration = Duration::from_secs(3);
const MAX_COMMANDS: usize = 256;
