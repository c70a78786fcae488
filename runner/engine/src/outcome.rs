//! How a run ended, as a type.
//!
//! An exit code alone lies: 137 is a memory limit, a deadline or a command that
//! killed itself. [`judge`] puts together what the sandbox's first process saw,
//! what the engine says and what the runner did, and names the reason.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use protocol::init::CommandEnd;
use protocol::spool::SpoolEnd;
use serde::{Deserialize, Serialize};

use crate::disk::Full;
use crate::plan::WORKSPACE;

/// Why the command is no longer running.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// Somebody stopped it.
    Cancelled { signal: u8 },
    /// Policy refused requests and the caller asked to fail on that.
    Denied { requests: u64 },
    /// It failed with a place full that it may write to.
    Disk { full: String, code: u8 },
    /// By itself.
    Exited { code: u8 },
    /// A session whose time was over.
    Expired,
    /// What it depends on broke: it did not run to its end as it should.
    Failed { why: String },
    /// We do not know: the sandbox vanished without a word.
    Lost { why: String },
    /// It took more memory than it may have.
    Oom,
    /// It printed more than it may.
    Output { limit: u64 },
    /// It was refused processes, whatever code it ended with.
    Pids { refused: u64, code: u8 },
    /// A session that somebody ended.
    Stopped,
    /// It took more time than it may have.
    Timeout,
}

impl Outcome {
    /// In a word, as records name it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Cancelled { .. } => "cancelled",
            Self::Denied { .. } => "denied",
            Self::Disk { .. } => "disk",
            Self::Exited { .. } => "exited",
            Self::Expired => "expired",
            Self::Failed { .. } => "failed",
            Self::Lost { .. } => "lost",
            Self::Oom => "oom",
            Self::Output { .. } => "output",
            Self::Pids { .. } => "pids",
            Self::Stopped => "stopped",
            Self::Timeout => "timeout",
        }
    }
}

/// What the run took.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Usage {
    pub memory_peak: Option<u64>,
    pub cpu_nanoseconds: Option<u64>,
    /// Most processes seen at once.
    pub pids_peak: Option<u64>,
    pub pids_refused: u64,
    /// Processes the kernel killed for want of memory; the command may have
    /// survived it.
    pub oom_kills: u64,
    /// Bytes printed.
    pub output: u64,
    /// What passed through the gateway, where there was one.
    pub network: Option<Traffic>,
    #[serde(rename = "wall_seconds", with = "crate::record_format::seconds")]
    pub wall: Duration,
}

/// What a gateway counted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Traffic {
    pub requests: u64,
    /// Of these, the ones that did not pass.
    pub refused: u64,
    /// Bytes to the outside.
    pub sent: u64,
    /// Bytes from there.
    pub received: u64,
}

impl Usage {
    /// What a sandbox's first process says about it.
    pub fn measured(facts: &BTreeMap<String, String>) -> Self {
        let number = |name: &str| facts.get(name).and_then(|value| value.parse::<u64>().ok());
        Self {
            memory_peak: number("memory_peak"),
            cpu_nanoseconds: number("cpu_nanoseconds"),
            pids_peak: number("pids_peak"),
            pids_refused: number("pids_refused").unwrap_or_default(),
            oom_kills: number("oom_kills").unwrap_or_default(),
            ..Self::default()
        }
    }
}

/// Everything known about an end.
#[derive(Clone, Debug, Default)]
pub struct RunObservations {
    /// From inside, unless it vanished.
    pub end: Option<CommandEnd>,
    /// What the engine says the sandbox's exit code was.
    pub code: Option<i64>,
    /// The engine says that memory ran out at some time.
    pub oom_killed: bool,
    /// Places that were full at the end.
    pub full: Option<String>,
    /// What we did to it.
    pub stopped: Option<StopReason>,
    /// The last that its gateway said before it died, if it did so before the
    /// command had ended.
    pub gateway_died: Option<String>,
    /// Refused requests make a run fail that would not have otherwise.
    pub fail_on_denied: bool,
    pub usage: Usage,
}

impl RunObservations {
    /// What a spool tells about the end, to whoever was not there.
    pub fn from_spool(SpoolEnd { end, facts }: SpoolEnd) -> Self {
        let facts: BTreeMap<String, String> = facts.into_iter().collect();
        let full = facts.get("full").filter(|full| *full != "none").cloned();
        let usage = Usage::measured(&facts);
        Self { end: Some(end), full, usage, ..Self::default() }
    }
}

/// Why the runner itself ended a command.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum StopReason {
    Cancelled {
        signal: u8,
    },
    /// It wrote more into the workspace than it may.
    Disk(Full),
    Output {
        limit: u64,
    },
    /// The deadline passed and the sandbox did not keep it by itself.
    Overdue,
    /// Its gateway died: nothing is reachable any more, and nothing recorded.
    WithoutGateway,
}

/// Names the reason.
pub fn judge(seen: &RunObservations) -> Outcome {
    match seen.stopped {
        Some(StopReason::Disk(full)) => {
            return Outcome::Disk { full: written_full(WORKSPACE, full), code: 137 };
        }
        Some(StopReason::Output { limit }) => return Outcome::Output { limit },
        Some(StopReason::Overdue) => return Outcome::Timeout,
        Some(StopReason::Cancelled { .. } | StopReason::WithoutGateway) | None => {}
    }
    if let (None | Some(StopReason::WithoutGateway), Some(said)) =
        (seen.stopped, &seen.gateway_died)
    {
        return Outcome::Failed {
            why: format!("its gateway died before it ended; it said: {said}"),
        };
    }
    let code = match &seen.end {
        Some(CommandEnd::Deadline) => return Outcome::Timeout,
        Some(CommandEnd::Unrecorded(why)) => {
            return Outcome::Failed { why: format!("what it printed cannot be recorded: {why}") };
        }
        // Without a limit of ours: see `StopReason::Output`.
        Some(CommandEnd::OutputLimit) => 137,
        Some(CommandEnd::Exited(code) | CommandEnd::Unstartable { code, .. }) => *code,
        Some(CommandEnd::Signaled(number)) => 128_u8.saturating_add(*number),
        None => match (seen.code, seen.stopped) {
            (_, Some(StopReason::Cancelled { signal })) => return Outcome::Cancelled { signal },
            (Some(KILLED), None) if seen.oom_killed => return Outcome::Oom,
            (code, _) => return Outcome::Lost { why: lost(code) },
        },
    };
    let killed = i64::from(code) == KILLED;
    // A child that the kernel killed does not make a run that went on fail.
    if killed && (seen.oom_killed || seen.usage.oom_kills > 0) {
        return Outcome::Oom;
    }
    if let Some(StopReason::Cancelled { signal }) = seen.stopped {
        return Outcome::Cancelled { signal };
    }
    // Whatever its code: a shell whose children could not be made may well end
    // with zero.
    if seen.usage.pids_refused > 0 {
        return Outcome::Pids { refused: seen.usage.pids_refused, code };
    }
    if seen.end == Some(CommandEnd::Signaled(FILE_TOO_LARGE)) && seen.full.is_none() {
        return Outcome::Disk { full: "the largest file it may write".to_owned(), code };
    }
    match &seen.full {
        Some(full) if code != 0 => Outcome::Disk { full: full.clone(), code },
        Some(_) | None => exited(code, seen),
    }
}

fn exited(code: u8, seen: &RunObservations) -> Outcome {
    match seen.usage.network {
        Some(Traffic { refused, .. }) if seen.fail_on_denied && refused > 0 => {
            Outcome::Denied { requests: refused }
        }
        Some(_) | None => Outcome::Exited { code },
    }
}

/// What is full, and of what.
fn written_full(place: &str, full: Full) -> String {
    match full {
        Full::Bytes => place.to_owned(),
        Full::Deep => format!("{place} (nested too deep to be measured)"),
        Full::Files => format!("{place} (number of files)"),
        Full::Host => format!("the disk under {place}"),
    }
}

/// The signal that a file larger than permitted brings.
const FILE_TOO_LARGE: u8 = 25;

/// The exit code of something that was killed outright.
const KILLED: i64 = 137;

fn lost(code: Option<i64>) -> String {
    match code {
        Some(code) => format!("the sandbox ended with code {code} without saying why"),
        None => "the sandbox is gone, and so is what it knew".to_owned(),
    }
}

impl Outcome {
    /// What our own process ends with.
    pub fn code(&self) -> u8 {
        match self {
            Self::Cancelled { signal } => 128_u8.saturating_add(*signal),
            Self::Denied { .. } => 3,
            Self::Disk { code, .. } | Self::Exited { code } | Self::Pids { code, .. } => *code,
            Self::Failed { .. } | Self::Lost { .. } => 125,
            Self::Oom | Self::Output { .. } => 137,
            Self::Stopped => 0,
            Self::Expired | Self::Timeout => 124,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled { signal } => write!(f, "cancelled by signal {signal}"),
            Self::Denied { requests: 1 } => f.write_str("policy refused a request"),
            Self::Denied { requests } => write!(f, "policy refused {requests} requests"),
            Self::Disk { full, code } => {
                write!(f, "disk: {full} is full; it ended with code {code}")
            }
            Self::Exited { code } => write!(f, "exited with code {code}"),
            Self::Expired => f.write_str("expired: the session's time was over"),
            Self::Failed { why } => write!(f, "failed: {why}"),
            Self::Lost { why } => write!(f, "lost: {why}"),
            Self::Oom => f.write_str("oom: it took more memory than it may have"),
            Self::Output { limit } => write!(f, "output: it printed more than {limit} bytes"),
            Self::Pids { refused, code } => write!(
                f,
                "pids: it was refused {refused} more processes, and ended with code {code}"
            ),
            Self::Stopped => f.write_str("stopped"),
            Self::Timeout => f.write_str("timeout: it took more time than it may have"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! outcome {
        ($claim:ident, $seen:expr, $expected:expr) => {
            #[test]
            fn $claim() {
                let outcome = judge(&$seen);
                assert_eq!(format!("{} {outcome}", outcome.code()), $expected);
            }
        };
    }

    fn ended(end: CommandEnd) -> RunObservations {
        RunObservations { end: Some(end), ..RunObservations::default() }
    }

    fn refused(pids: u64, code: u8) -> RunObservations {
        let usage = Usage { pids_refused: pids, ..Usage::default() };
        RunObservations { usage, ..ended(CommandEnd::Exited(code)) }
    }

    outcome!(a_code_is_the_commands, ended(CommandEnd::Exited(7)), "7 exited with code 7");
    outcome!(a_signal_is_a_code, ended(CommandEnd::Signaled(15)), "143 exited with code 143");
    outcome!(
        killed_for_memory_is_oom,
        RunObservations { oom_killed: true, ..ended(CommandEnd::Signaled(9)) },
        "137 oom: it took more memory than it may have"
    );
    outcome!(
        a_child_killed_for_memory_is_not_the_end,
        RunObservations { oom_killed: true, ..ended(CommandEnd::Exited(0)) },
        "0 exited with code 0"
    );
    outcome!(
        killed_without_want_of_memory_is_not_oom,
        ended(CommandEnd::Signaled(9)),
        "137 exited with code 137"
    );
    outcome!(
        the_first_process_killed_for_memory_is_oom,
        RunObservations { oom_killed: true, code: Some(137), ..RunObservations::default() },
        "137 oom: it took more memory than it may have"
    );
    outcome!(
        the_deadline_kept_inside_is_a_timeout,
        ended(CommandEnd::Deadline),
        "124 timeout: it took more time than it may have"
    );
    outcome!(
        the_deadline_kept_outside_is_a_timeout,
        RunObservations {
            stopped: Some(StopReason::Overdue),
            code: Some(137),
            ..RunObservations::default()
        },
        "124 timeout: it took more time than it may have"
    );
    outcome!(
        failing_for_want_of_processes_is_pids,
        refused(3, 1),
        "1 pids: it was refused 3 more processes, and ended with code 1"
    );
    outcome!(
        being_refused_processes_is_named_whatever_the_code,
        refused(121, 0),
        "0 pids: it was refused 121 more processes, and ended with code 0"
    );
    outcome!(
        failing_on_a_full_disk_is_disk,
        RunObservations { full: Some("/tmp".into()), ..ended(CommandEnd::Exited(1)) },
        "1 disk: /tmp is full; it ended with code 1"
    );
    outcome!(
        a_file_larger_than_permitted_is_disk,
        ended(CommandEnd::Signaled(25)),
        "153 disk: the largest file it may write is full; it ended with code 153"
    );
    fn denied(fail_on_denied: bool, refused: u64, end: CommandEnd) -> RunObservations {
        let network = Some(Traffic { requests: 9, refused, ..Traffic::default() });
        let usage = Usage { network, ..Usage::default() };
        RunObservations { fail_on_denied, usage, ..ended(end) }
    }

    outcome!(
        a_refused_request_fails_the_run_where_that_was_asked_for,
        denied(true, 2, CommandEnd::Exited(0)),
        "3 policy refused 2 requests"
    );
    outcome!(
        a_refused_request_is_the_commands_own_business_otherwise,
        denied(false, 2, CommandEnd::Exited(0)),
        "0 exited with code 0"
    );
    outcome!(
        nothing_refused_is_nothing_denied,
        denied(true, 0, CommandEnd::Exited(0)),
        "0 exited with code 0"
    );
    outcome!(
        out_of_time_stays_out_of_time,
        denied(true, 2, CommandEnd::Deadline),
        "124 timeout: it took more time than it may have"
    );
    outcome!(
        stopped_before_it_started_is_cancelled,
        RunObservations {
            stopped: Some(StopReason::Cancelled { signal: 2 }),
            ..RunObservations::default()
        },
        "130 cancelled by signal 2"
    );
    outcome!(
        stopped_by_a_person_is_cancelled,
        RunObservations {
            stopped: Some(StopReason::Cancelled { signal: 2 }),
            ..ended(CommandEnd::Signaled(2))
        },
        "130 cancelled by signal 2"
    );
    outcome!(
        too_much_output_is_named_whatever_the_code,
        RunObservations {
            stopped: Some(StopReason::Output { limit: 5 }),
            ..ended(CommandEnd::Signaled(9))
        },
        "137 output: it printed more than 5 bytes"
    );
    outcome!(
        writing_too_much_is_disk_whatever_the_code,
        RunObservations {
            stopped: Some(StopReason::Disk(Full::Bytes)),
            ..ended(CommandEnd::Signaled(9))
        },
        "137 disk: /workspace is full; it ended with code 137"
    );
    outcome!(
        too_many_files_are_named,
        RunObservations {
            stopped: Some(StopReason::Disk(Full::Files)),
            ..RunObservations::default()
        },
        "137 disk: /workspace (number of files) is full; it ended with code 137"
    );
    fn without_gateway(seen: RunObservations) -> RunObservations {
        RunObservations { gateway_died: Some("nothing".to_owned()), ..seen }
    }

    outcome!(
        a_gateway_that_died_is_a_failure_whatever_the_code,
        without_gateway(ended(CommandEnd::Exited(0))),
        "125 failed: its gateway died before it ended; it said: nothing"
    );
    outcome!(
        a_sandbox_ended_for_its_gateways_death_is_a_failure,
        without_gateway(RunObservations {
            stopped: Some(StopReason::WithoutGateway),
            code: Some(137),
            ..RunObservations::default()
        }),
        "125 failed: its gateway died before it ended; it said: nothing"
    );
    outcome!(
        a_person_who_stops_everything_has_stopped_it,
        without_gateway(RunObservations {
            stopped: Some(StopReason::Cancelled { signal: 15 }),
            ..RunObservations::default()
        }),
        "143 cancelled by signal 15"
    );
    outcome!(
        silence_is_lost_not_success,
        RunObservations { code: Some(0), ..RunObservations::default() },
        "125 lost: the sandbox ended with code 0 without saying why"
    );
}
