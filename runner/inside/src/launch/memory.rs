//! The memory of a sandbox, where no control group counts it.
//!
//! Its processes are asked, from outside and again and again; one that takes more
//! than it may is ended. That is less than a limit: what is taken between two
//! looks is taken, and memory that no process has in view (an unread pipe, a
//! `memfd` that nobody mapped) is not seen. So nothing is promised of it, and who
//! asks for a limit of memory is refused.
//!
//! Pages that several processes share are counted once, or ten workers of one
//! program would be taken for ten programs. That takes long to find out, so it is
//! asked for only when the plain sum is too much.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::process_tree::{PAGE_BYTES, family};

/// Looks after one sandbox.
#[derive(Debug)]
pub(super) struct Memory {
    most: u64,
    next: Instant,
}

impl Memory {
    pub(super) fn new(most: u64) -> Self {
        Self { most, next: Instant::now() }
    }

    /// How long until the next look.
    pub(super) fn pause(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Looks, if it is time; whether there is too much.
    pub(super) fn is_too_much(&mut self, first: Pid) -> bool {
        let begun = Instant::now();
        if begun < self.next {
            return false;
        }
        let processes = family(first.as_raw_pid());
        let plain: u64 = processes.iter().map(|process| process.resident_bytes).sum();
        let shares = || processes.iter().filter_map(|process| proportional(process.pid));
        let is_too_much = plain > self.most && shares().sum::<u64>() > self.most;
        let now = Instant::now();
        self.next = now + TICK.max((now - begun) * LEISURELY);
        is_too_much
    }
}

/// Its own pages, and its share of those it has with others.
fn proportional(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let share = text.lines().find_map(|line| line.strip_prefix("Pss:")).and_then(kibibytes);
    // One that does not let itself be looked into: what it shares with nobody.
    share.or_else(|| pages(pid).map(|(all, shared)| all.saturating_sub(shared) * PAGE_BYTES))
}

fn kibibytes(text: &str) -> Option<u64> {
    text.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Resident, and of these shared with a file or with others.
fn pages(pid: i32) -> Option<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut fields = text.split_whitespace().skip(1).map(|field| field.parse::<u64>().ok());
    Some((fields.next()??, fields.next()??))
}

const TICK: Duration = Duration::from_millis(50);
/// Looking takes a tenth of a processor at most.
const LEISURELY: u32 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_measured_with_what_it_has_below_it() {
        let us = rustix::process::getpid();
        let mut roomy = Memory::new(1 << 50);
        assert!(!roomy.is_too_much(us));
        assert!(roomy.pause() > Duration::ZERO, "not all the time");
        assert!(Memory::new(1).is_too_much(us));
        assert!(proportional(us.as_raw_pid()).unwrap() > 0);
    }

    #[test]
    fn a_share_is_read_in_bytes() {
        assert_eq!(kibibytes("     1234 kB"), Some(1234 * 1024));
        assert_eq!(kibibytes("1234"), None);
    }
}
