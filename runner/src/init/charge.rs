//! What the first process of a sandbox is told, on its command line.
//!
//! Written by whichever backend starts it and read by `sluice-init`; both from
//! here, so that they cannot disagree.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::plan::Plan;

/// What the first process is for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Charge {
    pub socket: PathBuf,
    /// Between asking to end and ending.
    pub grace: Duration,
    /// File systems whose being full is worth telling.
    pub bounded: Vec<String>,
    pub task: Task,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Task {
    /// One command, in a sandbox that ends with it and with the runner.
    Command { words: Vec<String>, deadline: Option<Duration> },
    /// Whoever connects, until then, whether the runner lives or not.
    Serve { until: SystemTime },
}

impl Charge {
    /// What the plan says, with the socket where the sandbox sees it.
    pub fn of(plan: &Plan, socket: &str) -> Self {
        let places = plan.tmpfs.iter().map(|place| place.target).chain(["/dev/shm"]);
        let places = places.chain(plan.workspace.source.as_ref().map(|_| plan.workspace.target));
        Self {
            socket: socket.into(),
            grace: plan.limits.grace,
            bounded: places.map(str::to_owned).collect(),
            task: match &plan.session {
                Some(session) => Task::Serve { until: session.until.into() },
                None => Task::Command {
                    words: plan.command.clone(),
                    deadline: Some(plan.limits.timeout),
                },
            },
        }
    }

    /// The command line's arguments.
    pub fn words(&self) -> Vec<String> {
        let millis = |span: Duration| span.as_millis().to_string();
        let mut words = vec!["--socket".to_owned(), self.socket.display().to_string()];
        words.extend(["--grace".to_owned(), millis(self.grace)]);
        for place in &self.bounded {
            words.extend(["--bounded".to_owned(), place.clone()]);
        }
        match &self.task {
            Task::Command { words: command, deadline } => {
                if let Some(deadline) = deadline {
                    words.extend(["--deadline".to_owned(), millis(*deadline)]);
                }
                words.push("--".to_owned());
                words.extend(command.iter().cloned());
            }
            Task::Serve { until } => {
                let since = until.duration_since(UNIX_EPOCH).unwrap_or_default();
                words.extend(["--serve-until".to_owned(), millis(since)]);
            }
        }
        words
    }

    /// Reads them; nothing if they are not ours.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
        let mut charge = Self {
            socket: "/run/sluice/runner.sock".into(),
            grace: Duration::from_secs(5),
            bounded: Vec::new(),
            task: Task::Command { words: Vec::new(), deadline: None },
        };
        let mut deadline = None;
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--bounded" => charge.bounded.push(arguments.next()?),
                "--deadline" => deadline = Some(millis(&arguments.next()?)?),
                "--grace" => charge.grace = millis(&arguments.next()?)?,
                "--serve-until" => {
                    let until = UNIX_EPOCH.checked_add(millis(&arguments.next()?)?)?;
                    charge.task = Task::Serve { until };
                    return arguments.next().is_none().then_some(charge);
                }
                "--socket" => charge.socket = arguments.next()?.into(),
                "--" => {
                    charge.task = Task::Command { words: arguments.collect(), deadline };
                    return Some(charge);
                }
                _ => return None,
            }
        }
        None
    }
}

fn millis(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_read_as_it_was_written() {
        let tasks = [
            Task::Command { words: vec!["ls".into(), "--".into()], deadline: None },
            Task::Command {
                words: vec!["--serve-until".into()],
                deadline: Some(Duration::from_millis(1500)),
            },
            Task::Serve { until: UNIX_EPOCH + Duration::from_millis(1_794_800_000_123) },
        ];
        for task in tasks {
            let charge = Charge {
                socket: "/s".into(),
                grace: Duration::from_secs(2),
                bounded: vec!["/tmp".into(), "/run".into()],
                task,
            };
            assert_eq!(Charge::parse(charge.words().into_iter()), Some(charge));
        }
    }

    #[test]
    fn a_charge_that_says_nothing_to_do_is_none() {
        for words in [&[][..], &["--socket", "/s"], &["--detached"], &["--serve-until", "soon"]] {
            assert_eq!(Charge::parse(words.iter().map(|word| (*word).to_owned())), None);
        }
    }
}
