//! From the first word to the runner until the sandbox's last process is gone.
//!
//! One thread reaps, one listens to the runner, one keeps the deadline. None of
//! them needs a new process or memory when it matters, so a fork bomb or a
//! memory hog cannot keep them from ending it.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, exit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, kill_process, kill_process_group,
    set_dumpable_behavior, wait,
};

use super::wire::{End, Order, Report};
use super::{crowd, measure};

/// What the first process was told on its command line.
#[derive(Debug, Eq, PartialEq)]
pub struct Charge {
    pub socket: PathBuf,
    /// Wall clock for the command.
    pub deadline: Option<Duration>,
    /// Between asking to end and ending.
    pub grace: Duration,
    /// Goes on when the runner is gone, until the deadline.
    pub detached: bool,
    /// File systems whose being full is worth telling.
    pub bounded: Vec<String>,
    pub command: Vec<String>,
}

/// The exit code when the runner refused, or cannot be spoken to.
const REFUSED: i32 = 125;

/// Does the whole job; what it returns is the sandbox's exit code.
pub fn supervise(charge: Charge) -> i32 {
    // The command has our user: without this it could write into our memory.
    if set_dumpable_behavior(DumpableBehavior::NotDumpable).is_err() {
        return REFUSED;
    }
    let Ok(runner) = UnixStream::connect(&charge.socket) else { return REFUSED };
    let Ok(reading) = runner.try_clone() else { return REFUSED };
    let mut orders = BufReader::new(reading);
    let voice = Voice(Arc::new(Mutex::new(runner)));

    voice.say_all(measure::before());
    crowd::watch();
    voice.say(&Report::Ready);
    if !matches!(next_order(&mut orders), Some(Order::Go)) {
        return REFUSED;
    }
    // Our threads come first: a command may leave no room for them.
    let overdue = Arc::new(AtomicBool::new(false));
    keep_deadline(&charge, &overdue);
    let (started, begins) = mpsc::channel();
    obey(orders, begins, charge.detached);
    let child = match start(&charge.command) {
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
    voice.say_all(measure::after(&charge.bounded));
    let code = code_of(&end);
    voice.say(&Report::Ended(end));
    code
}

fn start(command: &[String]) -> Result<Pid, End> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(End::Unstartable { code: 127, why: "no command".to_owned() });
    };
    let spawned = Command::new(program).args(arguments).arg0(program).spawn();
    let child = spawned.map_err(|err| {
        let code = if err.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
        End::Unstartable { code, why: format!("cannot start `{program}`: {err}") }
    })?;
    // Reaped below with everything else, never through this handle.
    Ok(Pid::from_child(&child))
}

/// Waits for every process that comes our way until the command's own end.
fn reap(child: Pid) -> End {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == child => {
                if let Some(number) = status.terminating_signal() {
                    return End::Signaled(u8::try_from(number).unwrap_or(u8::MAX));
                }
                if let Some(code) = status.exit_status() {
                    return End::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX));
                }
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // No children at all: the command's end was missed, which cannot be.
            Err(_) => return End::Exited(u8::MAX),
        }
    }
}

fn keep_deadline(charge: &Charge, overdue: &Arc<AtomicBool>) {
    let Some(deadline) = charge.deadline else { return };
    let (overdue, grace) = (Arc::clone(overdue), charge.grace);
    thread::spawn(move || {
        thread::sleep(deadline);
        overdue.store(true, Ordering::SeqCst);
        everybody(Signal::TERM);
        thread::sleep(grace);
        everybody(Signal::KILL);
    });
}

/// Does what the runner says, and ends everything when nobody is there to say it.
fn obey(mut orders: BufReader<UnixStream>, begins: mpsc::Receiver<Pid>, detached: bool) {
    thread::spawn(move || {
        let Ok(child) = begins.recv() else { return };
        loop {
            match next_order(&mut orders) {
                Some(Order::Go) => {}
                Some(Order::Kill) => everybody(Signal::KILL),
                Some(Order::Signal(number)) => {
                    if let Some(signal) = Signal::from_named_raw(number.into()) {
                        kill_process(child, signal).ok();
                    }
                }
                None if detached => return,
                None => {
                    everybody(Signal::KILL);
                    // The first process ends every other; nobody waits for a code.
                    exit(REFUSED);
                }
            }
        }
    });
}

fn next_order(orders: &mut BufReader<UnixStream>) -> Option<Order> {
    let mut line = String::new();
    match orders.read_line(&mut line) {
        Ok(length) if length > 0 => Order::parse(line.trim_end_matches('\n')).ok(),
        Ok(_) | Err(_) => None,
    }
}

/// Every process of the sandbox but this one: to signal "group one" is to
/// signal everything that may be signalled, which never includes the first.
fn everybody(signal: Signal) {
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
