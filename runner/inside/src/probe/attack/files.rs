//! Files through which a sandbox could reach its host, and places it must not
//! write to.
//!
//! Nothing is written to what already exists: that it could be opened for
//! writing is enough.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::{Attack, AttackVerdict, Targets, attack};

pub(super) const ATTACKS: &[Attack] = &[
    attack("H2", "sysrq", "open /proc/sysrq-trigger for writing", |_| {
        writable(&["/proc/sysrq-trigger"])
    }),
    attack("H2", "core-pattern", "open the kernel's helper programs' settings for writing", |_| {
        writable(&[
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/modprobe",
            "/proc/sys/kernel/hotplug",
            "/proc/sys/fs/binfmt_misc/register",
            "/sys/kernel/uevent_helper",
            "/sys/fs/cgroup/release_agent",
        ])
    }),
    attack("H2", "kernel-settings", "open kernel settings for writing", |_| {
        writable(&[
            "/proc/sys/kernel/panic",
            "/proc/sys/kernel/yama/ptrace_scope",
            "/proc/sys/net/ipv4/ip_forward",
            "/proc/sys/net/ipv4/conf/all/route_localnet",
            "/proc/sys/net/ipv6/conf/all/disable_ipv6",
            "/proc/sys/user/max_user_namespaces",
            "/proc/sys/vm/panic_on_oom",
            "/sys/power/state",
            "/sys/module/kernel/parameters/panic",
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "/sys/kernel/security/landlock",
        ])
    }),
    attack("H2", "kernel-memory", "read the kernel's memory", |_| {
        readable(&["/proc/kcore", "/dev/mem", "/dev/kmem", "/dev/port"])
    }),
    attack("H2", "kernel-secrets", "read the kernel's log, keys, timers and traces", |_| {
        readable(&[
            "/dev/kmsg",
            "/proc/kmsg",
            "/proc/keys",
            "/proc/timer_list",
            "/sys/kernel/debug/sched/debug",
            "/sys/kernel/tracing/trace",
            "/sys/kernel/debug/tracing/trace",
            "/sys/firmware/acpi/tables/DSDT",
        ])
    }),
    attack("H2", "release-agent", "open cgroup files for writing", cgroup),
    attack("H2", "block-devices", "open the machine's disks", block_devices),
    attack("H2", "devices", "open devices that lead out", |_| {
        readable(&["/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/vhost-net", "/dev/vsock"])
    }),
    attack("H2", "sys-writes", "open anything below /sys for writing", sys_writes),
    attack("H2", "own-mappings", "become root by new user and group mappings", own_mappings),
    attack("H4", "outside-writes", "make a file in every other directory", outside_writes),
    attack("H4", "own-programs", "open Sluice's own files for writing", |_| {
        writable(&[
            "/run/sluice/init",
            "/etc/sluice/ca/ca.pem",
            "/etc/sluice/ca/bundle.pem",
            "/etc/ssl/certs/ca-certificates.crt",
            "/etc/resolv.conf",
            "/etc/hosts",
            "/etc/passwd",
            "/etc/ld.so.preload",
        ])
    }),
    attack("H4", "hard-links", "hard-link files of the host into /tmp", hard_links),
    attack("H4", "host-files", "read a file of the host by path, link, .. and /proc", host_files),
];

fn open_to_write(path: impl AsRef<Path>) -> io::Result<File> {
    // Neither made nor emptied, and a pipe does not make us wait.
    OpenOptions::new().append(true).custom_flags(NONBLOCK).open(path)
}

const NONBLOCK: i32 = 0o4000;

fn writable(paths: &[&str]) -> AttackVerdict {
    let open: Vec<_> = paths.iter().filter(|path| open_to_write(path).is_ok()).copied().collect();
    match open.is_empty() {
        true => AttackVerdict::held("none can be opened for writing"),
        false => AttackVerdict::broken(format_args!("writable: {}", open.join(" "))),
    }
}

/// A device counts when it opens; a file when it has something in it: what is
/// covered by an empty one is not readable.
fn readable(paths: &[&str]) -> AttackVerdict {
    let open: Vec<_> = paths.iter().filter(|path| has_content(path)).copied().collect();
    match open.is_empty() {
        true => AttackVerdict::held("none can be read"),
        false => AttackVerdict::broken(format_args!("readable: {}", open.join(" "))),
    }
}

fn has_content(path: impl AsRef<Path>) -> bool {
    let opened = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(&path);
    let Ok(mut file) = opened else { return false };
    let is_null = fs::canonicalize(&path).is_ok_and(|path| path == Path::new("/dev/null"));
    let is_device = file.metadata().is_ok_and(|found| found.file_type().is_char_device());
    let mut byte = [0];
    match file.read(&mut byte) {
        Ok(length) => length > 0,
        // An engine covers a file with /dev/null, which reads as empty.
        Err(_) => is_device && !is_null,
    }
}

/// Everybody may open them; what counts is who may write.
fn own_mappings(_: &Targets) -> AttackVerdict {
    let mut said = String::new();
    for file in ["uid_map", "gid_map"] {
        match fs::write(format!("/proc/self/{file}"), "0 0 4294967295\n") {
            Ok(()) => return AttackVerdict::broken(format_args!("{file} is written")),
            Err(err) => said = err.to_string(),
        }
    }
    AttackVerdict::held(said)
}

fn cgroup(_: &Targets) -> AttackVerdict {
    let names = [
        "release_agent",
        "notify_on_release",
        "cgroup.procs",
        "cgroup.subtree_control",
        "devices.allow",
        "memory.max",
        "memory.limit_in_bytes",
        "pids.max",
        "cpu.max",
    ];
    let mut open = Vec::new();
    let mut folders = vec![PathBuf::from("/sys/fs/cgroup")];
    for entry in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        folders.push(entry.path());
    }
    for path in folders.iter().flat_map(|folder| names.map(|name| folder.join(name))) {
        if open_to_write(&path).is_ok() {
            open.push(path.display().to_string());
        }
    }
    if fs::create_dir("/sys/fs/cgroup/sluice-attack").is_ok() {
        drop(fs::remove_dir("/sys/fs/cgroup/sluice-attack"));
        open.push("a group of our own".to_owned());
    }
    match open.is_empty() {
        true => AttackVerdict::held("no control group can be changed"),
        false => AttackVerdict::broken(format_args!("writable: {}", open.join(" "))),
    }
}

fn block_devices(_: &Targets) -> AttackVerdict {
    let table = fs::read_to_string("/proc/partitions").unwrap_or_default();
    let disks = table.lines().skip(2).filter_map(|line| line.split_whitespace().nth(3));
    let mut names: BTreeSet<String> = disks.map(str::to_owned).collect();
    names.extend(["sda", "vda", "nvme0n1", "xvda", "dm-0", "loop0"].map(str::to_owned));
    let open: Vec<_> = names.iter().filter(|name| has_content(format!("/dev/{name}"))).collect();
    match open.is_empty() {
        true => AttackVerdict::held(format_args!("none of {} can be opened", names.len())),
        false => AttackVerdict::broken(format_args!("readable: {open:?}")),
    }
}

/// A walk, not too deep: the tree refers to itself.
fn sys_writes(_: &Targets) -> AttackVerdict {
    let mut open = Vec::new();
    let mut tried = 0_u32;
    let mut folders = vec![(PathBuf::from("/sys"), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && depth < 4 {
                folders.push((entry.path(), depth + 1));
            } else if kind.is_file() && tried < 20_000 {
                tried += 1;
                if open_to_write(entry.path()).is_ok() {
                    open.push(entry.path().display().to_string());
                }
            }
        }
    }
    open.truncate(4);
    match open.is_empty() {
        true => AttackVerdict::held(format_args!("none of {tried} files")),
        false => AttackVerdict::broken(format_args!("writable: {}", open.join(" "))),
    }
}

/// In the usual directories, and at every mount that says it is writable.
fn outside_writes(_: &Targets) -> AttackVerdict {
    let usual = [
        "/",
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/home",
        "/lib",
        "/mnt",
        "/opt",
        "/proc",
        "/root",
        "/run/sluice",
        "/sbin",
        "/srv",
        "/sys",
        "/usr",
        "/usr/bin",
        "/usr/lib",
        "/usr/local",
        "/var",
        "/var/lib",
        "/var/log",
        "/var/tmp",
        "/etc/sluice",
        "/etc/sluice/ca",
    ];
    let mut places: BTreeSet<PathBuf> = usual.iter().map(PathBuf::from).collect();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    places.extend(mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from));
    places.retain(|place| !OURS.iter().any(|ours| place.starts_with(ours)));
    let written: Vec<_> = places.iter().filter(|place| makes_a_file_in(place)).collect();
    match written.is_empty() {
        true => AttackVerdict::held(format_args!("in none of {} directories", places.len())),
        false => AttackVerdict::broken(format_args!("written: {written:?}")),
    }
}

/// Where a sandbox may write. `/run` is a tmpfs, but what is Sluice's in it is
/// not the sandbox's; so it is not among them.
const OURS: &[&str] = &["/workspace", "/tmp", "/home/agent", "/dev/shm", "/dev/mqueue", "/deps"];

fn makes_a_file_in(place: &Path) -> bool {
    // Of all of `/run`, its own folder there is tried alone.
    if place == Path::new("/run") {
        return false;
    }
    let path = place.join(format!(".sluice-attack-{}", std::process::id()));
    let made = File::create_new(&path).is_ok();
    drop(fs::remove_file(&path));
    made
}

fn hard_links(targets: &Targets) -> AttackVerdict {
    let known = ["/run/sluice/init", "/etc/hosts", "/etc/resolv.conf", "/etc/sluice/ca/ca.pem"];
    let sources = known.iter().map(ToString::to_string).chain(targets.secrets.iter().cloned());
    let link = format!("/tmp/sluice-attack-link-{}", std::process::id());
    let mut made = Vec::new();
    for source in sources {
        if fs::hard_link(&source, &link).is_ok() {
            drop(fs::remove_file(&link));
            made.push(source);
        }
    }
    match made.is_empty() {
        true => AttackVerdict::held("none can be linked"),
        false => AttackVerdict::broken(format_args!("linked: {}", made.join(" "))),
    }
}

fn host_files(targets: &Targets) -> AttackVerdict {
    if targets.secrets.is_empty() {
        return AttackVerdict::Untried("no file of the host was named".to_owned());
    }
    let link = PathBuf::from(format!("/tmp/sluice-attack-symlink-{}", std::process::id()));
    let mut read = Vec::new();
    for secret in &targets.secrets {
        let mut ways = vec![
            PathBuf::from(secret),
            PathBuf::from(format!("/proc/1/root{secret}")),
            PathBuf::from(format!("/proc/self/root{secret}")),
            PathBuf::from(format!("/proc/1/cwd/../../../../../..{secret}")),
            PathBuf::from(format!("/workspace/../../../../../..{secret}")),
        ];
        if symlink(secret, &link).is_ok() {
            ways.push(link.clone());
        }
        for way in &ways {
            let text = fs::read(way).unwrap_or_default();
            if String::from_utf8_lossy(&text).contains(&targets.token) {
                read.push(way.display().to_string());
            }
        }
        drop(fs::remove_file(&link));
    }
    match read.is_empty() {
        true => AttackVerdict::held("not by any of six ways"),
        false => AttackVerdict::broken(format_args!("read: {}", read.join(" "))),
    }
}
