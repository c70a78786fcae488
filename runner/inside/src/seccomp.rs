//! Which system calls a sandbox has.
//!
//! A list of what is allowed: a call that is invented tomorrow is refused. It is
//! what ordinary programs, compilers, interpreters and browsers need, and leaves
//! out what escapes are made of. Where the engine's own profile is wider we say
//! why not:
//!
//! - `ptrace` and its kin: the first process has the command's user; for the same
//!   reason a process sets no limits and no priority but its own. `sched_setaffinity`
//!   stays: the C library names every thread by its number, and a first process that
//!   shares one processor is late by as much as one that shares all of them;
//! - `io_uring`: its operations pass by these very rules;
//! - sockets other than Unix, IP and the routing table: AF_VSOCK reaches a
//!   hypervisor whatever network namespace we are in, AF_PACKET and AF_ALG are
//!   for nobody in here;
//! - `clone3`: its flags are out of a filter's sight, and every C library falls
//!   back to `clone` when it does not exist;
//! - `io_setup` and its kin: the machine has one number of contexts for everybody
//!   (`fs.aio-max-nr`), and one process could take them all. Databases do without
//!   when it does not exist; the C library's own `aio_read` never asks for it.
//!
//! Calls for one architecture only: the 32-bit doors are shut.

use serde_json::{Value, json};

use Argument::{Clear, Is, Null};

/// A call that is allowed only with such arguments, all of them.
type Conditional = (&'static str, Vec<Argument>);

/// What one argument of a call must be, by its number.
#[derive(Clone, Copy, Debug)]
enum Argument {
    /// A number of 32 bits.
    Is(u32, u64),
    /// None of these bits.
    Clear(u32, u64),
    /// No pointer.
    Null(u32),
}

/// What a gateway's container may ask of the kernel: it listens, dials, writes
/// its log and starts no program of its own.
pub fn gateway_profile() -> String {
    engine_profile(GATEWAY, &["clone3"], common())
}

/// What a sandbox may, as engines read it.
pub fn profile() -> String {
    engine_profile(ALLOWED, &UNKNOWN, sandbox())
}

fn engine_profile(
    always: &str,
    unknown: &[&str],
    only: impl IntoIterator<Item = Conditional>,
) -> String {
    let always: Vec<&str> = always.split_whitespace().collect();
    let mut rules = vec![
        json!({ "names": always, "action": "SCMP_ACT_ALLOW" }),
        json!({ "names": unknown, "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS }),
    ];
    let equal = |index, value| json!({ "index": index, "value": value, "op": "SCMP_CMP_EQ" });
    let argument = |argument: &Argument| match *argument {
        Is(index, value) => equal(index, value),
        Clear(index, mask) => {
            json!({ "index": index, "value": mask, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ" })
        }
        Null(index) => equal(index, 0),
    };
    rules.extend(only.into_iter().map(|(name, when)| {
        let when: Vec<Value> = when.iter().map(argument).collect();
        json!({ "names": [name], "action": "SCMP_ACT_ALLOW", "args": when })
    }));
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": EPERM,
        "architectures": [ARCHITECTURE],
        "syscalls": rules,
    })
    .to_string()
}

/// What a sandbox may, for `seccompiler`: [`PROGRAMS`] by name.
///
/// Its language has one answer to everything that is not on a list, so the calls
/// that must look as if they did not exist have a list of their own.
pub fn for_compiler() -> Value {
    let clear = |index, mask| json!({ "index": index, "type": "qword", "op": { "masked_eq": mask }, "val": 0 });
    let argument = |argument: &Argument| match *argument {
        Is(index, value) => {
            json!({ "index": index, "type": "dword", "op": "eq", "val": value })
        }
        Clear(index, mask) => clear(index, mask),
        Null(index) => clear(index, u64::MAX),
    };
    let always = ALLOWED.split_whitespace().map(|name| json!({ "syscall": name }));
    let only = sandbox().map(|(name, when)| {
        let when: Vec<Value> = when.iter().map(argument).collect();
        json!({ "syscall": name, "args": when })
    });
    let [allowed, unknown] = PROGRAMS;
    json!({
        (allowed): {
            "mismatch_action": { "errno": EPERM },
            "match_action": "allow",
            "filter": always.chain(only).collect::<Vec<_>>(),
        },
        (unknown): {
            "mismatch_action": "allow",
            "match_action": { "errno": ENOSYS },
            "filter": UNKNOWN.map(|name| json!({ "syscall": name })).to_vec(),
        },
    })
}

/// What the end of a relay on the host may, for `seccompiler`: [`RELAY_PROGRAM`] by
/// name. It connects, moves bytes and waits; it opens no file, starts nobody and
/// signals nobody.
pub fn relay_for_compiler() -> Value {
    let always = RELAY.split_whitespace().map(|name| json!({ "syscall": name }));
    let family = json!({ "index": 0, "type": "dword", "op": "eq", "val": AF_INET });
    let only = [json!({ "syscall": "socket", "args": [family] })];
    json!({
        (RELAY_PROGRAM): {
            "mismatch_action": { "errno": EPERM },
            "match_action": "allow",
            "filter": always.chain(only).collect::<Vec<_>>(),
        },
    })
}

/// What its list is called.
pub const RELAY_PROGRAM: &str = "relay";

/// In the order they are put in force: of two refusals the later one is told.
pub const PROGRAMS: [&str; 2] = ["allowed", "unknown"];

/// What programs do without when a kernel does not know it.
const UNKNOWN: [&str; 7] =
    ["clone3", "io_cancel", "io_destroy", "io_getevents", "io_pgetevents", "io_setup", "io_submit"];

/// Processes and threads but no namespaces; four kinds of sockets; limits of its own,
/// and a look at another's (the arguments are whose they are, and the new ones).
fn common() -> impl Iterator<Item = Conditional> {
    let families = [AF_UNIX, AF_INET, AF_INET6].map(|family| ("socket", vec![Is(0, family)]));
    let others = [
        ("clone", vec![Clear(0, NAMESPACES)]),
        ("prlimit64", vec![Is(0, 0)]),
        ("prlimit64", vec![Null(2)]),
        ("socket", vec![Is(0, AF_NETLINK), Is(2, NETLINK_ROUTE)]),
    ];
    others.into_iter().chain(families)
}

fn sandbox() -> impl Iterator<Item = Conditional> {
    let personalities = PERSONALITIES.map(|persona| ("personality", vec![Is(0, persona)]));
    common().chain(personalities).chain(own_priority())
}

/// What a process may do to its own priority, and by which arguments it shows that it
/// is its own: zero stands for whoever asks. The C library names a thread by its number
/// even then, so `sched_setscheduler` is open to all for policies by which nobody gets
/// less of a processor than before.
fn own_priority() -> impl Iterator<Item = Conditional> {
    const PRIO_PROCESS: u64 = 0;
    const IOPRIO_WHO_PROCESS: u64 = 1;
    const SCHED_OTHER_FIFO_RR: [u64; 3] = [0, 1, 2];
    let alone = [
        ("ioprio_set", vec![Is(0, IOPRIO_WHO_PROCESS), Is(1, 0)]),
        ("sched_setattr", vec![Is(0, 0)]),
        ("sched_setscheduler", vec![Is(0, 0)]),
        ("setpriority", vec![Is(0, PRIO_PROCESS), Is(1, 0)]),
    ];
    let no_less = SCHED_OTHER_FIFO_RR.map(|policy| ("sched_setscheduler", vec![Is(1, policy)]));
    alone.into_iter().chain(no_less)
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: &str = "SCMP_ARCH_X86_64";
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: &str = "SCMP_ARCH_AARCH64";

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;
const AF_UNIX: u64 = 1;
const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;
const AF_NETLINK: u64 = 16;
const NETLINK_ROUTE: u64 = 0;
/// Every flag of `clone` that makes a namespace.
const NAMESPACES: u64 = 0x7e02_0000;
/// Linux, with and without address randomisation; "which is it?".
const PERSONALITIES: [u64; 3] = [0, 0x0004_0000, 0xffff_ffff];

/// `execve` is the engine's, to start it; the rest is the program's own and what
/// the engine does between asking for the filter and starting it.
const GATEWAY: &str = "
    accept accept4 access arch_prctl bind brk capget capset chdir chmod clock_getres clock_gettime
    clock_nanosleep close close_range connect dup dup2 dup3 epoll_create1 epoll_ctl epoll_pwait
    epoll_pwait2 epoll_wait eventfd2 execve exit exit_group faccessat faccessat2 fadvise64 fchdir
    fchmod fchmodat fcntl fdatasync flock fstat fstatfs fsync ftruncate futex getcwd getdents64
    getegid geteuid getgid getpeername getpid getppid getrandom getrlimit getsockname getsockopt
    gettid gettimeofday getuid ioctl kill linkat listen lseek lstat madvise membarrier mkdir
    mkdirat mmap mprotect mremap munmap nanosleep newfstatat open openat openat2 pipe2 poll ppoll
    prctl pread64 pselect6 pwrite64 pwritev read readlink readlinkat readv recvfrom
    recvmmsg recvmsg rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction
    rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigtimedwait sched_getaffinity sched_yield
    select sendfile sendmmsg sendmsg sendto set_robust_list set_tid_address setgid setgroups
    setrlimit setsockopt setuid shutdown sigaltstack socketpair splice stat statfs statx sysinfo
    tgkill timerfd_create timerfd_settime umask uname unlink unlinkat wait4 write writev
";

/// The last of them are the C library's, for memory and for how a program ends.
const RELAY: &str = "
    clock_gettime clock_nanosleep close connect getsockopt nanosleep ppoll recvfrom recvmsg
    sendmsg sendto setsockopt shutdown
    brk exit exit_group futex madvise mmap mprotect mremap munmap restart_syscall rt_sigaction
    rt_sigprocmask rt_sigreturn sigaltstack write
";

const ALLOWED: &str = "
    accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chmod chown
    clock_getres clock_gettime clock_nanosleep close close_range connect copy_file_range creat
    dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2
    epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit exit_group faccessat
    faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl
    fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync
    ftruncate futex futex_requeue futex_wait futex_waitv futex_wake futimesat get_mempolicy
    get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid geteuid getgid
    getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom
    getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday
    getuid getxattr inotify_add_watch inotify_init inotify_init1 inotify_rm_watch ioctl
    ioprio_get kill
    landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr link
    linkat listen listxattr llistxattr lremovexattr lseek lsetxattr lstat madvise
    map_shadow_stack membarrier memfd_create mincore mkdir mkdirat mknod mknodat mlock mlock2
    mlockall mmap mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend
    mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync munlock munlockall munmap
    nanosleep newfstatat open openat openat2 pause pidfd_open pidfd_send_signal pipe pipe2
    pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64 preadv preadv2
    process_madvise process_mrelease pselect6 pwrite64 pwritev pwritev2 read readahead readlink
    readlinkat readv recvfrom recvmmsg recvmsg remap_file_pages removexattr rename renameat
    renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask
    rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo
    sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr
    sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity
    sched_setparam sched_yield seccomp select semctl semget semop semtimedop
    sendfile sendmmsg sendmsg sendto set_mempolicy set_robust_list set_thread_area
    set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setregid
    setresgid setresuid setreuid setrlimit setsid setsockopt setuid setxattr shmat shmctl shmdt
    shmget shutdown sigaltstack signalfd signalfd4 socketpair splice stat statfs statx symlink
    symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete
    timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime
    times tkill truncate umask uname unlink unlinkat utime utimensat utimes vfork vmsplice
    wait4 waitid write writev
";

#[cfg(test)]
mod tests {
    use expect_test::expect_file;

    use super::*;

    #[test]
    fn what_escapes_are_made_of_is_not_on_the_list() {
        let listed: Vec<&str> = ALLOWED.split_whitespace().collect();
        for call in [
            "add_key",
            "bpf",
            "chroot",
            "clone",
            "clone3",
            "delete_module",
            "fsopen",
            "init_module",
            "io_setup",
            "io_submit",
            "io_uring_setup",
            "ioprio_set",
            "kcmp",
            "kexec_load",
            "keyctl",
            "mount",
            "move_mount",
            "open_by_handle_at",
            "open_tree",
            "perf_event_open",
            "pidfd_getfd",
            "pivot_root",
            "process_vm_readv",
            "process_vm_writev",
            "ptrace",
            "quotactl",
            "reboot",
            "request_key",
            "sched_setattr",
            "sched_setscheduler",
            "setns",
            "setpriority",
            "socket",
            "swapon",
            "syslog",
            "umount2",
            "unshare",
            "userfaultfd",
        ] {
            assert!(!listed.contains(&call), "{call}");
        }
    }

    #[test]
    fn a_gateway_has_less_than_a_sandbox() {
        let sandbox: Vec<&str> = ALLOWED.split_whitespace().collect();
        let gateway: Vec<&str> = GATEWAY.split_whitespace().collect();
        assert!(gateway.windows(2).all(|pair| pair[0] < pair[1]), "keep it sorted");
        assert!(gateway.iter().all(|call| sandbox.contains(call)));
        assert!(gateway.len() < sandbox.len() / 2, "{} of {}", gateway.len(), sandbox.len());
        for call in ["fork", "vfork", "execveat", "mknod", "chown", "shmat", "memfd_create"] {
            assert!(!gateway.contains(&call), "{call}");
        }
    }

    #[test]
    fn a_relay_has_less_than_a_gateway_and_opens_nothing() {
        let gateway: Vec<&str> = GATEWAY.split_whitespace().collect();
        let relay: Vec<&str> = RELAY.split_whitespace().collect();
        assert!(relay.iter().all(|call| gateway.contains(call)), "{relay:?}");
        for call in ["accept4", "bind", "clone", "dup", "execve", "kill", "listen", "openat"] {
            assert!(!relay.contains(&call), "{call}");
        }
        let architecture = std::env::consts::ARCH.try_into().unwrap();
        let text = relay_for_compiler().to_string();
        let compiled = seccompiler::compile_from_json(text.as_bytes(), architecture).unwrap();
        assert!(compiled.contains_key(RELAY_PROGRAM));
    }

    #[test]
    fn what_is_not_named_is_refused() {
        let profile: Value = serde_json::from_str(&profile()).unwrap();
        assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    }

    #[test]
    fn the_compiler_understands_every_word_of_it() {
        let architecture = std::env::consts::ARCH.try_into().unwrap();
        let text = for_compiler().to_string();
        let compiled = seccompiler::compile_from_json(text.as_bytes(), architecture).unwrap();
        assert!(PROGRAMS.iter().all(|name| compiled.contains_key(*name)));
        assert_eq!(compiled.len(), PROGRAMS.len());
    }

    /// `UPDATE_EXPECT=1` writes them.
    #[test]
    fn the_files_for_compose_are_these_very_lists() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../compose");
        for (profile, file) in
            [(profile(), "seccomp.json"), (gateway_profile(), "seccomp-gateway.json")]
        {
            let mut profile: Value = serde_json::from_str(&profile).unwrap();
            // One file for every machine: an engine finds its own in the map.
            profile.as_object_mut().unwrap().remove("architectures");
            profile["archMap"] = ["SCMP_ARCH_AARCH64", "SCMP_ARCH_X86_64"]
                .map(|name| json!({ "architecture": name, "subArchitectures": [] }))
                .to_vec()
                .into();
            let text = format!("{}\n", serde_json::to_string_pretty(&profile).unwrap());
            expect_file![format!("{folder}/{file}")].assert_eq(&text);
        }
    }

    #[test]
    fn the_list_is_sorted_and_names_nothing_twice() {
        let listed: Vec<&str> = ALLOWED.split_whitespace().collect();
        assert!(listed.windows(2).all(|pair| pair[0] < pair[1]), "keep it sorted");
    }
}
