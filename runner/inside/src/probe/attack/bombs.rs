//! What takes more than its share: each has to be ended from outside, and the
//! run must say why it was.
//!
//! None of them ends by itself before the limit that it is aimed at, and each
//! has a bound of its own, so that where there is no limit it does no harm.

use std::fs::File;
use std::io::Write as _;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

/// Something that must be contained.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bomb {
    /// Writes into one place until it is full.
    Disk,
    /// Makes files with nothing in them.
    Inodes,
    /// Processes that make processes.
    Fork,
    /// Memory, touched.
    Memory,
    /// Prints without end.
    Output,
    /// Does not end when asked.
    Stubborn,
    /// Threads.
    Threads,
}

impl Bomb {
    pub const ALL: [Self; 7] = [
        Self::Disk,
        Self::Inodes,
        Self::Fork,
        Self::Memory,
        Self::Output,
        Self::Stubborn,
        Self::Threads,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Inodes => "inodes",
            Self::Fork => "fork",
            Self::Memory => "memory",
            Self::Output => "output",
            Self::Stubborn => "stubborn",
            Self::Threads => "threads",
        }
    }
}

/// `sluice-probe attack bomb KIND [PLACE]`.
pub(super) fn main(arguments: &[String]) -> ExitCode {
    let place = arguments.get(1).map_or("/tmp", String::as_str);
    let bomb = Bomb::ALL
        .into_iter()
        .find(|bomb| Some(bomb.name()) == arguments.first().map(String::as_str));
    match bomb {
        Some(Bomb::Disk) => disk(place),
        Some(Bomb::Inodes) => inodes(place),
        Some(Bomb::Fork) => fork(),
        Some(Bomb::Memory) => memory(),
        Some(Bomb::Output) => output(),
        Some(Bomb::Stubborn) => stubborn(),
        Some(Bomb::Threads) => threads(),
        None => ExitCode::from(2),
    }
}

#[expect(clippy::print_stderr, reason = "this is a program's own output")]
fn disk(place: &str) -> ExitCode {
    let piece = vec![0x5a; 1 << 20];
    let name = format!("{place}/sluice-bomb");
    let file = File::create(&name);
    let Ok(mut file) = file else { return ExitCode::from(3) };
    for _ in 0..MAX_MEGABYTES {
        if let Err(err) = file.write_all(&piece) {
            eprintln!("{place}: {err}");
            // What fits into the last page still, so that full means full.
            while file.write_all(b"x").is_ok() {}
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

#[expect(clippy::print_stderr, reason = "this is a program's own output")]
fn inodes(place: &str) -> ExitCode {
    for number in 0..MAX_FILES {
        if let Err(err) = File::create(format!("{place}/sluice-bomb-{number}")) {
            eprintln!("{place}: {err}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Each starts two more of itself, in two generations fewer.
fn fork() -> ExitCode {
    let depth = std::env::var("SLUICE_BOMB").ok().and_then(|depth| depth.parse::<u32>().ok());
    let left = depth.unwrap_or(GENERATIONS);
    let mut children = Vec::new();
    let mut refused = false;
    while left > 0 && children.len() < 2 {
        let child = Command::new("/proc/self/exe")
            .args(["attack", "bomb", "fork"])
            .env("SLUICE_BOMB", (left - 1).to_string())
            .spawn();
        match child {
            Ok(child) => children.push(child),
            Err(_) => {
                refused = true;
                break;
            }
        }
    }
    // As many as can be, at once.
    thread::sleep(Duration::from_secs(2));
    for mut child in children {
        refused |= !child.wait().is_ok_and(|status| status.success());
    }
    ExitCode::from(u8::from(refused))
}

fn memory() -> ExitCode {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for _ in 0..MAX_MEGABYTES {
        kept.push(vec![0x5a; 1 << 20]);
    }
    ExitCode::from(u8::from(kept.is_empty()))
}

fn output() -> ExitCode {
    let line = vec![b'x'; 64 * 1024];
    let mut out = std::io::stdout();
    for _ in 0..(MAX_MEGABYTES * 16) {
        if out.write_all(&line).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Hears every request to end, and does not.
fn stubborn() -> ExitCode {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    runtime.block_on(async {
        let kinds = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()];
        // Held until the end: a signal that somebody listens for kills nobody.
        let _ears: Vec<_> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
        tokio::time::sleep(Duration::from_secs(MAX_SECONDS)).await;
    });
    ExitCode::SUCCESS
}

#[expect(clippy::print_stderr, reason = "this is a program's own output")]
fn threads() -> ExitCode {
    for number in 0..MAX_THREADS {
        let asleep = || thread::sleep(Duration::from_secs(MAX_SECONDS));
        if let Err(err) = thread::Builder::new().stack_size(16 * 1024).spawn(asleep) {
            eprintln!("after {number} threads: {err}");
            // As many as can be, for a moment.
            thread::sleep(Duration::from_secs(1));
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

const GENERATIONS: u32 = 9;
const MAX_FILES: u32 = 2_000_000;
const MAX_MEGABYTES: u64 = 1024;
const MAX_SECONDS: u64 = 300;
const MAX_THREADS: u32 = 40_000;
