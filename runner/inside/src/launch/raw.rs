//! System calls that a sandbox must not have, tried by number.
//!
//! No safe wrapper offers them, since no program should want them; the attack
//! program ([`crate::probe::attack`]) tries them to show that they fail. Each stands
//! here with its arguments, so a caller chooses *which* call is made and never
//! with what: nothing unsafe can be said from outside this file.
//!
//! Where a call would do harm if it were let through, its arguments are wrong on
//! purpose, in a way that the kernel looks at only after it has asked whether we
//! may.

use std::io;

/// A call, with fixed arguments.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Call {
    /// Accounting into a file with an empty name.
    Acct,
    /// A key in the process's keyring.
    AddKey,
    /// A map of one entry.
    Bpf,
    /// A copy of this process in new namespaces, which ends at once.
    Clone {
        namespaces: u32,
    },
    /// The same, by the newer call whose flags no filter can see.
    Clone3 {
        namespaces: u32,
    },
    /// A kernel module that has no name of any.
    DeleteModule,
    /// Notices of everybody's file accesses.
    FanotifyInit,
    /// A context for asynchronous input and output; the machine has a number of
    /// them for everybody. It goes with the process.
    IoSetup,
    IoUringSetup,
    /// Compares our open file with one of process 1.
    Kcmp,
    /// With flags that no kernel knows.
    KexecLoad,
    /// Asks for the session's keyring.
    Keyctl,
    /// The file with number two of whatever file system `/` is on.
    OpenByHandleAt,
    /// A software event of our own process.
    PerfEventOpen,
    /// Reads memory of process 1, at an address that nothing has.
    ProcessVmRead,
    /// Takes hold of process 1.
    PtraceSeize,
    /// Without the numbers that make the kernel believe it.
    Reboot,
    RequestKey,
    /// Sets neither the time nor the zone.
    SetTimeOfDay,
    /// Swaps to a file that does not exist.
    SwapOn,
    /// How large the kernel's log is.
    Syslog,
    Unshare {
        namespaces: u32,
    },
    Userfaultfd {
        user_mode_only: bool,
    },
}

/// Makes the call; what the kernel said.
pub fn attempt(call: Call) -> io::Result<i64> {
    use numbers as n;
    let mut zeros = [0_u64; 32];
    match call {
        Call::Acct => make(n::ACCT, &[text(c"")]),
        Call::AddKey => {
            let (kind, name) = (text(c"user"), text(c"sluice-attack"));
            make(n::ADD_KEY, &[kind, name, text(c"x"), 1, PROCESS_KEYRING])
        }
        Call::Bpf => {
            // struct bpf_attr of BPF_MAP_CREATE: an array, 4-byte keys and values.
            zeros[0] = 2 | (4 << 32);
            zeros[1] = 4 | (1 << 32);
            make(n::BPF, &[0, address(&mut zeros), 72])
        }
        Call::Clone { namespaces } => copy(n::CLONE, &[u64::from(namespaces) | SIGCHLD]),
        Call::Clone3 { namespaces } => {
            zeros[0] = namespaces.into();
            zeros[4] = SIGCHLD;
            copy(n::CLONE3, &[address(&mut zeros), 64])
        }
        Call::DeleteModule => make(n::DELETE_MODULE, &[text(c"sluice-attack"), 0o4000]),
        Call::FanotifyInit => make(n::FANOTIFY_INIT, &[0, 0]),
        Call::IoSetup => make(n::IO_SETUP, &[1, address(&mut zeros)]),
        Call::IoUringSetup => make(n::IO_URING_SETUP, &[1, address(&mut zeros)]),
        Call::Kcmp => make(n::KCMP, &[1, std::process::id().into(), 0, 0, 0]),
        Call::KexecLoad => make(n::KEXEC_LOAD, &[0, 0, 0, 0xff00]),
        Call::Keyctl => make(n::KEYCTL, &[0, SESSION_KEYRING, 0]),
        Call::OpenByHandleAt => {
            // struct file_handle: 8 bytes long, by inode number, number 2.
            zeros[0] = 8 | (1 << 32);
            zeros[1] = 2;
            make(n::OPEN_BY_HANDLE_AT, &[CURRENT_DIRECTORY, address(&mut zeros), 0])
        }
        Call::PerfEventOpen => {
            // struct perf_event_attr: software, 112 bytes, the cpu clock.
            zeros[0] = 1 | (112 << 32);
            make(n::PERF_EVENT_OPEN, &[address(&mut zeros), 0, ANY, ANY, 0])
        }
        Call::ProcessVmRead => {
            let mut room = [0_u64; 1];
            let ours = [address(&mut room), 8];
            let theirs = [8_u64, 8];
            let (ours, theirs) = (ours.as_ptr() as u64, theirs.as_ptr() as u64);
            make(n::PROCESS_VM_READV, &[1, ours, 1, theirs, 1, 0])
        }
        // Seized, it goes on; and it is let go when we end.
        Call::PtraceSeize => make(n::PTRACE, &[0x4206, 1, 0, 0]),
        Call::Reboot => make(n::REBOOT, &[0, 0, 0, 0]),
        Call::RequestKey => make(n::REQUEST_KEY, &[text(c"user"), text(c"sluice-attack"), 0, 0]),
        Call::SetTimeOfDay => make(n::SETTIMEOFDAY, &[0, 0]),
        Call::SwapOn => make(n::SWAPON, &[text(c"/sluice-attack"), 0]),
        Call::Syslog => make(n::SYSLOG, &[10, 0, 0]),
        Call::Unshare { namespaces } => make(n::UNSHARE, &[namespaces.into()]),
        Call::Userfaultfd { user_mode_only } => make(n::USERFAULTFD, &[user_mode_only.into()]),
    }
}

/// Which version of Landlock this kernel has.
pub fn landlock_version() -> Option<i64> {
    // No rule set, no size, and the flag that asks for the version.
    make(numbers::LANDLOCK_CREATE_RULESET, &[0, 0, 1]).ok()
}

/// Makes a call that returns twice; the copy ends at once.
fn copy(number: i64, arguments: &[u64]) -> io::Result<i64> {
    let child = make(number, arguments)?;
    if child == 0 {
        loop {
            drop(make(numbers::EXIT_GROUP, &[0]));
        }
    }
    Ok(child)
}

fn make(number: i64, arguments: &[u64]) -> io::Result<i64> {
    let at = |index: usize| arguments.get(index).copied().unwrap_or_default();
    // SAFETY: every caller is in this file. Pointers among the arguments lead to
    // memory that the caller holds across the call and that is at least as large
    // as the kernel reads or writes there. A copy of the process made here runs
    // nothing but the next `make`, which allocates nothing.
    let returned = unsafe { syscall(number, at(0), at(1), at(2), at(3), at(4), at(5)) };
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

// SAFETY: the C library's, with this very signature: integers alone, the last
// six of which are passed to the kernel as they are.
unsafe extern "C" {
    fn syscall(number: i64, ...) -> i64;
}

fn text(text: &'static std::ffi::CStr) -> u64 {
    text.as_ptr() as u64
}

/// Of memory that the kernel may write to as well.
fn address(memory: &mut [u64]) -> u64 {
    memory.as_mut_ptr() as u64
}

const SIGCHLD: u64 = 17;
const CURRENT_DIRECTORY: u64 = -100_i64 as u64;
const ANY: u64 = -1_i64 as u64;
const PROCESS_KEYRING: u64 = -2_i64 as u64;
const SESSION_KEYRING: u64 = -3_i64 as u64;

#[cfg(target_arch = "x86_64")]
mod numbers {
    pub(super) const ACCT: i64 = 163;
    pub(super) const ADD_KEY: i64 = 248;
    pub(super) const BPF: i64 = 321;
    pub(super) const CLONE: i64 = 56;
    pub(super) const CLONE3: i64 = 435;
    pub(super) const DELETE_MODULE: i64 = 176;
    pub(super) const EXIT_GROUP: i64 = 231;
    pub(super) const FANOTIFY_INIT: i64 = 300;
    pub(super) const IO_SETUP: i64 = 206;
    pub(super) const IO_URING_SETUP: i64 = 425;
    pub(super) const KCMP: i64 = 312;
    pub(super) const KEXEC_LOAD: i64 = 246;
    pub(super) const KEYCTL: i64 = 250;
    pub(super) const LANDLOCK_CREATE_RULESET: i64 = 444;
    pub(super) const OPEN_BY_HANDLE_AT: i64 = 304;
    pub(super) const PERF_EVENT_OPEN: i64 = 298;
    pub(super) const PROCESS_VM_READV: i64 = 310;
    pub(super) const PTRACE: i64 = 101;
    pub(super) const REBOOT: i64 = 169;
    pub(super) const REQUEST_KEY: i64 = 249;
    pub(super) const SETTIMEOFDAY: i64 = 164;
    pub(super) const SWAPON: i64 = 167;
    pub(super) const SYSLOG: i64 = 103;
    pub(super) const UNSHARE: i64 = 272;
    pub(super) const USERFAULTFD: i64 = 323;
}

#[cfg(target_arch = "aarch64")]
mod numbers {
    pub(super) const ACCT: i64 = 89;
    pub(super) const ADD_KEY: i64 = 217;
    pub(super) const BPF: i64 = 280;
    pub(super) const CLONE: i64 = 220;
    pub(super) const CLONE3: i64 = 435;
    pub(super) const DELETE_MODULE: i64 = 106;
    pub(super) const EXIT_GROUP: i64 = 94;
    pub(super) const FANOTIFY_INIT: i64 = 262;
    pub(super) const IO_SETUP: i64 = 0;
    pub(super) const IO_URING_SETUP: i64 = 425;
    pub(super) const KCMP: i64 = 272;
    pub(super) const KEXEC_LOAD: i64 = 104;
    pub(super) const KEYCTL: i64 = 219;
    pub(super) const LANDLOCK_CREATE_RULESET: i64 = 444;
    pub(super) const OPEN_BY_HANDLE_AT: i64 = 265;
    pub(super) const PERF_EVENT_OPEN: i64 = 241;
    pub(super) const PROCESS_VM_READV: i64 = 270;
    pub(super) const PTRACE: i64 = 117;
    pub(super) const REBOOT: i64 = 142;
    pub(super) const REQUEST_KEY: i64 = 218;
    pub(super) const SETTIMEOFDAY: i64 = 170;
    pub(super) const SWAPON: i64 = 224;
    pub(super) const SYSLOG: i64 = 116;
    pub(super) const UNSHARE: i64 = 97;
    pub(super) const USERFAULTFD: i64 = 282;
}
