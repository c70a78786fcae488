//! From the first word to the runner until the sandbox's last process is gone.
//!
//! One thread reaps, one listens to the runner, one keeps the deadline. None of
//! them needs a new process or memory when it matters, so a fork bomb or a
//! memory hog cannot keep them from ending it.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, exit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process,
    kill_process_group, set_dumpable_behavior, wait,
};

use super::charge::{Charge, Task};
use super::serve::serve;
use super::wire::{End, Order, Report};
use super::{crowd, measure, passing};

/// The exit code when the runner refused, or cannot be spoken to.
const REFUSED: i32 = 125;

/// Does the whole job; what it returns is the sandbox's exit code.
pub fn supervise(charge: Charge) -> i32 {
    // Who ends everybody has to be in a sandbox: elsewhere that is the machine.
    if !getpid().is_init() {
        return REFUSED;
    }
    // The command has our user: without this it could write into our memory.
    if set_dumpable_behavior(DumpableBehavior::NotDumpable).is_err() {
        return REFUSED;
    }
    let Ok(runner) = UnixStream::connect(&charge.socket) else { return REFUSED };
    let Ok(reading) = runner.try_clone() else { return REFUSED };
    let voice = Voice(Arc::new(Mutex::new(runner)));

    voice.say_all(measure::before());
    crowd::watch();
    voice.say(&Report::Ready);
    let Charge { task, grace, bounded, .. } = charge;
    match task {
        Task::Command { words, deadline } => {
            let mut orders = BufReader::new(reading);
            if !matches!(next_order(&mut orders), Some(Order::Go)) {
                return REFUSED;
            }
            command(&words, deadline, grace, &bounded, orders, &voice)
        }
        Task::Serve { until } => {
            let Some(door) = door(&reading) else { return REFUSED };
            // Whoever started us is not needed any more.
            drop((reading, voice));
            serve(door, until, grace, bounded)
        }
    }
}

/// The socket that a session is served on, and the order to do so.
fn door(runner: &UnixStream) -> Option<UnixListener> {
    let (line, descriptors) = passing::receive_line(runner).ok()?;
    match (Order::parse(&line), <[OwnedFd; 1]>::try_from(descriptors)) {
        (Ok(Order::Serve), Ok([descriptor])) => Some(descriptor.into()),
        (Ok(_) | Err(_), _) => None,
    }
}

/// Runs the one command that the sandbox is for.
fn command(
    words: &[String],
    deadline: Option<Duration>,
    grace: Duration,
    bounded: &[String],
    orders: BufReader<UnixStream>,
    voice: &Voice,
) -> i32 {
    // Our threads come first: a command may leave no room for them.
    let overdue = Arc::new(AtomicBool::new(false));
    keep_deadline(deadline, grace, &overdue);
    let (started, begins) = mpsc::channel();
    obey(orders, begins);
    let child = match start(words) {
        Ok(child) => child,
        Err(end) => {
            let code = code_of(&end);
            voice.say(&Report::Ended(end));
            return code;
        }
    };
    // Whoever waits for it is a thread of ours, which does not end before us.
    started.send(child).ok();

    let ended = reap(child);
    let end = if overdue.load(Ordering::SeqCst) { End::Deadline } else { ended };
    voice.say_all(measure::after(bounded));
    end_the_rest();
    let code = code_of(&end);
    voice.say(&Report::Ended(end));
    code
}

/// Whoever hears that the command has ended may rely on it that nobody is left:
/// its gateway is closed at that word.
fn end_the_rest() {
    everybody(Signal::KILL);
    while !matches!(wait(WaitOptions::empty()), Err(rustix::io::Errno::CHILD)) {}
}

fn start(command: &[String]) -> Result<Pid, End> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(End::Unstartable { code: 127, why: "no command".to_owned() });
    };
    let spawned = Command::new(program).args(arguments).arg0(program).spawn();
    let child = spawned.map_err(|err| unstartable(program, &err))?;
    // Reaped below with everything else, never through this handle.
    Ok(Pid::from_child(&child))
}

/// The codes are a shell's.
pub(super) fn unstartable(program: &str, err: &io::Error) -> End {
    let code = if err.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    End::Unstartable { code, why: format!("cannot start `{program}`: {err}") }
}

/// Waits for every process that comes our way until the command's own end.
fn reap(child: Pid) -> End {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == child => {
                if let Some(end) = end_of(status) {
                    return end;
                }
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // No children at all: the command's end was missed, which cannot be.
            Err(_) => return End::Exited(u8::MAX),
        }
    }
}

/// How a process ended that was waited for, if it did.
pub(super) fn end_of(status: WaitStatus) -> Option<End> {
    if let Some(number) = status.terminating_signal() {
        return Some(End::Signaled(u8::try_from(number).unwrap_or(u8::MAX)));
    }
    let code = status.exit_status()?;
    Some(End::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX)))
}

fn keep_deadline(deadline: Option<Duration>, grace: Duration, overdue: &Arc<AtomicBool>) {
    let Some(deadline) = deadline else { return };
    let overdue = Arc::clone(overdue);
    thread::spawn(move || {
        thread::sleep(deadline);
        overdue.store(true, Ordering::SeqCst);
        everybody(Signal::TERM);
        thread::sleep(grace);
        everybody(Signal::KILL);
    });
}

/// Does what the runner says, and ends everything when nobody is there to say it.
fn obey(mut orders: BufReader<UnixStream>, begins: mpsc::Receiver<Pid>) {
    thread::spawn(move || {
        let Ok(child) = begins.recv() else { return };
        loop {
            match next_order(&mut orders) {
                // Not for a sandbox with one command, whose terminal is the engine's.
                Some(Order::Go | Order::Serve | Order::Size(_)) => {}
                Some(Order::Kill) => everybody(Signal::KILL),
                Some(Order::Signal(number)) => {
                    if let Some(signal) = Signal::from_named_raw(number.into()) {
                        kill_process(child, signal).ok();
                    }
                }
                None => {
                    everybody(Signal::KILL);
                    // The first process ends every other; nobody waits for a code.
                    exit(REFUSED);
                }
            }
        }
    });
}

pub(super) fn next_order(orders: &mut BufReader<UnixStream>) -> Option<Order> {
    let mut line = String::new();
    match orders.read_line(&mut line) {
        Ok(length) if length > 0 => Order::parse(line.trim_end_matches('\n')).ok(),
        Ok(_) | Err(_) => None,
    }
}

/// Every process of the sandbox but this one: to signal "group one" is to
/// signal everything that may be signalled, which never includes the first.
pub(super) fn everybody(signal: Signal) {
    kill_process_group(Pid::INIT, signal).ok();
}

fn code_of(end: &End) -> i32 {
    match end {
        End::Deadline => 124,
        End::Exited(code) => (*code).into(),
        End::Signaled(number) => 128 + i32::from(*number),
        End::Unstartable { code, .. } => (*code).into(),
    }
}

/// Our half of the connection. What cannot be said is lost: the runner is gone.
struct Voice(Arc<Mutex<UnixStream>>);

impl Voice {
    fn say(&self, report: &Report) {
        let mut runner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(runner.write_all(format!("{report}\n").as_bytes()));
    }

    fn say_all(&self, reports: Vec<Report>) {
        for report in &reports {
            self.say(report);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_a_sandbox_it_does_not_even_ask_for_orders() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("runner.sock");
        let runner = UnixListener::bind(&socket).unwrap();
        runner.set_nonblocking(true).unwrap();
        let task = Task::Serve { until: std::time::SystemTime::UNIX_EPOCH };
        let charge = Charge { socket, grace: Duration::ZERO, bounded: Vec::new(), task };
        // Whoever got past it would wait for the runner's word.
        let supervised = thread::spawn(move || supervise(charge));
        thread::sleep(Duration::from_millis(200));
        assert!(runner.accept().is_err(), "it asked the runner for orders");
        assert_eq!(supervised.join().unwrap(), REFUSED);
    }
}
