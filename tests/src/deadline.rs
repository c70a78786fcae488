//! Every wait in a test has a deadline: a test fails, it does not hang.
//!
//! Nothing is measured against these. They are far longer than any step takes on a
//! machine under load, and are reached only when a test fails.

use std::future::Future;
use std::io;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::time;

/// For one step of a conversation.
pub const STEP_DEADLINE: Duration = Duration::from_secs(20);

/// For something that a whole `sluice` has to bring about first.
pub const EVENT_DEADLINE: Duration = Duration::from_secs(90);

/// For a whole program, which may build an image.
pub const PROGRAM_DEADLINE: Duration = Duration::from_secs(600);

/// Waits for what must happen.
#[track_caller]
pub fn within<F: Future>(what: &str, future: F) -> impl Future<Output = F::Output> + use<F> {
    let waited_for = format!("{}: {what}", std::panic::Location::caller());
    async move {
        match time::timeout(STEP_DEADLINE, future).await {
            Ok(output) => output,
            Err(_) => panic!("waited in vain for {waited_for}"),
        }
    }
}

/// Asks again and again until there is an answer.
#[track_caller]
pub fn until<T, A: FnMut() -> Option<T>>(
    what: &str,
    mut ask: A,
) -> impl Future<Output = T> + use<T, A> {
    within(what, async move {
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            time::sleep(Duration::from_millis(5)).await;
        }
    })
}

/// The same for a test without a runtime.
#[track_caller]
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + EVENT_DEADLINE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Runs a program to its end, or kills it and fails the test.
pub trait CommandDeadline {
    /// As `output`, with nothing on standard input.
    fn output_in_time(&mut self) -> io::Result<Output>;

    /// As `status`.
    fn status_in_time(&mut self) -> io::Result<ExitStatus>;
}

impl CommandDeadline for Command {
    #[track_caller]
    fn output_in_time(&mut self) -> io::Result<Output> {
        self.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.spawn()?.wait_with_output_in_time()
    }

    #[track_caller]
    fn status_in_time(&mut self) -> io::Result<ExitStatus> {
        self.spawn()?.wait_in_time()
    }
}

/// Waits for a program that runs, or kills it and fails the test.
pub trait ChildDeadline {
    /// As `wait`, which closes standard input first.
    fn wait_in_time(&mut self) -> io::Result<ExitStatus>;

    /// As `wait_with_output`. It also fails if the program ended and something that
    /// it started keeps its output open.
    fn wait_with_output_in_time(self) -> io::Result<Output>;
}

impl ChildDeadline for Child {
    #[track_caller]
    fn wait_in_time(&mut self) -> io::Result<ExitStatus> {
        wait_until(self, PROGRAM_DEADLINE)
    }

    #[track_caller]
    fn wait_with_output_in_time(self) -> io::Result<Output> {
        output_until(self, PROGRAM_DEADLINE)
    }
}

#[track_caller]
fn wait_until(child: &mut Child, limit: Duration) -> io::Result<ExitStatus> {
    drop(child.stdin.take());
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            panic!("process {} did not end within {limit:?}", child.id());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
fn output_until(child: Child, limit: Duration) -> io::Result<Output> {
    let id = child.id();
    let waiting = thread::spawn(move || child.wait_with_output());
    join_or(waiting, limit, || {
        if let Some(id) = i32::try_from(id).ok().and_then(Pid::from_raw) {
            kill_process(id, Signal::KILL).ok();
        }
        panic!("process {id} did not end and close its output within {limit:?}")
    })
}

/// Waits for a thread of the test.
pub trait JoinDeadline<T> {
    /// As `join`; a panic in the thread is one here.
    fn join_in_time(self) -> T;
}

impl<T: Send + 'static> JoinDeadline<T> for JoinHandle<T> {
    #[track_caller]
    fn join_in_time(self) -> T {
        let late = || panic!("a thread did not end within {PROGRAM_DEADLINE:?}");
        join_or(self, PROGRAM_DEADLINE, late)
    }
}

#[track_caller]
fn join_or<T: Send + 'static>(
    thread: JoinHandle<T>,
    limit: Duration,
    late: impl FnOnce() -> T,
) -> T {
    let (done, joined) = mpsc::channel();
    thread::spawn(move || done.send(thread.join()));
    match joined.recv_timeout(limit) {
        Ok(Ok(value)) => value,
        Ok(Err(panicked)) => std::panic::resume_unwind(panicked),
        Err(_) => late(),
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    fn sleeping() -> Child {
        Command::new("sleep").arg("600").stdout(Stdio::piped()).spawn().unwrap()
    }

    fn is_alive(id: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
    }

    #[test]
    fn a_program_that_hangs_fails_the_test_and_is_killed() {
        let (mut waited_for, read) = (sleeping(), sleeping());
        let ids = [waited_for.id(), read.id()];
        assert!(catch_unwind(AssertUnwindSafe(|| wait_until(&mut waited_for, SHORT))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| output_until(read, SHORT))).is_err());
        wait_for("their ends", || ids.iter().all(|id| !is_alive(*id)).then_some(()));
    }

    #[test]
    fn what_a_program_prints_and_a_thread_returns_is_handed_on() {
        let ran =
            Command::new("sh").args(["-c", "cat; echo out; exit 3"]).output_in_time().unwrap();
        assert_eq!((ran.status.code(), ran.stdout.as_slice()), (Some(3), &b"out\n"[..]));
        assert_eq!(thread::spawn(|| 7).join_in_time(), 7);
    }
}
