//! What a sandbox takes at this moment.
//!
//! Its control groups know; where there are none, its processes are asked one by
//! one.

use std::fs;

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
    for pid in below(launcher.as_raw_pid()) {
        let Some(taken) = process(pid) else { continue };
        stats.pids += taken.threads;
        stats.memory += taken.memory;
        stats.cpu_nanoseconds += taken.cpu_nanoseconds;
    }
    stats
}

struct Taken {
    threads: u64,
    memory: u64,
    cpu_nanoseconds: u64,
}

/// Everything that has `pid` above it.
fn below(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut to_ask = vec![pid];
    while let Some(pid) = to_ask.pop() {
        for child in children(pid) {
            found.push(child);
            to_ask.push(child);
        }
        // More than any limit permits: whoever forks this fast is not waited for.
        if found.len() > MOST {
            break;
        }
    }
    found
}

fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    texts.flat_map(|text| numbers(&text)).collect()
}

fn numbers(text: &str) -> Vec<i32> {
    text.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

fn process(pid: i32) -> Option<Taken> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    read(&text)
}

/// From behind the process's name, which may hold anything.
fn read(stat: &str) -> Option<Taken> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let number = |at: usize| fields.get(at)?.trim().parse::<u64>().ok();
    Some(Taken {
        threads: number(17)?,
        memory: number(21)? * PAGE,
        cpu_nanoseconds: (number(11)? + number(12)?) * TICK,
    })
}

const MOST: usize = 65_536;
const PAGE: u64 = 4096;
/// The kernel counts in hundredths of a second here, whatever its own clock.
const TICK: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processs_name_does_not_confuse_the_count() {
        let stat = "7 (a) b) 9) S 1 7 7 0 -1 4194560 100 0 0 0 3 2 0 0 20 0 4 0 100 2000 5 \
                    18446744073709551615";
        let taken = read(stat).unwrap();
        assert_eq!((taken.threads, taken.memory, taken.cpu_nanoseconds), (4, 20_480, 50_000_000));
    }

    #[test]
    fn we_take_something() {
        let us = i32::try_from(std::process::id()).unwrap();
        assert!(process(us).is_some_and(|taken| taken.memory > 0 && taken.threads > 0));
    }
}
