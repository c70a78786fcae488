//! How much memory a process takes.

use std::fs;

/// Bytes of this machine's memory that a process holds now.
pub fn resident(pid: u32) -> u64 {
    field(pid, "VmRSS:")
}

/// The most it ever held.
pub fn peak(pid: u32) -> u64 {
    field(pid, "VmHWM:")
}

fn field(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().unwrap();
    kib * 1024
}

pub const MIB: u64 = 1024 * 1024;
