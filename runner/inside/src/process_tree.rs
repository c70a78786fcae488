//! Processes of this machine, as `/proc/<pid>/stat` describes them.
//!
//! The kernel's own list of a process's children (`/proc/<pid>/task/*/children`)
//! leaves some out when one of them exits while it is read. So every process is
//! asked for its parent instead.

use std::collections::{HashMap, HashSet};
use std::fs;

/// What is read of one process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProcessStat {
    pub pid: i32,
    pub parent: i32,
    /// It has ended and waits to be reaped.
    pub is_zombie: bool,
    /// Processor time of its own, without that of ended children.
    pub cpu_nanoseconds: u64,
    /// Processor time of ended children.
    pub children_cpu_nanoseconds: u64,
    pub threads: u64,
    /// When it was started, in ticks since the machine booted.
    pub started_ticks: u64,
    pub resident_bytes: u64,
}

impl ProcessStat {
    /// Nothing if there is no such process.
    pub fn of(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name stands in brackets and may hold anything, brackets too.
        let (head, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            pid: head.split(' ').next()?.parse().ok()?,
            parent: fields.get(1)?.parse().ok()?,
            is_zombie: *fields.first()? == "Z",
            cpu_nanoseconds: (number(11)? + number(12)?) * TICK_NANOSECONDS,
            children_cpu_nanoseconds: (number(13)? + number(14)?) * TICK_NANOSECONDS,
            threads: number(17)?,
            started_ticks: number(19)?,
            resident_bytes: number(21)? * PAGE_BYTES,
        })
    }
}

/// `first` and everything below it; empty if `first` has ended.
pub fn family(first: i32) -> Vec<ProcessStat> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let all: Vec<ProcessStat> = pids.filter_map(ProcessStat::of).collect();
    family_among(first, &all)
}

fn family_among(first: i32, all: &[ProcessStat]) -> Vec<ProcessStat> {
    let mut children: HashMap<i32, Vec<&ProcessStat>> = HashMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process);
    }
    let mut family: Vec<ProcessStat> =
        all.iter().filter(|process| process.pid == first).copied().collect();
    let mut known: HashSet<i32> = family.iter().map(|process| process.pid).collect();
    let mut asked = 0;
    while let Some(pid) = family.get(asked).map(|process| process.pid) {
        asked += 1;
        for child in children.get(&pid).into_iter().flatten() {
            // Read at different moments, processes can seem to be each other's parents.
            if known.insert(child.pid) {
                family.push(**child);
            }
        }
    }
    family
}

/// The unit in which the kernel tells programs times, whatever its own clock.
const TICK_NANOSECONDS: u64 = 10_000_000;
/// On every machine we are built for.
pub const PAGE_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn process(pid: i32, parent: i32) -> ProcessStat {
        let stat = format!("{pid} (x) S {parent} 7 7 0 -1 0 0 0 0 0 1 2 3 4 20 0 5 0 99 1000 6 0");
        ProcessStat::parse(&stat).unwrap()
    }

    #[test]
    fn a_name_cannot_pass_for_numbers() {
        let stat = "7 (x) S 1 1) R 3 7 7 0 -1 0 0 0 0 0 1 2 3 4 20 0 5 0 99 1000 6 0";
        assert_eq!(
            ProcessStat::parse(stat).unwrap(),
            ProcessStat {
                pid: 7,
                parent: 3,
                is_zombie: false,
                cpu_nanoseconds: 30_000_000,
                children_cpu_nanoseconds: 70_000_000,
                threads: 5,
                started_ticks: 99,
                resident_bytes: 6 * 4096,
            }
        );
        assert_eq!(ProcessStat::parse("7 (x) S"), None);
    }

    #[test]
    fn a_family_is_the_first_and_all_that_come_from_it() {
        let all = [process(1, 0), process(5, 1), process(6, 5), process(7, 6), process(8, 1)];
        let pids = |first| -> Vec<i32> {
            family_among(first, &all).iter().map(|process| process.pid).collect()
        };
        assert_eq!(pids(5), [5, 6, 7]);
        assert_eq!(pids(9), [0; 0], "it has ended");
    }

    #[test]
    fn processes_that_seem_to_be_each_others_parents_end_the_walk() {
        let all = [process(5, 6), process(6, 5)];
        assert_eq!(family_among(5, &all).len(), 2);
    }

    #[test]
    fn we_are_a_process() {
        let us = i32::try_from(std::process::id()).unwrap();
        let stat = ProcessStat::of(us).unwrap();
        assert!(stat.resident_bytes > 0 && stat.threads > 0 && stat.started_ticks > 0);
        assert!(!stat.is_zombie);
        assert_eq!(ProcessStat::of(i32::MAX), None);
    }

    #[test]
    fn a_child_and_its_child_are_below_us_whoever_else_ends() {
        let mut child = Command::new("sh")
            // A shell gives what it starts in the background an empty input, at whose
            // end `cat` would leave: so it is told which input to read.
            .args(["-c", "exec 3<&0; cat <&3 & echo $!; wait"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let told = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(told), &mut line).unwrap();
        let grandchild: i32 = line.trim().parse().unwrap();
        let us = i32::try_from(std::process::id()).unwrap();
        // The kernel's own list of children loses some when others end meanwhile.
        let others = std::thread::spawn(|| {
            for _ in 0..100 {
                Command::new("true").status().unwrap();
            }
        });
        while !others.is_finished() {
            let pids: Vec<i32> = family(us).iter().map(|process| process.pid).collect();
            assert!(
                pids.contains(&i32::try_from(child.id()).unwrap()) && pids.contains(&grandchild)
            );
        }
        others.join().unwrap();
        drop(child.stdin.take());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
