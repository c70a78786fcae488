//! Somebody outside who needs, all the while, what a sandbox must not use up.
//!
//! A sandbox without privileges shares the user of whoever runs the selftest; one
//! of root's would share the first ordinary user's if it had none of its own. So
//! that is who asks, again and again: if one inotify instance, one usual pipe, one
//! terminal or one context for asynchronous input is not to be had for a moment,
//! somebody inside has taken them all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use inside::probe::attack::pools::{ASKED, ask};
use inside::probe::attack::{AttackVerdict, Attempt};
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;

/// Asks again and again until it is asked what it found.
#[derive(Debug)]
pub(super) struct Witness {
    over: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    asking: JoinHandle<Vec<&'static str>>,
    user: u32,
}

impl Witness {
    pub(super) fn start() -> Self {
        let (over, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (until, count) = (Arc::clone(&over), Arc::clone(&asked));
        let us = rustix::process::geteuid();
        let user = if us.is_root() { ORDINARY } else { us.as_raw() };
        let asking = thread::spawn(move || {
            let mut missed = Vec::new();
            if us.is_root() {
                // This thread alone, and for good: it only asks.
                let user = Uid::from_raw(user);
                if set_thread_res_uid(user, user, user).is_err() {
                    return missed;
                }
            }
            while !until.load(Ordering::Relaxed) {
                for (pool, had) in ask() {
                    if !had && !missed.contains(&pool) {
                        missed.push(pool);
                    }
                }
                count.fetch_add(1, Ordering::Relaxed);
                thread::sleep(BETWEEN);
            }
            missed
        });
        Self { over, asked, asking, user }
    }

    /// One for each pool, with who the sandbox was to the host: what a user has too
    /// little of was not taken by a sandbox that is another.
    pub(super) fn found(self, sandbox: Option<u64>) -> Vec<Attempt> {
        self.over.store(true, Ordering::Relaxed);
        let asked = self.asked.load(Ordering::Relaxed);
        let missed = self.asking.join().ok().filter(|_| asked > 0);
        let verdict = |pool| match &missed {
            None => AttackVerdict::Broken("nobody looked".to_owned()),
            Some(missed) if missed.contains(&pool) => match sandbox {
                Some(other) if PER_USER.contains(&pool) && other != u64::from(self.user) => {
                    let user = self.user;
                    AttackVerdict::Untried(format!(
                        "user {user} has none left; the sandbox was {other}"
                    ))
                }
                Some(_) | None => AttackVerdict::Broken("missed".to_owned()),
            },
            Some(_) => AttackVerdict::Held(format!("asked {asked} times")),
        };
        let attempt = |pool: &str, verdict| {
            let name = format!("{pool}-outside");
            Attempt::new("H15", &name, "what the host could still have meanwhile", verdict)
        };
        ASKED.map(|pool| attempt(pool, verdict(pool))).to_vec()
    }
}

/// What is counted for a user, and not for the machine.
const PER_USER: [&str; 2] = ["inotify", "pipes"];
/// The first user of most systems.
const ORDINARY: u32 = 1000;
const BETWEEN: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;
    use inside::probe::attack::AttackOutcome;

    #[test]
    fn a_witness_that_has_looked_says_so() {
        let witness = Witness::start();
        while witness.asked.load(Ordering::Relaxed) == 0 {
            thread::sleep(BETWEEN);
        }
        let found = witness.found(None);
        assert_eq!(found.len(), ASKED.len());
        assert!(found.iter().all(|found| found.result != AttackOutcome::Untried), "{found:?}");
    }

    #[test]
    fn what_is_missed_is_the_sandboxs_fault_if_it_is_the_same_user() {
        let told = |sandbox| {
            let mut witness = Witness::start();
            witness.asked.store(1, Ordering::Relaxed);
            witness.user = 1000;
            witness.over.store(true, Ordering::Relaxed);
            witness.asking = thread::spawn(|| vec!["aio", "inotify"]);
            witness.found(sandbox).iter().map(|found| found.result).collect::<Vec<_>>()
        };
        use AttackOutcome::{Broken, Held, Untried};
        assert_eq!(told(Some(1000)), [Broken, Broken, Held, Held]);
        assert_eq!(told(None), [Broken, Broken, Held, Held]);
        // What the machine has one number of is anybody's to take.
        assert_eq!(told(Some(2_013_265_999)), [Broken, Untried, Held, Held]);
    }
}
