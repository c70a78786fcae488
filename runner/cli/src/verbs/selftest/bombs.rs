//! What takes more than its share, and how it has to end.

use std::sync::Arc;

use engine::backend::{Abilities, Enforcement};
use inside::probe::attack::bombs::Bomb;
use inside::probe::attack::{AttackVerdict, Attempt};
use tokio::task::JoinSet;

use crate::self_invoke::{Ran, SelfInvocation, probe};

/// One bomb, the limits it is let loose under, and the reason it must end for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    bomb: Bomb,
    flags: &'static [&'static str],
    place: Option<&'static str>,
    ends: &'static str,
    tried: &'static str,
}

pub(super) const EXPECTED: &[Expected] = &[
    expected(Bomb::Fork, &["--pids", "48"], "pids", "processes that make processes"),
    expected(Bomb::Threads, &["--pids", "64"], "pids", "threads without end"),
    expected(Bomb::Memory, &["--memory", "96MiB"], "oom", "memory without end"),
    expected(Bomb::Disk, &["--memory", "256MiB"], "disk", "a file without end in /tmp"),
    expected(Bomb::Inodes, &["--memory", "256MiB"], "disk", "files without number in /tmp"),
    Expected {
        bomb: Bomb::Disk,
        flags: &["--memory", "256MiB"],
        place: Some("/dev/shm"),
        ends: "disk",
        tried: "a file without end in /dev/shm",
    },
    expected(Bomb::Output, &["--output-limit", "1MiB"], "output", "printing without end"),
    expected(Bomb::Stubborn, &["--timeout", "2s"], "timeout", "not ending when asked to"),
];

const fn expected(
    bomb: Bomb,
    flags: &'static [&'static str],
    ends: &'static str,
    tried: &'static str,
) -> Expected {
    Expected { bomb, flags, place: None, ends, tried }
}

/// All of them, two at a time.
pub(super) async fn all(
    invocation: &Arc<SelfInvocation>,
    abilities: &Abilities,
) -> anyhow::Result<Vec<Attempt>> {
    let mut attempts = Vec::new();
    let mut running = JoinSet::new();
    for expected in EXPECTED {
        if running.len() >= AT_ONCE
            && let Some(done) = running.join_next().await
        {
            attempts.push(done??);
        }
        let (invocation, abilities) = (Arc::clone(invocation), abilities.clone());
        running.spawn_blocking(move || expected.let_loose(&invocation, &abilities));
    }
    while let Some(done) = running.join_next().await {
        attempts.push(done??);
    }
    Ok(attempts)
}

const AT_ONCE: usize = 2;

impl Expected {
    fn let_loose(
        &self,
        invocation: &SelfInvocation,
        abilities: &Abilities,
    ) -> anyhow::Result<Attempt> {
        let mut flags: Vec<String> = ["--mode", "none"].map(str::to_owned).to_vec();
        flags.extend(self.flags.iter().map(|flag| (*flag).to_owned()));
        if self.bomb != Bomb::Stubborn {
            flags.extend(["--timeout", "60s"].map(str::to_owned));
        }
        let mut words = vec!["attack", "bomb", self.bomb.name()];
        words.extend(self.place);
        let ran = invocation.run(&flags, &probe(&words))?;
        let name = match self.place {
            None => format!("bomb-{}", self.bomb.name()),
            Some(place) => format!("bomb-{}{}", self.bomb.name(), place.replace('/', "-")),
        };
        Ok(Attempt::new("H6", &name, self.tried, self.judge(&ran, abilities)))
    }

    fn judge(&self, ran: &Ran, abilities: &Abilities) -> AttackVerdict {
        if ran.outcome() == Some(self.ends) {
            return AttackVerdict::Held(format!("ended: {}", self.ends));
        }
        // A limit that nobody can keep must keep the run from starting.
        let missing = match self.ends {
            "pids" => &abilities.pids,
            _ if self.flags.contains(&"--memory") => &abilities.memory,
            _ => &Enforcement::Enforced,
        };
        match (missing, ran.code) {
            (Enforcement::Unavailable { why } | Enforcement::Watched { why }, 2 | 125) => {
                AttackVerdict::Refused(format!("the limit cannot be kept here: {why}"))
            }
            _ => {
                let outcome = ran.outcome().unwrap_or("no outcome");
                AttackVerdict::Broken(format!(
                    "ended: {outcome} with code {}, wanted: {}; {}",
                    ran.code,
                    self.ends,
                    ran.why()
                ))
            }
        }
    }
}
