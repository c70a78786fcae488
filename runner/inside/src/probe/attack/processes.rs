//! Other processes: the sandbox's own first one, and those of the host.

use std::fs::{self, File};
use std::time::Duration;
use std::{io, thread};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::{Attack, AttackVerdict, Targets, attack};

pub(super) const ATTACKS: &[Attack] = &[
    attack("H1", "init-secrets", "read the memory and environment of process 1", init_secrets),
    attack("H3", "host-processes", "see processes of the host", host_processes),
    attack("H6", "kill-init", "kill, stop and end process 1", kill_init),
    attack("H6", "open-files", "open files without end", open_files),
];

fn init_secrets(_: &Targets) -> AttackVerdict {
    let names = ["environ", "mem", "maps", "fd", "root", "cwd", "exe", "stack"];
    let open: Vec<_> = names
        .into_iter()
        .filter(|name| {
            let path = format!("/proc/1/{name}");
            match *name {
                "root" | "cwd" | "exe" => fs::read_link(&path).is_ok(),
                "fd" => fs::read_dir(&path).is_ok_and(|mut fds| fds.next().is_some()),
                // An empty answer is what the kernel gives for a closed one.
                "maps" | "environ" => fs::read(&path).is_ok_and(|bytes| !bytes.is_empty()),
                _ => File::open(&path).is_ok(),
            }
        })
        .collect();
    match open.is_empty() {
        true => AttackVerdict::held("none of it can be read"),
        false => AttackVerdict::broken(format_args!("readable: {}", open.join(" "))),
    }
}

/// Names that stand in every host's table and in no sandbox's.
fn host_processes(_: &Targets) -> AttackVerdict {
    let known = ["kthreadd", "systemd", "dockerd", "containerd", "sluice", "sluice-gateway"];
    let mut seen = Vec::new();
    let mut count = 0;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        count += 1;
        let command = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if known.contains(&command.trim()) {
            seen.push(format!("{name} {}", command.trim()));
        }
    }
    match seen.is_empty() {
        true => AttackVerdict::held(format_args!("{count} processes, all of them the sandbox's")),
        false => AttackVerdict::broken(format_args!("seen: {}", seen.join(", "))),
    }
}

/// If it worked, we would not live to say so: the line would be missing.
fn kill_init(_: &Targets) -> AttackVerdict {
    let mut refused = Vec::new();
    for signal in [Signal::HUP, Signal::TERM, Signal::STOP, Signal::KILL] {
        if let Err(err) = kill_process(Pid::INIT, signal) {
            refused.push(io::Error::from(err).to_string());
        }
    }
    thread::sleep(Duration::from_millis(300));
    match test_kill_process(Pid::INIT) {
        Ok(()) | Err(rustix::io::Errno::PERM) => {
            let stopped = fs::read_to_string("/proc/1/stat").unwrap_or_default();
            let state = stopped.rsplit(')').next().unwrap_or_default().trim();
            match state.starts_with('T') {
                true => AttackVerdict::broken("process 1 is stopped"),
                false => AttackVerdict::held("process 1 goes on"),
            }
        }
        Err(err) => AttackVerdict::broken(format_args!("process 1 is gone: {err}")),
    }
}

fn open_files(_: &Targets) -> AttackVerdict {
    let mut held = Vec::new();
    loop {
        match File::open("/dev/null") {
            Ok(file) => held.push(file),
            Err(err) => {
                return AttackVerdict::held(format_args!("after {} files: {err}", held.len()));
            }
        }
        if held.len() >= FAR_TOO_MANY {
            return AttackVerdict::broken(format_args!("{FAR_TOO_MANY} files are open"));
        }
    }
}

/// More than any limit of ours.
const FAR_TOO_MANY: usize = 300_000;
