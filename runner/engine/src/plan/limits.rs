//! How much of the machine a run may take.
//!
//! What the policy sets counts; then what the configuration says; then what is
//! written here. Nothing is ever without a limit.

use std::time::Duration;

use policies::{ProcLimits, Size};
use serde::{Deserialize, Serialize};

/// Every limit of one run. There is no "unlimited".
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Limits {
    /// Thousandths of a processor.
    pub cpu_millis: u32,
    /// Bytes, swap included.
    pub memory: u64,
    /// Processes and threads.
    pub pids: u32,
    /// Bytes in any one place that the run may write to, all files together.
    pub disk: u64,
    /// Wall clock of the command.
    #[serde(rename = "timeout_seconds", with = "crate::record_format::seconds")]
    pub timeout: Duration,
    /// Between asking the command to end and ending it.
    #[serde(rename = "grace_seconds", with = "crate::record_format::seconds")]
    pub grace: Duration,
    /// Bytes the command may print.
    pub output: u64,
    /// File descriptors of one process.
    pub open_files: u64,
}

/// What is known of where we are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Machine {
    pub processors: u32,
    /// The most file descriptors that can be asked for: asking for more would
    /// keep the sandbox from starting.
    pub open_files: u64,
}

impl Machine {
    /// The one we run on.
    pub fn this() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let open_files = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
        Self {
            processors: processors.try_into().unwrap_or(u32::MAX),
            open_files: open_files.unwrap_or(u64::MAX),
        }
    }
}

impl Limits {
    /// The largest file that any process of the sandbox may write. The first process
    /// writes what commands print, which is more than a small disk limit may be.
    pub fn file_bytes(&self) -> u64 {
        self.disk.max(self.output.saturating_mul(2))
    }

    /// Files and directories in any one place that the run may write to: as many
    /// as there are blocks of the usual size.
    pub fn files(&self) -> u64 {
        files_in(self.disk)
    }

    pub(super) fn choose(policy: &ProcLimits, defaults: &ProcLimits, machine: &Machine) -> Self {
        let cpus = policy.cpus.or(defaults.cpus).map_or(CPU_MILLIS, |cpus| cpus.millis());
        let bytes = |policy: Option<Size>, configured: Option<Size>, usual: u64| {
            policy.or(configured).map_or(usual, Size::bytes)
        };
        Self {
            // An engine refuses to promise processors that are not there.
            cpu_millis: cpus.min(machine.processors.saturating_mul(1000)),
            memory: bytes(policy.memory, defaults.memory, MEMORY),
            pids: policy.pids.or(defaults.pids).unwrap_or(PIDS),
            disk: bytes(policy.disk, defaults.disk, DISK),
            timeout: policy.timeout.or(defaults.timeout).map_or(TIMEOUT, |span| span.get()),
            grace: GRACE,
            output: bytes(policy.output, defaults.output, OUTPUT),
            open_files: OPEN_FILES.min(machine.open_files),
        }
    }
}

/// How many files belong to so many bytes.
pub(crate) fn files_in(bytes: u64) -> u64 {
    (bytes / 4096).max(1024)
}

const CPU_MILLIS: u32 = 2000;
const MEMORY: u64 = 2 << 30;
const PIDS: u32 = 512;
const DISK: u64 = 4 << 30;
const TIMEOUT: Duration = Duration::from_secs(60 * 60);
const GRACE: Duration = Duration::from_secs(5);
const OUTPUT: u64 = 64 << 20;
const OPEN_FILES: u64 = 16 * 1024;

#[cfg(test)]
mod tests {
    use policies::Cpus;

    use super::*;

    const MACHINE: Machine = Machine { processors: 2, open_files: 20_000 };

    #[test]
    fn the_policy_counts_before_the_configuration_and_that_before_the_usual() {
        let policy = ProcLimits { pids: Some(7), ..ProcLimits::default() };
        let defaults =
            ProcLimits { pids: Some(9), memory: Size::from_bytes(5), ..ProcLimits::default() };
        let limits = Limits::choose(&policy, &defaults, &MACHINE);
        assert_eq!((limits.pids, limits.memory, limits.disk), (7, 5, DISK));
    }

    #[test]
    fn nothing_is_asked_of_the_machine_that_it_does_not_have() {
        let policy = ProcLimits { cpus: Cpus::parse("64").ok(), ..ProcLimits::default() };
        let machine = Machine { processors: 2, open_files: 1024 };
        let limits = Limits::choose(&policy, &ProcLimits::default(), &machine);
        assert_eq!((limits.cpu_millis, limits.open_files), (2000, 1024));
    }
}
