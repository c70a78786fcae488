//! What a sandbox takes at this moment.
//!
//! Its control groups know; where there are none, its processes are asked one by
//! one.

use inside::process_tree::family;
use rustix::process::Pid;

use super::groups::Groups;
use crate::backend::Stats;
use crate::plan::RunId;

pub(super) fn stats(groups: &Groups, run: &RunId, launcher: Pid) -> Stats {
    let counted = groups.stats(run);
    if counted != Stats::default() {
        return counted;
    }
    let mut stats = Stats::default();
    for process in family(launcher.as_raw_pid()).iter().skip(1) {
        stats.pids += process.threads;
        stats.memory += process.resident_bytes;
        stats.cpu_nanoseconds += process.cpu_nanoseconds;
    }
    stats
}
