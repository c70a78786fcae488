//! A disk that fails, and when it is asked to sync.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use expect_test::expect;

use super::*;

#[test]
fn a_full_disk_stops_traffic_and_nothing_is_forgotten() {
    // Every byte of the disk is tried as the last one within a line, and some
    // beyond; 700 is in the middle of the second line.
    for capacity in (700..2300).step_by(61) {
        let dir = private_dir();
        let disk = Disk::with_room_for(capacity);
        let options = Options { entries: 32, ..Options::new("run-1") };
        let (log, _) = Log::open_through(dir.path(), options, disk.wrap()).unwrap();
        let mut submitted = 0;
        let why = loop {
            match log.begin(RequestFacts::default()) {
                Ok(entry) => entry.close(EntryOutcome::Relayed),
                Err(Unavailable::Full { .. }) => continue,
                Err(why) => break why,
            };
            submitted += 1;
        };
        assert!(matches!(why, Unavailable::NoRoom { .. }), "{why}");
        let health = log.health();
        assert_eq!(health.unavailable.as_ref(), Some(&why));
        assert_eq!(health.written + health.unwritten, submitted);
        assert!(health.unwritten > 0);
        let in_file = whole_lines(dir.path()) - 1;
        assert_eq!(in_file, health.written, "disk of {capacity} bytes");
    }
}

#[tokio::test]
async fn a_failed_sync_is_told_to_whoever_waits_and_ends_the_log() {
    let dir = private_dir();
    let disk = Disk { syncs: Arc::new(1.into()), ..Disk::with_room_for(u64::MAX) };
    let (log, _) = Log::open_through(dir.path(), Options::new("run-1"), disk.wrap()).unwrap();
    let mut entry = log.begin(RequestFacts::default()).unwrap();
    let why = entry.opened().await.unwrap_err();
    expect!["the audit log cannot sync to disk: no sync today"].assert_eq(&why.to_string());
    assert_eq!(entry.opened().await.unwrap_err(), why);
    entry.close(EntryOutcome::Failed);
    assert_eq!(log.begin(RequestFacts::default()).unwrap_err(), why);
    assert_eq!(log.health().unwritten, 1, "the first line is in the file, for what that is worth");
}

#[tokio::test]
async fn a_segment_that_cannot_be_begun_ends_the_log() {
    let dir = private_dir();
    let disk = Disk { rotations: 0, ..Disk::with_room_for(u64::MAX) };
    let options = Options { segment_bytes: 1, ..Options::new("run-1") };
    let (log, _) = Log::open_through(dir.path(), options, disk.wrap()).unwrap();
    log.record_safely(Operator::default()).await.unwrap();
    let why = loop {
        match log.record_safely(Operator::default()).await {
            Ok(_) => continue,
            Err(why) => break why,
        }
    };
    expect!["the audit log cannot begin the next segment: no rotation today"]
        .assert_eq(&why.to_string());
}

#[tokio::test]
async fn a_writer_that_panics_leaves_an_unavailable_log() {
    let dir = private_dir();
    let disk = Disk { panics: true, ..Disk::with_room_for(700) };
    let (log, _) = Log::open_through(dir.path(), Options::new("run-1"), disk.wrap()).unwrap();
    let mut why = None;
    while why.is_none() {
        why = log.record_safely(Operator::default()).await.err();
    }
    let why = why.unwrap();
    assert!(matches!(why, Unavailable::Failed { step: WriterStep::Run, .. }), "{why}");
    assert_eq!(log.begin(RequestFacts::default()).unwrap_err(), why);
    assert!(log.health().unwritten > 0);
}

#[test]
fn short_writes_are_finished() {
    let dir = private_dir();
    let disk = Disk { largest: 7, ..Disk::with_room_for(u64::MAX) };
    let (log, _) = Log::open_through(dir.path(), Options::new("run-1"), disk.wrap()).unwrap();
    for _ in 0..20 {
        log.begin(RequestFacts::default()).unwrap().close(EntryOutcome::Relayed);
    }
    log.close_blocking().unwrap();
    assert_eq!(events(dir.path()).len(), 22);
}

#[test]
fn a_log_that_a_full_disk_ended_is_continued_when_there_is_room() {
    let dir = private_dir();
    let disk = Disk::with_room_for(1000);
    let (log, _) = Log::open_through(dir.path(), Options::new("run-1"), disk.wrap()).unwrap();
    while log.record(Operator::default()).is_ok() {}
    drop(log);
    let (log, opening) = Log::open(dir.path(), Options::new("run-1")).unwrap();
    assert!(opening.recovered.is_some());
    log.close_blocking().unwrap();
    assert_eq!(crate::verify(dir.path(), &[]).unwrap().log.unwrap().recovered, 1);
}

#[tokio::test]
async fn each_policy_syncs_as_it_says() {
    let count = async |sync: SyncPolicy, records: u32| {
        let dir = private_dir();
        let disk = Disk::with_room_for(u64::MAX);
        let synced = Arc::clone(&disk.synced);
        let options = Options { sync, ..Options::new("run-1") };
        let (log, _) = Log::open_through(dir.path(), options, disk.wrap()).unwrap();
        for _ in 0..records {
            log.record_safely(Operator::default()).await.unwrap();
        }
        let before_the_end = synced.load(Ordering::Relaxed) - 1;
        drop(log);
        (before_the_end, synced.load(Ordering::Relaxed) - 1 - before_the_end)
    };
    assert_eq!(count(SyncPolicy::EachBatch, 5).await, (5, 0));
    assert_eq!(count(SyncPolicy::Never, 5).await, (0, 1), "once, at the end");
    assert_eq!(count(SyncPolicy::Interval(Duration::from_secs(3600)), 5).await, (0, 1));
    assert_eq!(count(SyncPolicy::Interval(Duration::ZERO), 5).await, (5, 0));
    let hour = Duration::from_secs(3600);
    assert_eq!(count(SyncPolicy::Awaited(hour), 5).await, (5, 0), "each was waited for");
}

#[tokio::test]
async fn what_nobody_waits_for_is_synced_with_what_somebody_does() {
    let dir = private_dir();
    let disk = Disk::with_room_for(u64::MAX);
    let synced = Arc::clone(&disk.synced);
    let sync = SyncPolicy::Awaited(Duration::from_secs(3600));
    let options = Options { sync, ..Options::new("run-1") };
    let (log, _) = Log::open_through(dir.path(), options, disk.wrap()).unwrap();
    let before = synced.load(Ordering::Relaxed);
    for _ in 0..100 {
        log.record(Operator::default()).unwrap();
    }
    while log.health().written < 100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(synced.load(Ordering::Relaxed), before, "nobody waited, and the hour is not over");
    log.record_safely(Operator::default()).await.unwrap();
    assert_eq!(synced.load(Ordering::Relaxed), before + 1);
}

#[tokio::test]
async fn an_interval_ends_without_another_record() {
    let dir = private_dir();
    let disk = Disk::with_room_for(u64::MAX);
    let synced = Arc::clone(&disk.synced);
    let sync = SyncPolicy::Interval(Duration::from_millis(1));
    let options = Options { sync, ..Options::new("run-1") };
    let (log, _) = Log::open_through(dir.path(), options, disk.wrap()).unwrap();
    let before = synced.load(Ordering::Relaxed);
    log.record(Operator::default()).unwrap();
    while synced.load(Ordering::Relaxed) == before {
        tokio::task::yield_now().await;
    }
}

/// A disk that behaves as told.
struct Disk {
    room: Arc<AtomicU64>,
    largest: usize,
    syncs: Arc<AtomicU32>,
    rotations: u32,
    panics: bool,
    used: Arc<AtomicU64>,
    synced: Arc<AtomicU64>,
}

struct Faulty(Folder, Disk);

impl Disk {
    fn with_room_for(room: u64) -> Self {
        Self {
            room: Arc::new(room.into()),
            largest: usize::MAX,
            syncs: Arc::new(u32::MAX.into()),
            rotations: u32::MAX,
            panics: false,
            used: Arc::default(),
            synced: Arc::default(),
        }
    }

    fn wrap(self) -> impl FnOnce(Folder) -> Faulty {
        |folder| Faulty(folder, self)
    }
}

impl Sink for Faulty {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self(folder, disk) = self;
        let free = disk.room.load(Ordering::Relaxed) - disk.used.load(Ordering::Relaxed);
        let count = bytes.len().min(disk.largest).min(usize::try_from(free).unwrap_or(usize::MAX));
        if count == 0 {
            assert!(!disk.panics, "the disk is full, and this disk panics then");
            return Err(io::ErrorKind::StorageFull.into());
        }
        disk.used.fetch_add(count as u64, Ordering::Relaxed);
        folder.write(&bytes[..count])
    }

    fn durable(&self) -> Arc<dyn Durable> {
        let Self(folder, disk) = self;
        let (syncs, synced) = (Arc::clone(&disk.syncs), Arc::clone(&disk.synced));
        Arc::new(FaultySync { syncs, synced, file: folder.durable() })
    }

    fn rotate(&mut self) -> io::Result<String> {
        let Some(left) = self.1.rotations.checked_sub(1) else {
            return Err(io::Error::other("no rotation today"));
        };
        self.1.rotations = left;
        self.0.rotate()
    }
}

struct FaultySync {
    syncs: Arc<AtomicU32>,
    synced: Arc<AtomicU64>,
    file: Arc<dyn Durable>,
}

impl Durable for FaultySync {
    fn sync(&self) -> io::Result<()> {
        let Some(left) = self.syncs.load(Ordering::Relaxed).checked_sub(1) else {
            return Err(io::Error::other("no sync today"));
        };
        self.syncs.store(left, Ordering::Relaxed);
        self.synced.fetch_add(1, Ordering::Relaxed);
        self.file.sync()
    }
}

fn whole_lines(dir: &Path) -> u64 {
    let bytes = fs::read(dir.join("audit.jsonl")).unwrap();
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}
