//! What a sandbox takes at this moment, where no control group counts it.
//!
//! Podman would answer with the numbers of a group that is not the sandbox's. So
//! the sandbox's processes are counted, from outside: they are all children of
//! its first, or theirs.

use std::collections::{HashMap, HashSet};
use std::fs;

use bollard::query_parameters::InspectContainerOptions;

use super::Podman;
use crate::backend::engine::labels::Names;
use crate::backend::engine::status;
use crate::backend::{BackendError, Stats, Step};
use crate::plan::RunId;

/// One measurement; nothing when there is no such sandbox.
pub(super) async fn stats(podman: &Podman, run: &RunId) -> Result<Option<Stats>, BackendError> {
    let name = Names::of(run).sandbox;
    let found = podman.engine.api.inspect_container(&name, None::<InspectContainerOptions>).await;
    let first = match found {
        Err(err) if status(&err) == Some(404) => return Ok(None),
        Err(err) => return Err(podman.broken(Step::Measure, err)),
        Ok(found) => found.state.and_then(|state| state.pid).unwrap_or_default(),
    };
    Ok(u32::try_from(first).ok().filter(|first| *first > 0).and_then(count))
}

/// Counts the processes below `first`, which may end meanwhile.
fn count(first: u32) -> Option<Stats> {
    let read = |name: &str| fs::read_to_string(format!("/proc/{first}/{name}")).unwrap_or_default();
    let numbers = fs::read_dir("/proc").ok()?.flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let all: Vec<Process> = numbers
        .filter_map(|number| {
            Process::parse(&fs::read_to_string(format!("/proc/{number}/stat")).ok()?)
        })
        .collect();
    let inside = family(first, &all);
    let (received, sent) = traffic(&read("net/dev"));
    let mut stats =
        Stats { pids_limit: most_processes(&read("limits")), received, sent, ..Stats::default() };
    for process in all.iter().filter(|process| inside.contains(&process.number)) {
        stats.cpu_nanoseconds += process.ticks * A_TICK;
        stats.memory += process.pages * A_PAGE;
        stats.pids += process.threads;
    }
    (!inside.is_empty()).then_some(stats)
}

/// The parts of `/proc/<pid>/stat` that are counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Process {
    number: u32,
    parent: u32,
    /// Of processor time, its ended children's included.
    ticks: u64,
    threads: u64,
    /// Of memory.
    pages: u64,
}

impl Process {
    fn parse(stat: &str) -> Option<Self> {
        // The name stands in brackets and may hold anything.
        let (head, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let field = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            number: head.split(' ').next()?.parse().ok()?,
            parent: fields.get(1)?.parse().ok()?,
            ticks: field(11)? + field(12)? + field(13)? + field(14)?,
            threads: field(17)?,
            pages: field(21)?,
        })
    }
}

/// `first` and everything that comes from it.
fn family(first: u32, all: &[Process]) -> HashSet<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process.number);
    }
    let known = all.iter().any(|process| process.number == first);
    let mut left = if known { vec![first] } else { Vec::new() };
    let mut inside = HashSet::new();
    while let Some(process) = left.pop() {
        if inside.insert(process) {
            left.extend(children.get(&process).into_iter().flatten());
        }
    }
    inside
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

/// Nanoseconds in the unit that the kernel tells programs times in.
const A_TICK: u64 = 10_000_000;
/// Bytes, on every machine we are built for.
const A_PAGE: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn process(number: u32, parent: u32) -> Process {
        Process { number, parent, ticks: 1, threads: 1, pages: 1 }
    }

    #[test]
    fn a_name_cannot_pass_for_numbers() {
        let stat = "7 (x) S 1 1) R 3 7 7 0 -1 0 0 0 0 0 1 2 3 4 20 0 5 0 99 1000 6 0";
        let found = Process::parse(stat).unwrap();
        assert_eq!(found, Process { number: 7, parent: 3, ticks: 10, threads: 5, pages: 6 });
        assert_eq!(Process::parse("7 (x) S"), None);
    }

    #[test]
    fn a_family_is_the_first_and_all_that_come_from_it() {
        let all = [process(1, 0), process(5, 1), process(6, 5), process(7, 6), process(8, 1)];
        assert_eq!(family(5, &all), HashSet::from([5, 6, 7]));
        assert_eq!(family(9, &all), HashSet::new(), "it has ended");
    }

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
