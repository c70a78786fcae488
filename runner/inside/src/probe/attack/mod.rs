//! Attacks on a sandbox, from inside.
//!
//! `sluice-probe attack` runs in sandboxes of every backend. It tries what
//! escapes are made of and prints one line of JSON for each attempt: what was
//! tried, and whether the wall held. `sluice selftest` runs it and compares with
//! what the host saw; the tests run it in a plain container too, where many of
//! the same attempts succeed. So the list is known to be able to fail.
//!
//! Each attempt is a process of its own: one that succeeds may leave that process
//! in another namespace, traced or dead, and the next attempt must not know.
//! Nothing is broken on success: a file that could be written is opened and left
//! as it is, a call that would do harm has arguments that make it fail *after*
//! the kernel has let it in.
//!
//! The ids are those of the families in which such attacks are known: D, what
//! leaves over the network; G, the gateway's own control; H, the box itself. C0 is
//! the control: what is allowed has to work.

pub mod bombs;
mod calls;
mod files;
mod listen;
mod network;
pub mod pools;
mod processes;
mod sockets;
mod targets;
mod verdict;

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub use listen::{own_addresses, tell};
pub use targets::Targets;
pub use verdict::{AttackOutcome, AttackVerdict, Attempt};

/// One thing to try.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    pub id: &'static str,
    /// Unique, for choosing it alone.
    pub name: &'static str,
    /// In words, for a person.
    pub tried: &'static str,
    attempt: fn(&Targets) -> AttackVerdict,
}

/// A line in a list of attacks.
const fn attack(
    id: &'static str,
    name: &'static str,
    tried: &'static str,
    attempt: fn(&Targets) -> AttackVerdict,
) -> Attack {
    Attack { id, name, tried, attempt }
}

/// Every attack that harms nobody, whatever comes of it.
pub fn all() -> impl Iterator<Item = &'static Attack> {
    let lists = [calls::ATTACKS, files::ATTACKS, pools::ATTACKS];
    let more = [processes::ATTACKS, sockets::ATTACKS, network::ATTACKS];
    lists.into_iter().chain(more).flatten()
}

/// `sluice-probe attack ...`, after these two words.
///
/// ```text
/// attack [TARGETS]             everything, one line of JSON each
/// attack --one NAME [TARGETS]  one of them, in this process
/// attack bomb KIND             something that must be ended from outside
/// attack listen PORT TOKEN     be a sandbox that others might reach
/// ```
pub fn main(arguments: &[String]) -> ExitCode {
    // As root on a machine, signals to process 1 and the like would be serious.
    if !std::env::current_exe().is_ok_and(|us| us == Path::new(HOME)) {
        return ExitCode::from(USAGE);
    }
    match arguments.split_first() {
        Some((word, rest)) if word == "bomb" => bombs::main(rest),
        Some((word, rest)) if word == "listen" => listen::main(rest),
        _ => match Targets::parse(arguments) {
            Some(targets) if targets.one.is_some() => one(&targets),
            Some(targets) => everything(&targets, arguments),
            None => ExitCode::from(USAGE),
        },
    }
}

const USAGE: u8 = 2;

/// Where a sandbox that is tried has us, and no machine.
const HOME: &str = "/run/sluice/probe";

/// Tries one attack in this very process.
fn one(targets: &Targets) -> ExitCode {
    let named = all().find(|attack| Some(attack.name) == targets.one.as_deref());
    let Some(attack) = named else { return ExitCode::from(USAGE) };
    print(&attack.found((attack.attempt)(targets)));
    ExitCode::SUCCESS
}

/// Tries all that were asked for, several at a time: some of them wait.
fn everything(targets: &Targets, arguments: &[String]) -> ExitCode {
    let chosen = all().filter(|attack| targets.wants(attack));
    let left: Mutex<VecDeque<&Attack>> = Mutex::new(chosen.collect());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(attack) = next() {
                    print(&attack.found(alone(attack, arguments)));
                }
            });
        }
    });
    ExitCode::SUCCESS
}

const AT_ONCE: usize = 8;

/// Tries `attack` in a process of its own.
fn alone(attack: &Attack, arguments: &[String]) -> AttackVerdict {
    let child = Command::new("/proc/self/exe")
        .args(["attack", "--one", attack.name])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(err) => return AttackVerdict::Untried(format!("cannot start a process for it: {err}")),
    };
    let Some(status) = ended(&mut child) else {
        drop(child.kill());
        drop(child.wait());
        return AttackVerdict::Held(format!(
            "nothing came of it in {} s",
            ATTACK_TIMEOUT.as_secs()
        ));
    };
    let mut line = String::new();
    if let Some(mut output) = child.stdout.take() {
        drop(output.read_to_string(&mut line));
    }
    match serde_json::from_str::<Attempt>(&line) {
        Ok(attempt) => attempt.into(),
        // Killed for it, as a filter may do.
        Err(_) => AttackVerdict::Held(format!("it ended the process: {status}")),
    }
}

fn ended(child: &mut Child) -> Option<std::process::ExitStatus> {
    let deadline = Instant::now() + ATTACK_TIMEOUT;
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) => thread::sleep(Duration::from_millis(5)),
            Err(_) => return None,
        }
    }
    None
}

const ATTACK_TIMEOUT: Duration = Duration::from_secs(12);

impl Attack {
    fn found(&self, verdict: AttackVerdict) -> Attempt {
        Attempt::new(self.id, self.name, self.tried, verdict)
    }
}

/// One line, whole: several threads print.
fn print(attempt: &Attempt) {
    if let Ok(mut line) = serde_json::to_string(attempt) {
        line.push('\n');
        // Nobody to tell means nobody who asked.
        drop(std::io::stdout().write_all(line.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_attack_has_a_name_of_its_own() {
        let names: BTreeSet<_> = all().map(|attack| attack.name).collect();
        assert_eq!(names.len(), all().count());
        for attack in all() {
            assert!(matches!(attack.id.chars().next(), Some('C' | 'D' | 'G' | 'H')), "{attack:?}");
        }
    }
}
