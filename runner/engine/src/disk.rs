//! The disk limit of a run, for all that it writes to its workspace together.
//!
//! A single file is bounded by the kernel, and what is memory by its size; the
//! sum of what is written into the workspace has no bound that a user may set
//! without being root. So it is measured, and a run that takes more is ended.
//!
//! Measuring a large tree takes time, asking a file system how much room it has
//! left does not. As long as the file system as a whole has lost less than the
//! run may still take, the run cannot have taken it, and its tree is not looked
//! at. It is looked at anyway now and then, because somebody else may have made
//! room meanwhile. The time between two looks is a multiple of what a look takes.
//! When the run has ended there is a last look, so that who was quicker than we
//! is judged as who was not.
//!
//! | mode | what counts |
//! |---|---|
//! | overlay | everything in the upper layer |
//! | direct | what the project grew by since the run began, whoever wrote it |
//! | readonly, none | nothing can be written |
//!
//! What no name leads to any more is not in the tree: a process may fill a file
//! that it has removed. That shows in the file system alone, and nobody can say
//! whose it is; before it is full every run that writes there ends.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use files::tree::Directory;
use rustix::fs::statvfs;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::plan::Limits;
use crate::workspace::usage::{DiskUsage, Measured, measure};

/// What a run has too much of.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Full {
    /// Bytes.
    Bytes,
    /// It branches deeper than anybody could measure.
    Deep,
    /// Files and directories.
    Files,
    /// There is hardly any room left on the disk itself.
    Host,
}

/// Which directory is watched, and what it may take.
#[derive(Clone, Debug)]
pub struct Watched {
    pub directory: PathBuf,
    pub most: DiskUsage,
    /// What is there at the start does not count.
    pub growth_alone: bool,
}

impl Watched {
    pub fn new(directory: &Path, limits: &Limits, growth_alone: bool) -> Self {
        let most = DiskUsage { bytes: limits.disk, files: limits.files() };
        Self { directory: directory.to_owned(), most, growth_alone }
    }
}

/// Looks after a directory until it is dropped.
#[derive(Debug)]
pub struct Watch {
    full: Option<oneshot::Receiver<Option<Full>>>,
    /// A word on it asks for the last look; its end, that nobody wants to know.
    over: Option<mpsc::Sender<()>>,
}

impl Watch {
    /// Nothing to look after.
    pub fn nothing() -> Self {
        Self { full: None, over: None }
    }

    pub fn over(watched: Watched) -> Self {
        let (tell, full) = oneshot::channel();
        let (over, told) = mpsc::channel();
        // A thread: looking blocks, and must not wait for its turn.
        thread::spawn(move || {
            tell.send(watch(&watched, &told)).ok();
        });
        Self { full: Some(full), over: Some(over) }
    }

    /// Waits until there is too much; for ever, if there never is.
    pub async fn full(&mut self) -> Full {
        if let Some(full) = &mut self.full {
            let told = full.await;
            // Told once; after that there is nothing to wait for.
            self.full = None;
            if let Ok(Some(full)) = told {
                return full;
            }
        }
        std::future::pending().await
    }

    /// Looks once more, now that nobody writes any longer.
    pub async fn last_look(&mut self) -> Option<Full> {
        if let Some(over) = self.over.take() {
            // One that has found too much already does not listen.
            over.send(()).ok();
        }
        self.full.take()?.await.ok().flatten()
    }
}

/// Until there is too much, or until nobody wants to know.
fn watch(watched: &Watched, over: &mpsc::Receiver<()>) -> Option<Full> {
    let root = Directory::open(&watched.directory).ok()?;
    let room = room(&watched.directory)?;
    let look = |most: &DiskUsage| {
        let begun = Instant::now();
        // A tree that cannot be read at all has been removed.
        measure(&root, most).ok().map(|measured| (measured, begun.elapsed()))
    };
    let (before, took) = match watched.growth_alone {
        true => look(&DiskUsage { bytes: u64::MAX, files: u64::MAX })?,
        false => (Measured::default(), Duration::ZERO),
    };
    let most = DiskUsage {
        bytes: watched.most.bytes.saturating_add(before.usage.bytes),
        files: watched.most.files.saturating_add(before.usage.files),
    };
    let mut meter = Meter {
        most,
        start: room,
        last: Look { at: Instant::now(), took, room, usage: before.usage },
    };
    loop {
        let is_over = match over.recv_timeout(TICK) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return None,
        };
        let room = self::room(&watched.directory)?;
        if meter.is_host_full(room) && !is_over {
            return Some(Full::Host);
        }
        let now = Instant::now();
        let is_due =
            if is_over { meter.is_worth_a_last_look(room) } else { meter.is_due(now, room) };
        if is_due {
            let (measured, took) = look(&most)?;
            if let Some(full) = meter.judge(&measured, room) {
                return Some(full);
            }
            meter.last = Look { at: now + took, took, room, usage: measured.usage };
        }
        if is_over {
            return None;
        }
    }
}

/// What is known between two looks.
#[derive(Clone, Copy, Debug)]
struct Meter {
    most: DiskUsage,
    /// Room at the start.
    start: DiskUsage,
    last: Look,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    took: Duration,
    /// Room on the file system then.
    room: DiskUsage,
    usage: DiskUsage,
}

impl Meter {
    /// Whether it is time to look again.
    fn is_due(&self, now: Instant, room: DiskUsage) -> bool {
        let Look { at, took, .. } = self.last;
        let pause = match self.may_be_full(room) {
            true => took * HURRIED,
            false => (took * LEISURELY).max(A_WHILE),
        };
        now.saturating_duration_since(at) >= pause
    }

    /// Whether the run can have taken the rest of what it may since the last look.
    fn may_be_full(&self, room: DiskUsage) -> bool {
        let Look { room: then, usage, .. } = self.last;
        let (lost, allowed) = (then - room, self.most - usage);
        lost.bytes >= allowed.bytes || lost.files >= allowed.files
    }

    /// A tree that takes long to look at is not looked at for nothing.
    fn is_worth_a_last_look(&self, room: DiskUsage) -> bool {
        self.may_be_full(room) || self.last.took < QUICK
    }

    /// What a look found.
    fn judge(&self, measured: &Measured, room: DiskUsage) -> Option<Full> {
        let lost = self.start - room;
        if measured.usage.files > self.most.files {
            Some(Full::Files)
        } else if measured.usage.bytes > self.most.bytes {
            Some(Full::Bytes)
        } else if measured.deep {
            Some(Full::Deep)
        } else if measured.shut && lost.bytes > self.most.bytes {
            // It cannot be looked at, and as much is gone.
            Some(Full::Bytes)
        } else {
            None
        }
    }

    /// Whether the last of the disk is being taken. A disk that was nearly full
    /// before is not the run's fault.
    fn is_host_full(&self, room: DiskUsage) -> bool {
        room.bytes < RESERVE.min(self.start.bytes / 2)
    }
}

/// What the file system has left.
fn room(directory: &Path) -> Option<DiskUsage> {
    let found = statvfs(directory).ok()?;
    let bytes = found.f_bfree.saturating_mul(found.f_frsize);
    // Some do not count them.
    let files = if found.f_files == 0 { u64::MAX } else { found.f_ffree };
    Some(DiskUsage { bytes, files })
}

const TICK: Duration = Duration::from_millis(100);
/// Between two looks when nothing says that one is needed.
const A_WHILE: Duration = Duration::from_secs(2);
/// Looking takes at most a twentieth of the time, or a quarter when it matters.
const LEISURELY: u32 = 20;
const HURRIED: u32 = 3;
/// A look that nobody waits for noticeably.
const QUICK: Duration = Duration::from_millis(100);
const RESERVE: u64 = 512 << 20;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn meter(used: u64, took: Duration, at: Instant) -> Meter {
        let room = DiskUsage { bytes: 100 * GIB, files: 1_000_000 };
        Meter {
            most: DiskUsage { bytes: 4 * GIB, files: 1000 },
            start: room,
            last: Look { at, took, room, usage: DiskUsage { bytes: used, files: 10 } },
        }
    }

    fn lost(bytes: u64, files: u64) -> DiskUsage {
        DiskUsage { bytes: 100 * GIB - bytes, files: 1_000_000 - files }
    }

    #[test]
    fn a_tree_that_cannot_have_grown_too_large_is_left_alone() {
        let at = Instant::now();
        let meter = meter(GIB, Duration::from_millis(10), at);
        let soon = at + Duration::from_millis(100);
        assert!(!meter.is_due(soon, lost(2 * GIB, 0)));
        assert!(meter.is_due(soon, lost(3 * GIB, 0)), "it may have taken the rest");
        assert!(meter.is_due(soon, lost(0, 990)), "or the rest of the files");
        assert!(meter.is_due(at + A_WHILE, lost(0, 0)), "somebody may have made room");
    }

    #[test]
    fn looking_never_takes_most_of_the_time() {
        let at = Instant::now();
        let slow = meter(4 * GIB, Duration::from_secs(1), at);
        assert!(!slow.is_due(at + Duration::from_secs(2), lost(50 * GIB, 0)));
        assert!(slow.is_due(at + Duration::from_secs(3), lost(50 * GIB, 0)));
        let calm = meter(0, Duration::from_secs(1), at);
        assert!(!calm.is_due(at + Duration::from_secs(19), lost(0, 0)));
    }

    #[test]
    fn what_is_shut_counts_only_if_as_much_is_gone() {
        let meter = meter(0, Duration::ZERO, Instant::now());
        let shut = Measured { shut: true, ..Measured::default() };
        assert_eq!(meter.judge(&shut, lost(GIB, 0)), None);
        assert_eq!(meter.judge(&shut, lost(5 * GIB, 0)), Some(Full::Bytes));
        assert_eq!(meter.judge(&Measured::default(), lost(5 * GIB, 0)), None, "somebody else");
    }

    #[test]
    fn the_last_of_the_disk_is_not_taken() {
        let mut meter = meter(0, Duration::ZERO, Instant::now());
        assert!(!meter.is_host_full(DiskUsage { bytes: GIB, files: 0 }));
        assert!(meter.is_host_full(DiskUsage { bytes: 100 << 20, files: 0 }));
        meter.start.bytes = 150 << 20;
        assert!(
            !meter.is_host_full(DiskUsage { bytes: 100 << 20, files: 0 }),
            "it was full before"
        );
    }

    #[tokio::test]
    async fn who_ends_before_anybody_looked_is_looked_at_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let most = DiskUsage { bytes: 1 << 20, files: 50 };
        let watched = Watched { directory: dir.path().to_owned(), most, growth_alone: false };
        assert_eq!(Watch::over(watched.clone()).last_look().await, None);
        let mut watch = Watch::over(watched.clone());
        fs::write(dir.path().join("all of it"), vec![1; 1 << 20]).unwrap();
        assert_eq!(watch.last_look().await, None, "as much as it may, and no more");
        let mut watch = Watch::over(watched);
        fs::write(dir.path().join("more"), vec![1; 1 << 20]).unwrap();
        assert_eq!(watch.last_look().await, Some(Full::Bytes));
        assert_eq!(watch.last_look().await, None, "told once");
    }

    #[tokio::test]
    async fn too_much_is_noticed_and_what_was_there_before_is_not() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("before"), vec![1; 1 << 20]).unwrap();
        let most = DiskUsage { bytes: 1 << 19, files: 50 };
        let watched =
            |growth_alone| Watched { directory: dir.path().to_owned(), most, growth_alone };
        assert_eq!(Watch::over(watched(false)).full().await, Full::Bytes);
        let mut grown = Watch::over(watched(true));
        let early = tokio::time::timeout(Duration::from_secs(3), grown.full()).await;
        assert!(early.is_err(), "{early:?}");
        let mut grown = Watch::over(watched(true));
        // When it has looked for the first time is not ours to know, so there is
        // always more to come.
        let growing = async {
            for number in 0.. {
                fs::write(dir.path().join(number.to_string()), "").unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            full = grown.full() => assert_eq!(full, Full::Files),
            () = growing => unreachable!("it has no end"),
        }
    }
}
