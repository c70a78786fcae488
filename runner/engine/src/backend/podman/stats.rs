//! What a sandbox takes at this moment, where no control group counts it.
//!
//! Podman would answer with the numbers of a group that is not the sandbox's. So
//! the sandbox's processes are counted, from outside: they are all children of
//! its first, or theirs.

use std::fs;

use bollard::query_parameters::InspectContainerOptions;
use inside::process_tree::family;

use super::Podman;
use crate::backend::engine::labels::RunNames;
use crate::backend::engine::stats::gateway_counts;
use crate::backend::engine::status;
use crate::backend::{BackendError, BackendStep, Stats};
use crate::plan::RunId;

/// One measurement; nothing when there is no such sandbox.
pub(super) async fn stats(podman: &Podman, run: &RunId) -> Result<Option<Stats>, BackendError> {
    let name = RunNames::of(run).sandbox;
    let found = podman.engine.api.inspect_container(&name, None::<InspectContainerOptions>).await;
    let first = match found {
        Err(err) if status(&err) == Some(404) => return Ok(None),
        Err(err) => return Err(podman.broken(BackendStep::Measure, err)),
        Ok(found) => found.state.and_then(|state| state.pid).unwrap_or_default(),
    };
    let mut counted = u32::try_from(first).ok().filter(|first| *first > 0).and_then(count);
    if let Some(stats) = &mut counted
        && (stats.sent, stats.received) == (0, 0)
        && let Some((sent, received)) = gateway_counts(&podman.engine, run).await
    {
        (stats.sent, stats.received) = (sent, received);
    }
    Ok(counted)
}

/// Counts the processes below `first`, which may end meanwhile.
fn count(first: u32) -> Option<Stats> {
    let read = |name: &str| fs::read_to_string(format!("/proc/{first}/{name}")).unwrap_or_default();
    let inside = family(i32::try_from(first).ok()?);
    let (received, sent) = traffic(&read("net/dev"));
    let mut stats =
        Stats { pids_limit: most_processes(&read("limits")), received, sent, ..Stats::default() };
    for process in &inside {
        stats.cpu_nanoseconds += process.cpu_nanoseconds + process.children_cpu_nanoseconds;
        stats.memory += process.resident_bytes;
        stats.pids += process.threads;
    }
    (!inside.is_empty()).then_some(stats)
}

/// Bytes in and out, of every device but the loop.
fn traffic(table: &str) -> (u64, u64) {
    let devices = table.lines().filter_map(|line| line.split_once(':'));
    let counts = devices.filter(|(name, _)| name.trim() != "lo").map(|(_, counts)| {
        let counts: Vec<u64> =
            counts.split_whitespace().map(|count| count.parse().unwrap_or(0)).collect();
        (counts.first().copied().unwrap_or(0), counts.get(8).copied().unwrap_or(0))
    });
    counts.fold((0, 0), |(received, sent), (more, gone)| (received + more, sent + gone))
}

fn most_processes(limits: &str) -> u64 {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max processes"));
    let hard = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    hard.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_is_no_traffic() {
        let table = "Inter-| Receive | Transmit\n face |bytes\n    lo: 9 0 0 0 0 0 0 0 9 0\n  \
                     eth0: 100 1 0 0 0 0 0 0 200 1\n";
        assert_eq!(traffic(table), (100, 200));
    }

    #[test]
    fn the_limit_is_the_one_that_cannot_be_raised() {
        let limits =
            "Max stack size 1 2 bytes\nMax processes             10       512   processes\n";
        assert_eq!(most_processes(limits), 512);
    }
}
