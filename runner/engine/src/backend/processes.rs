//! The processes of a run, found again after a crash.
//!
//! A number alone is no name: the kernel gives it to the next who comes. So the
//! moment a process was started is remembered beside its number, and nothing is
//! ended before both were found to be the same.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use inside::launch::waiting;
use inside::process_tree::ProcessStat;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;

use crate::plan::RunId;

/// What a process is for its run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::backend) enum Role {
    Gateway,
    Launcher,
}

/// One process, for as long as this machine runs.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Remembered {
    pid: i32,
    /// In ticks since this boot, and which boot.
    started: u64,
    boot: String,
}

/// Writes down that process `pid` belongs to `run`.
pub(in crate::backend) fn remember(
    runtime: &Path,
    run: &RunId,
    role: Role,
    pid: Option<u32>,
) -> io::Result<()> {
    let pid = pid.and_then(|pid| i32::try_from(pid).ok());
    // One that has ended already has nothing to be remembered by.
    let Some((pid, started)) = pid.and_then(|pid| Some((pid, started(pid)?))) else {
        return Ok(());
    };
    let remembered = Remembered { pid, started, boot: boot() };
    fs::write(path(runtime, run, role), serde_json::to_vec(&remembered)?)
}

/// Whether `run` ever had such a process.
pub(in crate::backend) fn is_remembered(runtime: &Path, run: &RunId, role: Role) -> bool {
    path(runtime, run, role).exists()
}

/// The number of that process, if it still lives.
pub(in crate::backend) fn alive(runtime: &Path, run: &RunId, role: Role) -> Option<Pid> {
    let text = fs::read(path(runtime, run, role)).ok()?;
    let remembered: Remembered = serde_json::from_slice(&text).ok()?;
    let same = remembered.boot == boot() && started(remembered.pid) == Some(remembered.started);
    if same { Pid::from_raw(remembered.pid) } else { None }
}

/// Ends that process, and waits until it has ended. That it is gone is as good.
pub(in crate::backend) async fn end(runtime: &Path, run: &RunId, role: Role) -> io::Result<()> {
    let Some(pid) = alive(runtime, run, role) else { return Ok(()) };
    let handle = match pidfd_open(pid, PidfdFlags::NONBLOCK) {
        Ok(handle) => handle,
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        Err(err) => return Err(err.into()),
    };
    // Now that the handle holds it: the number may have changed hands before.
    if alive(runtime, run, role) != Some(pid) {
        return Ok(());
    }
    match pidfd_send_signal(&handle, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(err) => return Err(err.into()),
    }
    let ended = waiting::on(handle, Interest::READABLE)?;
    drop(tokio::time::timeout(ENDING, ended.readable()).await);
    Ok(())
}

fn path(runtime: &Path, run: &RunId, role: Role) -> PathBuf {
    let name = match role {
        Role::Gateway => "gateway.process",
        Role::Launcher => "launcher.process",
    };
    runtime.join(run.as_str()).join(name)
}

/// When a process was started. One that only waits to be reaped has ended.
fn started(pid: i32) -> Option<u64> {
    let stat = ProcessStat::of(pid)?;
    (!stat.is_zombie).then_some(stat.started_ticks)
}

fn boot() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

const ENDING: std::time::Duration = std::time::Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_when_it_was_started() {
        let us = i32::try_from(std::process::id()).unwrap();
        assert!(started(us).unwrap() > 0);
        assert_eq!(started(us), started(us));
        assert_eq!(started(i32::MAX), None);
        assert_eq!(boot().len(), 36);
    }
}
