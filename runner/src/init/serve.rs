//! A sandbox that is kept: serves whoever connects, until its time is over.
//!
//! One thread reaps, one keeps the time, one answers, and each command has one
//! that listens to its client. The first three are there from the beginning, so
//! a sandbox full of processes can still be ended from outside and ends by
//! itself.
//!
//! **Invariant:** a process group is signalled only while its leader has not
//! been reaped: its number is nobody else's.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufReader, ErrorKind};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command as Program, exit};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process_group, wait, waitid,
};

use super::measure::{self, Counted};
use super::supervise::{end_of, everybody, next_order, unstartable};
use super::terminal::{self, Outside};
use super::wire::ask::{Ask, Command, Streams};
use super::wire::{End, Order, Report};
use super::{passing, wire};

/// Everything the threads share.
struct House {
    running: Mutex<BTreeMap<i32, Running>>,
    /// Something was started.
    came: Condvar,
    grace: Duration,
    bounded: Vec<String>,
}

/// A command that has not been reaped.
struct Running {
    client: UnixStream,
    before: Counted,
    overdue: bool,
}

/// Serves `door` until `until`, and never returns before everything has ended.
pub(super) fn serve(
    door: UnixListener,
    until: SystemTime,
    grace: Duration,
    bounded: Vec<String>,
) -> i32 {
    let house = Arc::new(House { running: Mutex::default(), came: Condvar::new(), grace, bounded });
    let keeper = Arc::clone(&house);
    let keeping = thread::Builder::new().spawn(move || keeper.keep_time(until));
    let porter = Arc::clone(&house);
    let answering = thread::Builder::new().spawn(move || porter.answer(&door));
    if keeping.is_err() || answering.is_err() {
        return FAILED;
    }
    house.reap()
}

/// The exit code when there is no way to serve.
const FAILED: i32 = 125;
/// The exit code when the time was over.
const EXPIRED: i32 = 124;

impl House {
    fn running(&self) -> MutexGuard<'_, BTreeMap<i32, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for every process that comes our way, and tells how commands ended.
    fn reap(&self) -> ! {
        loop {
            // Only looked at here: starting a command waits for its own failed
            // children, and must find them. Both take turns by the lock.
            match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Ok(_) => {
                    let mut running = self.running();
                    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
                        let Some(end) = end_of(status) else { continue };
                        if let Some(command) = running.remove(&pid.as_raw_nonzero().get()) {
                            self.tell(command, end);
                        }
                    }
                }
                Err(rustix::io::Errno::CHILD) => {
                    let nobody = |running: &mut BTreeMap<i32, Running>| running.is_empty();
                    drop(self.came.wait_while(self.running(), nobody));
                }
                Err(_) => {}
            }
        }
    }

    /// The last words to a client. It cannot hold us up: they fit into what the
    /// kernel keeps for it.
    fn tell(&self, command: Running, end: End) {
        let end = if command.overdue { End::Deadline } else { end };
        for fact in measure::since(&command.before, &self.bounded) {
            say(&command.client, &fact);
        }
        say(&command.client, &Report::Ended(end));
        // Wakes the thread that listens to it.
        command.client.shutdown(Shutdown::Both).ok();
    }

    /// Ends everything when the time is over. A sleep does not count the time
    /// that the machine itself slept, so the clock on the wall is asked; and one
    /// that is set back gives nobody more time than there was.
    fn keep_time(&self, until: SystemTime) {
        let most = until.duration_since(SystemTime::now()).unwrap_or_default();
        let begun = Instant::now();
        loop {
            let left = until.duration_since(SystemTime::now()).unwrap_or_default();
            let left = left.min(most.saturating_sub(begun.elapsed()));
            if left.is_zero() {
                self.close();
                exit(EXPIRED);
            }
            thread::sleep(left.min(A_LOOK));
        }
    }

    /// Asks everybody to end, and ends whoever does not.
    fn close(&self) {
        everybody(Signal::TERM);
        let deadline = Instant::now() + self.grace;
        while !is_empty() && Instant::now() < deadline {
            thread::sleep(A_MOMENT);
        }
        everybody(Signal::KILL);
    }

    fn answer(self: &Arc<Self>, door: &UnixListener) {
        loop {
            let Ok((client, _)) = door.accept() else {
                // Out of descriptors, for now.
                thread::sleep(A_MOMENT);
                continue;
            };
            // A client asks as soon as it comes, or is none.
            client.set_read_timeout(Some(PATIENCE)).ok();
            client.set_write_timeout(Some(PATIENCE)).ok();
            let Ok((body, descriptors)) = passing::receive_frame(&client) else { continue };
            match Ask::parse(&body) {
                Ok(Ask::End) => {
                    self.close();
                    for fact in measure::after(&self.bounded) {
                        say(&client, &fact);
                    }
                    say(&client, &Report::Ended(End::Exited(0)));
                    exit(0);
                }
                Ok(Ask::Hello) => {
                    say(&client, &measure::fact("commands", self.running().len().to_string()));
                    say(&client, &Report::Ready);
                }
                Ok(Ask::Run(command)) => self.begin(client, command, descriptors),
                Err(_) => {}
            }
        }
    }

    /// Gives a command a thread of its own, which a full sandbox may not have.
    fn begin(self: &Arc<Self>, client: UnixStream, command: Command, given: Vec<OwnedFd>) {
        let refused = client.try_clone();
        let crowded = self.running().len() >= MOST_COMMANDS;
        let house = Arc::clone(self);
        let begun = match crowded {
            true => Err(std::io::Error::other("too many commands at once")),
            false => thread::Builder::new()
                .spawn(move || house.carry_out(&client, &command, given))
                .map(drop),
        };
        if let (Err(err), Ok(client)) = (begun, refused) {
            let why = format!("the sandbox has no room for a command: {err}");
            say(&client, &Report::Ended(End::Unstartable { code: 126, why }));
        }
    }

    /// Starts the command and listens to its client until one of them is gone.
    fn carry_out(&self, client: &UnixStream, command: &Command, given: Vec<OwnedFd>) {
        let before = Counted::now();
        let begun = Instant::now();
        let (pid, terminal) = {
            // Held until it is in the table: its end must find it there.
            let mut running = self.running();
            let (pid, terminal) = match start(command, given) {
                Ok(started) => started,
                Err(end) => {
                    drop(running);
                    say(client, &Report::Ended(end));
                    return;
                }
            };
            let beside: Vec<BorrowedFd<'_>> =
                terminal.iter().map(|Outside(descriptor)| descriptor.as_fd()).collect();
            let line = format!("{}\n", Report::Started);
            let told = passing::send_all(client, line.as_bytes(), &beside);
            let listener = told.and_then(|()| client.try_clone());
            match listener {
                Ok(client) => {
                    let number = pid.as_raw_nonzero().get();
                    running.insert(number, Running { client, before, overdue: false });
                }
                // Nobody is there to hear of it.
                Err(_) => drop(kill_process_group(pid, Signal::KILL)),
            }
            self.came.notify_all();
            (pid, terminal)
        };
        self.listen(client, pid, terminal, command.deadline.map(|after| begun + after));
    }

    fn listen(
        &self,
        client: &UnixStream,
        pid: Pid,
        terminal: Option<Outside>,
        deadline: Option<Instant>,
    ) {
        let Ok(reading) = client.try_clone() else { return self.end(pid) };
        let mut orders = BufReader::new(reading);
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                if let Some(command) = self.running().get_mut(&pid.as_raw_nonzero().get()) {
                    command.overdue = true;
                }
                return self.end(pid);
            }
            client.set_read_timeout(left).ok();
            match heard(&mut orders) {
                Heard::Order(Order::Kill) => self.signal(pid, Signal::KILL),
                Heard::Order(Order::Signal(number)) => {
                    if let Some(signal) = Signal::from_named_raw(number.into()) {
                        self.signal(pid, signal);
                    }
                }
                Heard::Order(Order::Size(size)) => {
                    if let Some(terminal) = &terminal {
                        terminal.resize(size);
                    }
                }
                Heard::Order(Order::Go | Order::Serve) | Heard::Nothing => {}
                Heard::Gone => {
                    // With its last holder the terminal goes, which tells all of
                    // its session.
                    drop(terminal);
                    return self.end(pid);
                }
            }
        }
    }

    /// Asks one command's processes to end, then ends them; one that has ended
    /// already is left in peace.
    fn end(&self, pid: Pid) {
        self.signal(pid, Signal::TERM);
        let deadline = Instant::now() + self.grace;
        let number = pid.as_raw_nonzero().get();
        while self.running().contains_key(&number) {
            if Instant::now() > deadline {
                return self.signal(pid, Signal::KILL);
            }
            thread::sleep(A_MOMENT);
        }
    }

    fn signal(&self, pid: Pid, signal: Signal) {
        let running = self.running();
        if running.contains_key(&pid.as_raw_nonzero().get()) {
            kill_process_group(pid, signal).ok();
        }
    }
}

enum Heard {
    Gone,
    Nothing,
    Order(Order),
}

fn heard(orders: &mut BufReader<UnixStream>) -> Heard {
    match std::io::BufRead::fill_buf(orders) {
        Ok([]) => Heard::Gone,
        Ok(_) => next_order(orders).map_or(Heard::Gone, Heard::Order),
        Err(err) if matches!(err.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Heard::Nothing
        }
        Err(_) => Heard::Gone,
    }
}

/// Starts a command in a process group of its own.
fn start(command: &Command, given: Vec<OwnedFd>) -> Result<(Pid, Option<Outside>), End> {
    let Command { words, directory, environment, streams, .. } = command;
    let Some((program, arguments)) = words.split_first() else {
        return Err(End::Unstartable { code: 127, why: "no command".to_owned() });
    };
    if let Some(directory) = directory
        && !Path::new(directory).is_dir()
    {
        let why = format!("there is no directory `{directory}` to start `{program}` in");
        return Err(End::Unstartable { code: 126, why });
    }
    let with = |program: &mut Program| {
        program.envs(environment.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = directory {
            program.current_dir(directory);
        }
    };
    match streams {
        Streams::Pipes => {
            let Ok([input, output, errors]) = <[OwnedFd; 3]>::try_from(given) else {
                let why = format!("`{program}` has no streams");
                return Err(End::Unstartable { code: 126, why });
            };
            let mut wanted = Program::new(program);
            wanted.args(arguments).stdin(input).stdout(output).stderr(errors).process_group(0);
            with(&mut wanted);
            let child = wanted.spawn().map_err(|err| unstartable(program, &err))?;
            Ok((Pid::from_child(&child), None))
        }
        Streams::Terminal(size) => {
            let (child, outside) = terminal::start(words, *size, |wanted| {
                with(wanted);
                wanted
            })?;
            Ok((Pid::from_child(&child), Some(outside)))
        }
    }
}

/// Whether nobody is here but us. In a namespace of its own, a process sees all
/// there are.
fn is_empty() -> bool {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| *id != 1).count() == 0
}

fn say(mut client: &UnixStream, report: &Report) {
    debug_assert!(report.to_string().len() < wire::LONGEST);
    drop(std::io::Write::write_all(&mut client, format!("{report}\n").as_bytes()));
}

/// How long a client has for asking, and for hearing an answer.
const PATIENCE: Duration = Duration::from_secs(2);
const A_LOOK: Duration = Duration::from_secs(10);
const A_MOMENT: Duration = Duration::from_millis(10);
const MOST_COMMANDS: usize = 256;
