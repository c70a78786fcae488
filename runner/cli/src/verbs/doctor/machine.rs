//! What this machine offers to whoever builds walls, measured.

use std::fs;
use std::process::{Command, Stdio};

use engine::backend::namespaces;
use inside::launch::raw;
use serde::Serialize;

/// One thing about the machine.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(super) struct Fact {
    pub(super) what: &'static str,
    pub(super) found: String,
    /// What to do about it, where it is a shortfall.
    pub(super) advice: Option<String>,
}

/// All of it.
pub(super) fn facts() -> Vec<Fact> {
    vec![
        plain("kernel", first_line("/proc/sys/kernel/osrelease")),
        plain("user", user()),
        control_groups(),
        user_namespaces(),
        system_call_filters(),
        landlock(),
        firewall(),
        open_files(),
    ]
}

fn plain(what: &'static str, found: String) -> Fact {
    Fact { what, found, advice: None }
}

fn advised(what: &'static str, found: impl Into<String>, advice: &str) -> Fact {
    Fact { what, found: found.into(), advice: Some(advice.to_owned()) }
}

fn user() -> String {
    match rustix::process::geteuid().as_raw() {
        0 => "root".to_owned(),
        uid => format!("user {uid}, not root"),
    }
}

fn control_groups() -> Fact {
    let what = "control groups";
    let unified = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers");
    if let Ok(controllers) = unified {
        let made = namespaces::control_groups();
        return plain(what, format!("version 2: {}; {made}", controllers.trim()));
    }
    let table = fs::read_to_string("/proc/cgroups").unwrap_or_default();
    let has = |name: &str| {
        table.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some(name) && words.nth(2) == Some("1")
        })
    };
    let missing: Vec<_> = ["cpu", "memory", "pids"].into_iter().filter(|name| !has(name)).collect();
    match missing.is_empty() {
        true => {
            let made = namespaces::control_groups();
            plain(what, format!("version 1: cpu, memory, pids; {made}"))
        }
        false => advised(
            what,
            format!("version 1, without {}", missing.join(", ")),
            "limits on these cannot be kept; boot with control groups version 2",
        ),
    }
}

fn user_namespaces() -> Fact {
    let what = "user namespaces";
    let setting = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    if setting("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        let advice = "sysctl kernel.unprivileged_userns_clone=1, for `--backend namespaces`";
        return advised(what, "closed to users", advice);
    }
    if setting("/proc/sys/user/max_user_namespaces").as_deref() == Some("0") {
        let advice = "sysctl user.max_user_namespaces=10000, for `--backend namespaces`";
        return advised(what, "none allowed", advice);
    }
    if setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        let advice = "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor \
                      profile for sluice-launch, for `--backend namespaces`";
        return advised(what, "held back by AppArmor", advice);
    }
    // What the settings promise, tried.
    let tried = Command::new("unshare")
        .args(["--user", "--map-root-user", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match tried {
        Ok(status) if status.success() => plain(what, "open, tried".to_owned()),
        Ok(_) => advised(what, "settings say open, and it fails", "a security module forbids it"),
        Err(_) => plain(what, "settings say open; not tried, there is no `unshare`".to_owned()),
    }
}

fn system_call_filters() -> Fact {
    let what = "system call filters";
    match fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail") {
        Ok(actions) if actions.contains("errno") => plain(what, "available".to_owned()),
        Ok(_) | Err(_) => {
            advised(what, "not available", "this kernel has no seccomp; nothing will start")
        }
    }
}

fn landlock() -> Fact {
    let what = "Landlock";
    match raw::landlock_version() {
        Some(version) => plain(what, format!("version {version}")),
        None => advised(
            what,
            "not available",
            "the second wall of `--backend namespaces` is missing; kernels from 5.13 have it",
        ),
    }
}

/// The one rule that root sets for sandboxes' bridges.
fn firewall() -> Fact {
    let what = "firewall rule for sandboxes' bridges";
    if !rustix::process::geteuid().is_root() {
        let found = "not ours to set: not root; the bridges have no address either way";
        return plain(what, found.to_owned());
    }
    let rule = ["-w", "5", "-C", "INPUT", "-i", "slc-+", "-j", "DROP"];
    let tried = Command::new("iptables")
        .args(rule)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match tried {
        Ok(status) if status.success() => plain(what, "in force".to_owned()),
        Ok(_) => plain(what, "not there yet; the first run with a network sets it".to_owned()),
        Err(_) => advised(what, "cannot be set", "install iptables, for a second wall"),
    }
}

fn open_files() -> Fact {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let what = "open files";
    match limit {
        Some(most) if most < 4096 => {
            advised(what, most.to_string(), "raise the hard limit (ulimit -Hn) to 16384")
        }
        Some(most) => plain(what, most.to_string()),
        None => plain(what, "unlimited".to_owned()),
    }
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}
