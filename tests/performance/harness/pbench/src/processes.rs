//! CPU and memory of a process and all that it started, from `/proc`.

use std::collections::HashMap;
use std::fs;

/// What a tree of processes takes at one moment.
#[derive(Clone, Copy, Default)]
pub(crate) struct TreeUsage {
    pub(crate) rss_kib: u64,
    /// Shared pages counted once; 0 where it cannot be read.
    pub(crate) pss_kib: u64,
    pub(crate) processes: usize,
    pub(crate) descriptors: usize,
}

/// What the whole machine did since it started, all processors together.
#[derive(Clone, Copy)]
pub(crate) struct MachineSeconds {
    pub(crate) busy: f64,
    /// Wanted, and given to others by the host of this virtual machine.
    pub(crate) stolen: f64,
}

/// Seconds of CPU that the tree took, with children that are gone.
pub(crate) fn cpu_seconds(root: u32) -> f64 {
    tree(root).iter().map(|(_, stat)| stat.ticks).sum::<u64>() as f64 / TICKS_PER_SECOND
}

/// Resident memory alone: cheap enough to sample while something is measured.
pub(crate) fn rss_kib(root: u32) -> u64 {
    tree(root).iter().map(|(pid, _)| resident_kib(*pid)).sum()
}

pub(crate) fn usage(root: u32) -> TreeUsage {
    let mut usage = TreeUsage::default();
    for (pid, _) in tree(root) {
        usage.rss_kib += resident_kib(pid);
        usage.pss_kib += field(&read(&format!("/proc/{pid}/smaps_rollup")), "Pss:");
        usage.descriptors += fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        usage.processes += 1;
    }
    usage
}

pub(crate) fn machine_seconds() -> MachineSeconds {
    let stat = read("/proc/stat");
    let first = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = first.split_whitespace().skip(1).flat_map(str::parse).collect();
    // user nice system idle iowait irq softirq steal
    let of = |column: usize| ticks.get(column).copied().unwrap_or(0) as f64 / TICKS_PER_SECOND;
    MachineSeconds { busy: [0, 1, 2, 5, 6].map(of).iter().sum(), stolen: of(7) }
}

/// One line of `/proc/PID/stat`.
struct StatLine {
    parent: u32,
    /// User and system, its own and of children that it waited for.
    ticks: u64,
}

/// `root` and everything below it.
fn tree(root: u32) -> Vec<(u32, StatLine)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut all: HashMap<u32, StatLine> = pids
        .filter_map(|pid| Some((pid, parse_stat(&read(&format!("/proc/{pid}/stat")))?)))
        .collect();
    let mut found = Vec::new();
    let mut left = vec![root];
    while let Some(pid) = left.pop() {
        if let Some(stat) = all.remove(&pid) {
            found.push((pid, stat));
            left.extend(all.iter().filter(|(_, stat)| stat.parent == pid).map(|(pid, _)| *pid));
        }
    }
    found
}

fn parse_stat(line: &str) -> Option<StatLine> {
    // A program may have brackets and blanks in its name.
    let (_, after_name) = line.rsplit_once(") ")?;
    let fields: Vec<&str> = after_name.split(' ').collect();
    let ticks = fields.get(11..15)?.iter().flat_map(|field| field.parse::<u64>()).sum();
    Some(StatLine { parent: fields.get(1)?.parse().ok()?, ticks })
}

fn resident_kib(pid: u32) -> u64 {
    field(&read(&format!("/proc/{pid}/status")), "VmRSS:")
}

/// The number behind `key`; 0 if there is none.
fn field(text: &str, key: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(key));
    value.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Empty for a process that is gone.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The unit in which the kernel tells programs about time, on every machine.
const TICKS_PER_SECOND: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_move_the_columns() {
        let line = "7 (a) b) (c) S 3 7 7 0 -1 0 0 0 0 0 10 20 30 40 20 0 1 0 1 1 1";
        let stat = parse_stat(line).unwrap();
        assert_eq!((stat.parent, stat.ticks), (3, 100));
        assert!(parse_stat("").is_none());
    }

    #[test]
    fn a_field_is_found_by_its_whole_key() {
        let text = "VmHWM:\t  900 kB\nVmRSS:\t  512 kB\n";
        assert_eq!((field(text, "VmRSS:"), field(text, "Pss:")), (512, 0));
    }

    #[test]
    fn this_process_is_its_own_tree() {
        let usage = usage(std::process::id());
        assert!(usage.rss_kib > 0 && usage.processes >= 1 && usage.descriptors > 0);
    }
}
