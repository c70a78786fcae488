//! How many processes there may be, and whether one was refused.
//!
//! A control group of our own counts, and says when it refused. Where there is
//! none, the limit is the user's: the kernel counts it in the sandbox's own user
//! namespace and tells nobody. So it is tried, again and again, from a thread
//! that does nothing else; what is refused to it was refused to others too.

use std::fs;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use super::measure::cgroup;

/// Refusals that our own tries met. One count for the whole process.
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// How many places the last try of the watching thread held.
static LAST_TRY: AtomicU32 = AtomicU32::new(0);

/// The most processes and threads there may be; nothing if there is no limit.
pub(super) fn limit() -> Option<u64> {
    of_the_group().into_iter().chain(of_the_user()).min()
}

/// How often a process was refused, as far as anybody knows. Where the kernel does not
/// count, a shortage that came and went between two tries is missed; one that still
/// lasts is seen.
pub(super) fn refused() -> u64 {
    if !is_counted() && of_the_user().is_some() {
        // The command has just left, and with it one of the places. If it was refused
        // while a try of ours stood, what that held is free by now as well.
        attempt(2 + LAST_TRY.load(Ordering::Relaxed));
    }
    let tried = REFUSED.load(Ordering::Relaxed);
    if !is_counted() {
        return tried;
    }
    let events = cgroup("pids", "pids.events", "pids.events");
    let counted = events.split(';').find_map(|line| line.strip_prefix("max ")?.parse().ok());
    counted.unwrap_or(0).max(tried)
}

/// Begins to watch, where the kernel does not.
pub(super) fn watch() {
    if of_the_user().is_none() || is_counted() {
        return;
    }
    thread::spawn(|| {
        for round in 1.. {
            thread::sleep(TRY_INTERVAL);
            LAST_TRY.store(places(round), Ordering::Relaxed);
            attempt(places(round));
        }
    });
}

/// How many places to try for at once. While a try stands it may itself be what
/// the command is refused for, and afterwards as many places are free as it held:
/// only a wider try finds out. So now and then there is one.
fn places(round: u32) -> u32 {
    1 + round.trailing_zeros() / 3
}

/// Whether there are so many places at once.
fn attempt(places: u32) {
    let (waiting, over) = mpsc::channel::<()>();
    let over = Arc::new(Mutex::new(over));
    for _ in 0..places {
        let over = Arc::clone(&over);
        let stay = move || drop(over.lock().map(|over| over.recv()));
        let tried = thread::Builder::new().stack_size(LITTLE).spawn(stay);
        if tried.is_err_and(|err| err.kind() == ErrorKind::WouldBlock) {
            REFUSED.fetch_add(1, Ordering::Relaxed);
        }
    }
    drop(waiting);
}

/// Whether the control group's limit is the one that is met first. One that is
/// wider was made for more than this sandbox.
pub(super) fn is_counted() -> bool {
    of_the_group().is_some_and(|group| of_the_user().is_none_or(|user| group <= user))
}

fn of_the_group() -> Option<u64> {
    cgroup("pids", "pids.max", "pids.max").parse().ok()
}

/// The user's limit, where it is this sandbox's alone: in a user namespace of
/// its own. Elsewhere the same user's other processes count too.
fn of_the_user() -> Option<u64> {
    let map = fs::read_to_string("/proc/self/uid_map").ok()?;
    if is_the_hosts(&map) { None } else { getrlimit(Resource::Nproc).maximum }
}

fn is_the_hosts(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Short enough to see a bomb go off, and one in a thousand of a processor.
const TRY_INTERVAL: Duration = Duration::from_millis(10);
const LITTLE: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_try_that_was_in_the_way_is_followed_by_a_wider_one_within_a_second() {
        let within = |rounds: u32, wanted| (1..=rounds).any(|round| places(round) > wanted);
        assert_eq!(places(1), 1);
        assert!(within(100, 1) && within(100, 2));
    }

    #[test]
    fn a_limit_that_others_share_is_none_of_the_sandboxs() {
        assert!(is_the_hosts("         0          0 4294967295\n"));
        let own = "         0          1       1777\n      1777          0          1\n";
        assert!(!is_the_hosts(own));
    }
}
