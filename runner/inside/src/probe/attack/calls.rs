//! System calls that a sandbox has no use for, and an attacker has.

use std::fs;
use std::io;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::mount::{
    FsOpenFlags, MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsopen, mount,
    mount_bind, move_mount, open_tree, unmount,
};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, chroot, getrlimit, pidfd_getfd, pidfd_open,
    pivot_root, prlimit, setrlimit,
};
use rustix::thread::{LinkNameSpaceType, Uid, move_into_link_name_space, set_thread_uid};

use super::{Attack, AttackVerdict, Targets};
use crate::launch::raw::{Call, attempt};

pub(super) const ATTACKS: &[Attack] = &[
    attack("unshare-mount", "unshare(CLONE_NEWNS)", |_| unshare(NEWNS)),
    attack("unshare-user", "unshare(CLONE_NEWUSER)", |_| unshare(NEWUSER)),
    attack("unshare-net", "unshare(CLONE_NEWNET)", |_| unshare(NEWNET)),
    attack("unshare-pid", "unshare(CLONE_NEWPID)", |_| unshare(NEWPID)),
    attack("unshare-ipc", "unshare(CLONE_NEWIPC)", |_| unshare(NEWIPC)),
    attack("unshare-uts", "unshare(CLONE_NEWUTS)", |_| unshare(NEWUTS)),
    attack("unshare-cgroup", "unshare(CLONE_NEWCGROUP)", |_| unshare(NEWCGROUP)),
    attack("unshare-time", "unshare(CLONE_NEWTIME)", |_| unshare(NEWTIME)),
    attack("clone-user", "clone with a new user namespace", |_| {
        AttackVerdict::unless_done(attempt(Call::Clone { namespaces: NEWUSER }))
    }),
    attack("clone-user-net", "clone with new user and network namespaces", |_| {
        AttackVerdict::unless_done(attempt(Call::Clone { namespaces: NEWUSER | NEWNET }))
    }),
    attack("clone3-user", "clone3 with a new user namespace", |_| {
        AttackVerdict::unless_done(attempt(Call::Clone3 { namespaces: NEWUSER }))
    }),
    attack("setns", "setns into every namespace of process 1", setns),
    attack("mount-tmpfs", "mount a tmpfs on /tmp", |_| {
        on_tmp(mount("none", "/tmp", "tmpfs", MountFlags::empty(), None))
    }),
    attack("mount-proc", "mount a fresh /proc on /tmp", |_| {
        on_tmp(mount("none", "/tmp", "proc", MountFlags::empty(), None))
    }),
    attack("mount-bind", "bind-mount / on /tmp", |_| on_tmp(mount_bind("/", "/tmp"))),
    attack("mount-cgroup", "mount a cgroup hierarchy on /tmp", |_| {
        let first = mount("none", "/tmp", "cgroup2", MountFlags::empty(), None);
        let rdma = Some(c"rdma");
        on_tmp(first.or_else(|_| mount("none", "/tmp", "cgroup", MountFlags::empty(), rdma)))
    }),
    attack("umount", "unmount /dev/shm", |_| {
        AttackVerdict::unless_done(unmount("/dev/shm", UnmountFlags::DETACH))
    }),
    attack("fsopen", "fsopen a tmpfs", |_| {
        AttackVerdict::unless_done(fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC))
    }),
    attack("open-tree", "open_tree a copy of /", |_| {
        AttackVerdict::unless_done(open_tree(CWD, "/", OpenTreeFlags::OPEN_TREE_CLONE))
    }),
    attack("move-mount", "move_mount from nowhere", |_| {
        let (nowhere, flags) = ("/sluice-nowhere", MoveMountFlags::empty());
        AttackVerdict::unless_let_in(move_mount(CWD, nowhere, CWD, nowhere, flags))
    }),
    attack("pivot-root", "pivot_root to nowhere", |_| {
        AttackVerdict::unless_let_in(pivot_root("/sluice-nowhere", "/sluice-nowhere"))
    }),
    attack("chroot", "chroot to /tmp", |_| AttackVerdict::unless_done(chroot("/tmp"))),
    attack("mknod-disk", "mknod a block device", |_| device(FileType::BlockDevice, 8, 0)),
    attack("mknod-memory", "mknod the device of all memory", |_| {
        device(FileType::CharacterDevice, 1, 1)
    }),
    attack("ptrace-init", "ptrace(PTRACE_SEIZE) process 1", |_| {
        AttackVerdict::unless_done(attempt(Call::PtraceSeize))
    }),
    attack("read-init", "process_vm_readv from process 1", |_| {
        AttackVerdict::unless_let_in(attempt(Call::ProcessVmRead))
    }),
    attack("pidfd-getfd-init", "pidfd_getfd a descriptor of process 1", |_| {
        let taken = pidfd_open(Pid::INIT, PidfdFlags::empty())
            .and_then(|init| pidfd_getfd(init, 0, PidfdGetfdFlags::empty()));
        AttackVerdict::unless_done(taken)
    }),
    attack("prlimit-init", "prlimit64 of process 1, to what it is", |_| {
        let (init, limit) = (Some(Pid::INIT), Resource::Nofile);
        AttackVerdict::unless_done(prlimit(init, limit, getrlimit(limit)))
    }),
    attack("kcmp-init", "kcmp our files with those of process 1", |_| {
        AttackVerdict::unless_let_in(attempt(Call::Kcmp))
    }),
    attack("open-by-handle", "open_by_handle_at inode 2 (shocker)", |_| {
        AttackVerdict::unless_let_in(attempt(Call::OpenByHandleAt))
    }),
    attack("bpf", "bpf(BPF_MAP_CREATE)", |_| AttackVerdict::unless_done(attempt(Call::Bpf))),
    attack("io-uring", "io_uring_setup", |_| {
        AttackVerdict::unless_done(attempt(Call::IoUringSetup))
    }),
    attack("userfaultfd", "userfaultfd", |_| {
        let call = |user_mode_only| attempt(Call::Userfaultfd { user_mode_only });
        AttackVerdict::unless_done(call(false).or_else(|_| call(true)))
    }),
    attack("perf-event", "perf_event_open", |_| {
        AttackVerdict::unless_done(attempt(Call::PerfEventOpen))
    }),
    attack("keyctl", "keyctl(KEYCTL_GET_KEYRING_ID)", |_| {
        AttackVerdict::unless_let_in(attempt(Call::Keyctl))
    }),
    attack("add-key", "add_key", |_| AttackVerdict::unless_done(attempt(Call::AddKey))),
    attack("request-key", "request_key", |_| {
        AttackVerdict::unless_let_in(attempt(Call::RequestKey))
    }),
    attack("kexec", "kexec_load", |_| AttackVerdict::unless_let_in(attempt(Call::KexecLoad))),
    attack("init-module", "init_module", |_| {
        AttackVerdict::unless_let_in(rustix::system::init_module(b"", c""))
    }),
    attack("delete-module", "delete_module", |_| {
        AttackVerdict::unless_let_in(attempt(Call::DeleteModule))
    }),
    attack("reboot", "reboot, spelt wrong", |_| {
        AttackVerdict::unless_let_in(attempt(Call::Reboot))
    }),
    attack("swapon", "swapon", |_| AttackVerdict::unless_let_in(attempt(Call::SwapOn))),
    attack("acct", "acct", |_| AttackVerdict::unless_let_in(attempt(Call::Acct))),
    attack("set-time", "settimeofday", |_| AttackVerdict::unless_done(attempt(Call::SetTimeOfDay))),
    attack("kernel-log", "syslog: the kernel's log", |_| {
        AttackVerdict::unless_done(attempt(Call::Syslog))
    }),
    attack("fanotify", "fanotify_init", |_| {
        AttackVerdict::unless_done(attempt(Call::FanotifyInit))
    }),
    attack("setuid-root", "setuid(0)", |_| AttackVerdict::unless_done(set_thread_uid(Uid::ROOT))),
    attack("setuid-program", "a set-user-ID program of the image", setuid_program),
    attack("privileges", "capabilities, no-new-privileges, system call filter", privileges),
    attack("raise-limits", "raise the limit of open files", |_| {
        let most = Rlimit { current: Some(1 << 30), maximum: Some(1 << 30) };
        AttackVerdict::unless_done(setrlimit(Resource::Nofile, most))
    }),
];

const fn attack(
    name: &'static str,
    tried: &'static str,
    attempt: fn(&Targets) -> AttackVerdict,
) -> Attack {
    super::attack("H1", name, tried, attempt)
}

/// A mount that worked is taken away again: the other attempts see it too.
fn on_tmp(mounted: rustix::io::Result<()>) -> AttackVerdict {
    if mounted.is_ok() {
        unmount("/tmp", UnmountFlags::DETACH).ok();
    }
    AttackVerdict::unless_done(mounted)
}

fn unshare(namespaces: u32) -> AttackVerdict {
    AttackVerdict::unless_done(attempt(Call::Unshare { namespaces }))
}

/// Our own namespaces count too: to enter one again takes the same right.
fn setns(_: &Targets) -> AttackVerdict {
    let mut last = io::Error::other("no namespace can be opened");
    for of in ["1", "self"] {
        for kind in ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"] {
            let entered = fs::File::open(format!("/proc/{of}/ns/{kind}")).and_then(|file| {
                let any: Option<LinkNameSpaceType> = None;
                move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), any)
                    .map_err(io::Error::from)
            });
            match entered {
                Ok(()) => return AttackVerdict::broken(format_args!("entered {kind} of {of}")),
                Err(err) => last = err,
            }
        }
    }
    AttackVerdict::held(last)
}

fn device(kind: FileType, major: u32, minor: u32) -> AttackVerdict {
    let path = format!("/tmp/sluice-attack-{major}-{minor}-{}", std::process::id());
    let made = mknodat(CWD, &path, kind, Mode::RUSR | Mode::WUSR, makedev(major, minor));
    drop(fs::remove_file(&path));
    AttackVerdict::unless_done(made)
}

/// Runs one, if there is one, and sees who it became.
fn setuid_program(_: &Targets) -> AttackVerdict {
    use std::os::unix::fs::PermissionsExt as _;
    let folders = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];
    let programs = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let is_set = |path: &std::path::PathBuf| {
        fs::metadata(path)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o4000 != 0)
    };
    let Some(program) = programs.flatten().map(|entry| entry.path()).find(is_set) else {
        return AttackVerdict::held("the image has none");
    };
    // Whoever it runs as, it may not be dumped by us: then its /proc is root's.
    let child = std::process::Command::new(&program).stdin(std::process::Stdio::piped()).spawn();
    let Ok(mut child) = child else { return AttackVerdict::held("it cannot be started") };
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    drop(child.kill());
    drop(child.wait());
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .and_then(|ids| ids.split_whitespace().nth(1).map(str::to_owned));
    let ours = rustix::process::getuid().as_raw().to_string();
    match effective {
        Some(uid) if uid == "0" && ours != "0" => {
            AttackVerdict::broken(format_args!("{} ran as root", program.display()))
        }
        Some(_) | None => AttackVerdict::held(format_args!("{} gained nothing", program.display())),
    }
}

/// What the kernel says about this very process.
fn privileges(_: &Targets) -> AttackVerdict {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or("unknown").trim().to_owned()
    };
    let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let mut wrong: Vec<String> = sets
        .into_iter()
        .filter(|set| !field(set).trim_matches('0').is_empty())
        .map(|set| format!("{set} {}", field(set)))
        .collect();
    if field("NoNewPrivs") != "1" {
        wrong.push("no-new-privileges is off".to_owned());
    }
    if field("Seccomp") != "2" {
        wrong.push("system calls are not filtered".to_owned());
    }
    if rustix::process::geteuid().is_root() {
        wrong.push("root".to_owned());
    }
    match wrong.is_empty() {
        true => AttackVerdict::held("no capabilities, no new privileges, filtered, not root"),
        false => AttackVerdict::broken(wrong.join(", ")),
    }
}

const NEWTIME: u32 = 0x0000_0080;
const NEWNS: u32 = 0x0002_0000;
const NEWCGROUP: u32 = 0x0200_0000;
const NEWUTS: u32 = 0x0400_0000;
const NEWIPC: u32 = 0x0800_0000;
const NEWUSER: u32 = 0x1000_0000;
const NEWPID: u32 = 0x2000_0000;
const NEWNET: u32 = 0x4000_0000;
