//! The ledger's promises: once, in order, or not without saying so.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::event::{Connection, Event, Kind, Limit, Operator, Outcome, Request};
use crate::segment::Segment;
use crate::{Text, line};

#[tokio::test]
async fn an_entry_is_opened_once_and_closed_once_under_one_id() {
    let dir = private_dir();
    let (log, _) = Log::open(dir.path(), Options::new("run-1")).unwrap();

    let mut entry = log.begin(Request::default()).unwrap();
    let id = entry.id();
    entry.destination = crate::Destination::new("api.github.com", 443);
    entry.opened().await.unwrap();
    assert_eq!(kinds(dir.path()), [Kind::LogStarted, Kind::Opened], "safe before it resolves");
    entry.opened().await.unwrap();
    entry.http.status = Some(200);
    entry.close(Outcome::Relayed);
    log.close().await.unwrap();

    let events = events(dir.path());
    let ours: Vec<_> = events.iter().filter(|event| event.id == id).collect();
    assert_eq!(
        ours.iter().map(|event| event.what.kind()).collect::<Vec<_>>(),
        [Kind::Opened, Kind::Request,]
    );
    let What::Request(request) = &ours[1].what else { panic!("{ours:?}") };
    assert_eq!(request.outcome, Outcome::Relayed);
    assert_eq!(request.destination.host.as_ref().unwrap(), "api.github.com");
    assert_eq!(events.last().unwrap().what.kind(), Kind::LogClosed);
}

#[tokio::test]
async fn an_opening_that_was_cancelled_is_waited_for_by_the_next_call() {
    let dir = private_dir();
    let (log, _) = Log::open(dir.path(), Options::new("run-1")).unwrap();
    let mut entry = log.begin(Request::default()).unwrap();
    {
        let mut opening = std::pin::pin!(entry.opened());
        let waker = std::task::Waker::noop();
        // Once, then dropped; whether it was ready already does not matter.
        let _ = opening.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_ready();
    }
    entry.opened().await.unwrap();
    drop(entry);
    log.close().await.unwrap();
    assert_eq!(
        kinds(dir.path()),
        [Kind::LogStarted, Kind::Opened, Kind::Request, Kind::LogClosed,]
    );
}

#[test]
fn a_panic_still_leaves_exactly_one_closing_record() {
    let dir = private_dir();
    let (log, _) = Log::open(dir.path(), Options::new("run-1")).unwrap();
    let (tell, told) = mpsc::channel();
    let worker = {
        let log = log.clone();
        thread::spawn(move || {
            let mut entry = log.begin(Request::default()).unwrap();
            entry.http.path = Some("/half-way".into());
            tell.send(entry.id()).unwrap();
            panic::resume_unwind(Box::new("a request task that panics"));
        })
    };
    let id = told.recv().unwrap();
    worker.join().unwrap_err();
    log.close_blocking().unwrap();

    let closings: Vec<_> = events(dir.path()).into_iter().filter(|event| event.id == id).collect();
    assert_eq!(closings.len(), 1);
    let What::Request(request) = &closings[0].what else { panic!("{closings:?}") };
    assert_eq!(request.outcome, Outcome::Abandoned);
    assert_eq!(request.http.path.as_ref().unwrap(), "/half-way");
}

#[test]
fn eight_threads_write_thousands_of_entries_and_each_is_closed_once() {
    const EACH: usize = 1500;
    let dir = private_dir();
    let options = Options { sync: Sync::Never, segment_bytes: 200_000, ..Options::new("run-1") };
    let (log, _) = Log::open(dir.path(), options).unwrap();
    let workers: Vec<_> = (0..8)
        .map(|worker| {
            let log = log.clone();
            thread::spawn(move || (0..EACH).map(|n| one_entry(&log, worker, n)).collect::<Vec<_>>())
        })
        .collect();
    let ids: Vec<Uuid> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    log.close_blocking().unwrap();

    let mut closings: HashMap<Uuid, u32> = HashMap::new();
    let events = events(dir.path());
    for event in &events {
        if matches!(event.what, What::Request(_) | What::Connection(_)) {
            *closings.entry(event.id).or_default() += 1;
        }
    }
    assert_eq!(ids.len(), 8 * EACH);
    assert!(ids.iter().all(|id| closings.get(id) == Some(&1)));
    assert_eq!(closings.len(), ids.len());
    assert!(Segment::list(dir.path()).unwrap().len() > 5);
    assert!(events.iter().map(|event| event.seq).eq(1..=events.len() as u64));
}

/// Closed, dropped or lost to a panic, in turn.
fn one_entry(log: &Log, worker: usize, n: usize) -> Uuid {
    let mut entry = loop {
        match log.begin(Request::default()) {
            Ok(entry) => break entry,
            Err(Unavailable::Full { .. }) => thread::yield_now(),
            Err(why) => panic!("{why}"),
        }
    };
    entry.http.path = Some(format_args!("/{worker}/{n}").into());
    let id = entry.id();
    match n % 3 {
        0 => entry.close(Outcome::Relayed),
        1 => drop(entry),
        _ => {
            let lost = panic::catch_unwind(AssertUnwindSafe(|| {
                let _entry = entry;
                panic::resume_unwind(Box::new("lost"));
            }));
            lost.unwrap_err();
        }
    }
    id
}

#[test]
fn without_a_place_there_is_no_entry_and_closing_needs_none() {
    let dir = private_dir();
    let options = Options { entries: 2, ..Options::new("run-1") };
    let (log, _) = Log::open(dir.path(), options).unwrap();

    let first = log.begin(Connection::default()).unwrap();
    let second = log.begin(Request::default()).unwrap();
    assert_eq!(log.begin(Request::default()).unwrap_err(), Unavailable::Full { places: 4 });
    assert_eq!(log.record(Limit::default()).unwrap_err(), Unavailable::Full { places: 4 });
    first.close(Outcome::Relayed);
    second.close(Outcome::Refused);
    log.close_blocking().unwrap();

    assert_eq!(log.health().unwritten, 0);
    assert_eq!(log.begin(Request::default()).unwrap_err(), Unavailable::Closed);
}

#[tokio::test]
async fn waiting_for_a_place_ends_with_one_or_at_the_limit() {
    let dir = private_dir();
    let options = Options { entries: 1, ..Options::new("run-1") };
    let (log, _) = Log::open(dir.path(), options).unwrap();

    let held = log.begin(Request::default()).unwrap();
    let refused = log.begin_within(Request::default(), Duration::ZERO).await.unwrap_err();
    assert_eq!(refused, Unavailable::Full { places: 2 });

    held.close(Outcome::Relayed);
    let next = log.begin_within(Request::default(), Duration::from_secs(600)).await.unwrap();
    next.close(Outcome::Relayed);
}

#[tokio::test]
async fn closing_waits_for_open_entries_and_takes_no_new_ones() {
    let dir = private_dir();
    let (log, _) = Log::open(dir.path(), Options::new("run-1")).unwrap();
    let entry = log.begin(Connection::default()).unwrap();
    let closing = tokio::spawn({
        let log = log.clone();
        async move { log.close().await }
    });
    while log.health().unavailable.is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(log.begin(Request::default()).unwrap_err(), Unavailable::Closed);
    entry.close(Outcome::Relayed);

    let head = closing.await.unwrap().unwrap();
    let kinds = kinds(dir.path());
    assert_eq!(kinds, [Kind::LogStarted, Kind::Connection, Kind::LogClosed]);
    assert_eq!(head.seq, 3);
}

#[test]
fn what_was_queued_is_written_when_the_last_handle_goes() {
    let dir = private_dir();
    let options = Options { sync: Sync::Interval(Duration::from_secs(3600)), ..Options::new("r") };
    let (log, _) = Log::open(dir.path(), options).unwrap();
    for _ in 0..100 {
        log.record(Operator { action: "reload".into(), ..Operator::default() }).unwrap();
    }
    drop(log);
    assert_eq!(events(dir.path()).len(), 101);
}

#[test]
fn a_full_disk_stops_traffic_and_nothing_is_forgotten() {
    // Every byte of the disk is tried as the last one within a line, and some
    // beyond; 700 is in the middle of the second line.
    for capacity in (700..2300).step_by(61) {
        let dir = private_dir();
        let disk = Disk::with_room_for(capacity);
        let (log, _) = Log::open_through(dir.path(), Options::new("run-1"), disk.wrap()).unwrap();
        let mut submitted = 0;
        let why = loop {
            match log.begin(Request::default()) {
                Ok(entry) => entry.close(Outcome::Relayed),
                Err(Unavailable::Full { .. }) => continue,
                Err(why) => break why,
            }
            submitted += 1;
        };
        assert!(matches!(why, Unavailable::Failed { step: Step::Write, .. }), "{why}");
        let health = log.health();
        assert_eq!(health.unavailable.as_ref(), Some(&why));
        assert_eq!(health.written + health.unwritten, submitted);
        assert!(health.unwritten > 0);
        let in_file = whole_lines(dir.path()) - 1;
        assert_eq!(in_file, health.written, "disk of {capacity} bytes");
        assert_eq!(log.close_blocking().unwrap_err(), why, "for good");
    }
}

#[tokio::test]
async fn a_failed_sync_is_told_to_whoever_waits_and_ends_the_log() {
    let dir = private_dir();
    let disk = Disk { syncs: 1, ..Disk::with_room_for(u64::MAX) };
    let (log, _) = Log::open_through(dir.path(), Options::new("run-1"), disk.wrap()).unwrap();
    let mut entry = log.begin(Request::default()).unwrap();
    let why = entry.opened().await.unwrap_err();
    expect!["the audit log cannot sync to disk: no sync today"].assert_eq(&why.to_string());
    assert_eq!(entry.opened().await.unwrap_err(), why);
    entry.close(Outcome::Failed);
    assert_eq!(log.begin(Request::default()).unwrap_err(), why);
    assert_eq!(log.health().unwritten, 2);
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
    assert!(matches!(why, Unavailable::Failed { step: Step::Run, .. }), "{why}");
    assert_eq!(log.begin(Request::default()).unwrap_err(), why);
    assert!(log.health().unwritten > 0);
}

#[test]
fn short_writes_are_finished() {
    let dir = private_dir();
    let disk = Disk { largest: 7, ..Disk::with_room_for(u64::MAX) };
    let (log, _) = Log::open_through(dir.path(), Options::new("run-1"), disk.wrap()).unwrap();
    for _ in 0..20 {
        log.begin(Request::default()).unwrap().close(Outcome::Relayed);
    }
    log.close_blocking().unwrap();
    assert_eq!(events(dir.path()).len(), 22);
}

#[test]
fn a_torn_last_line_is_cut_and_reported_in_the_log() {
    let dir = private_dir();
    let (log, first) = Log::open(dir.path(), Options::new("run-1")).unwrap();
    assert!(first.previous.is_none() && first.recovered.is_none());
    log.record(Operator::default()).unwrap();
    drop(log);
    let file = dir.path().join("audit.jsonl");
    let whole = fs::read(&file).unwrap();
    let torn = br#"{"v":1,"seq":3,"time":"2026-"#;
    fs::write(&file, [&whole[..], torn].concat()).unwrap();

    let (log, opening) = Log::open(dir.path(), Options::new("run-1")).unwrap();
    let recovered = opening.recovered.unwrap();
    assert_eq!(recovered.bytes, torn.len() as u64);
    assert_eq!(recovered.sha256, crate::Digest::of(torn));
    let previous = opening.previous.unwrap();
    assert_eq!((previous.head.seq, previous.closed), (2, false));
    log.close_blocking().unwrap();

    assert!(fs::read(&file).unwrap().starts_with(&whole));
    let events = events(dir.path());
    assert_eq!(
        kinds(dir.path()),
        [Kind::LogStarted, Kind::Operator, Kind::LogStarted, Kind::Recovered, Kind::LogClosed,]
    );
    assert_eq!(events[3].what, What::Recovered(recovered));

    let (_log, opening) = Log::open(dir.path(), Options::new("run-1")).unwrap();
    assert!(opening.previous.unwrap().closed);
    assert!(opening.recovered.is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A crash may cut the file anywhere. The next writer goes on, the chain is
    /// whole, and what was cut off is on record.
    #[test]
    fn a_log_cut_anywhere_is_continued_and_verifies(at: prop::sample::Index) {
        let dir = private_dir();
        let (log, _) = Log::open(dir.path(), Options::new("run-1")).unwrap();
        for _ in 0..5 {
            log.record(Operator::default()).unwrap();
        }
        drop(log);
        let file = dir.path().join("audit.jsonl");
        let bytes = fs::read(&file).unwrap();
        let cut = &bytes[..at.index(bytes.len())];
        fs::write(&file, cut).unwrap();
        let torn = cut.len() - cut.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);

        let (log, opening) = Log::open(dir.path(), Options::new("run-1")).unwrap();
        prop_assert_eq!(opening.recovered.map_or(0, |recovered| recovered.bytes), torn as u64);
        log.close_blocking().unwrap();
        let verified = crate::verify(dir.path(), &[]).unwrap().log.unwrap();
        prop_assert_eq!(verified.recovered, u64::from(torn > 0));
        prop_assert!(verified.closed);
    }
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
    let count = async |sync: Sync, records: u32| {
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
    assert_eq!(count(Sync::EachBatch, 5).await, (5, 0));
    assert_eq!(count(Sync::Never, 5).await, (0, 1), "once, at the end");
    assert_eq!(count(Sync::Interval(Duration::from_secs(3600)), 5).await, (0, 1));
    assert_eq!(count(Sync::Interval(Duration::ZERO), 5).await, (5, 0));
    let hour = Duration::from_secs(3600);
    assert_eq!(count(Sync::Awaited(hour), 5).await, (5, 0), "each was waited for");
}

#[tokio::test]
async fn what_nobody_waits_for_is_synced_with_what_somebody_does() {
    let dir = private_dir();
    let disk = Disk::with_room_for(u64::MAX);
    let synced = Arc::clone(&disk.synced);
    let sync = Sync::Awaited(Duration::from_secs(3600));
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
    let sync = Sync::Interval(Duration::from_millis(1));
    let options = Options { sync, ..Options::new("run-1") };
    let (log, _) = Log::open_through(dir.path(), options, disk.wrap()).unwrap();
    let before = synced.load(Ordering::Relaxed);
    log.record(Operator::default()).unwrap();
    while synced.load(Ordering::Relaxed) == before {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_crash_between_two_segments_is_continued() {
    for leave_empty in [false, true] {
        let dir = private_dir();
        let (log, _) = Log::open(dir.path(), Options::new("run-1")).unwrap();
        drop(log);
        let current = dir.path().join("audit.jsonl");
        fs::rename(&current, dir.path().join("audit.000001.jsonl")).unwrap();
        if leave_empty {
            fs::write(&current, "").unwrap();
            fs::set_permissions(&current, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let (log, opening) = Log::open(dir.path(), Options::new("run-1")).unwrap();
        assert_eq!(opening.previous.unwrap().head.seq, 1);
        drop(log);
        assert_eq!(kinds(dir.path()), [Kind::LogStarted, Kind::SegmentStarted, Kind::LogStarted]);
    }
}

#[test]
fn two_writers_never_share_a_log() {
    let dir = private_dir();
    let (log, _) = Log::open(dir.path(), Options::new("run-1")).unwrap();
    let err = Log::open(dir.path(), Options::new("run-2")).unwrap_err();
    assert!(matches!(err, OpenError::Busy { .. }), "{err}");
    drop(log);
    Log::open(dir.path(), Options::new("run-2")).unwrap();
}

#[test]
fn a_directory_that_others_can_reach_is_refused_with_the_remedy() {
    let dir = private_dir();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    refused(&dir, expect!["others can reach DIR (mode 755): run `chmod 700 DIR`"]);

    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let file = dir.path().join("audit.jsonl");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    refused(
        &dir,
        expect!["others can reach DIR/audit.jsonl (mode 640): run `chmod 600 DIR/audit.jsonl`"],
    );
}

#[test]
fn what_is_not_a_log_is_not_appended_to() {
    let dir = private_dir();
    let file = dir.path().join("audit.jsonl");
    fs::write(&file, "hello\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    refused(
        &dir,
        expect![
            "DIR/audit.jsonl is not an audit log that can be continued: line 1: not an audit event: expected value at line 1 column 1; move the folder away to begin a new one"
        ],
    );
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/dev/null", &file).unwrap();
    refused(&dir, expect!["DIR/audit.jsonl is not a regular file"]);
}

#[test]
fn files_are_made_private() {
    let dir = private_dir();
    let nested = dir.path().join("state/runs/run-1");
    let options = Options { segment_bytes: 1, ..Options::new("run-1") };
    let (log, _) = Log::open(&nested, options).unwrap();
    log.record(Operator::default()).unwrap();
    drop(log);
    assert_eq!(nested.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    for segment in Segment::list(&nested).unwrap() {
        assert_eq!(segment.path().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_handle_for_another_run_writes_to_the_same_log() {
    let dir = private_dir();
    let (log, _) = Log::open(dir.path(), Options::new("session")).unwrap();
    log.of_run("run-7").record(Operator::default()).unwrap();
    log.close_blocking().unwrap();
    let runs: Vec<_> = events(dir.path()).into_iter().map(|event| event.run).collect();
    assert_eq!(runs, [Text::from("session"), "run-7".into(), "session".into()]);
}

/// A disk that behaves as told.
struct Disk {
    room: u64,
    largest: usize,
    syncs: u32,
    rotations: u32,
    panics: bool,
    used: Arc<AtomicU64>,
    synced: Arc<AtomicU64>,
}

struct Faulty(Folder, Disk);

impl Disk {
    fn with_room_for(room: u64) -> Self {
        Self {
            room,
            largest: usize::MAX,
            syncs: u32::MAX,
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
        let free = disk.room - disk.used.load(Ordering::Relaxed);
        let count = bytes.len().min(disk.largest).min(usize::try_from(free).unwrap_or(usize::MAX));
        if count == 0 {
            assert!(!disk.panics, "the disk is full, and this disk panics then");
            return Err(io::ErrorKind::StorageFull.into());
        }
        disk.used.fetch_add(count as u64, Ordering::Relaxed);
        folder.write(&bytes[..count])
    }

    fn sync(&mut self) -> io::Result<()> {
        let Some(left) = self.1.syncs.checked_sub(1) else {
            return Err(io::Error::other("no sync today"));
        };
        self.1.syncs = left;
        self.1.synced.fetch_add(1, Ordering::Relaxed);
        self.0.sync()
    }

    fn rotate(&mut self) -> io::Result<String> {
        let Some(left) = self.1.rotations.checked_sub(1) else {
            return Err(io::Error::other("no rotation today"));
        };
        self.1.rotations = left;
        self.0.rotate()
    }
}

fn private_dir() -> TempDir {
    let private = fs::Permissions::from_mode(0o700);
    tempfile::Builder::new().permissions(private).tempdir().unwrap()
}

fn events(dir: &Path) -> Vec<Event> {
    let mut events = Vec::new();
    for segment in Segment::list(dir).unwrap() {
        let text = fs::read_to_string(segment.path()).unwrap();
        events.extend(text.lines().map(|text| line::read(text.as_bytes()).unwrap()));
    }
    events
}

fn kinds(dir: &Path) -> Vec<Kind> {
    events(dir).iter().map(|event| event.what.kind()).collect()
}

fn whole_lines(dir: &Path) -> u64 {
    let bytes = fs::read(dir.join("audit.jsonl")).unwrap();
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

#[track_caller]
fn refused(dir: &TempDir, expected: Expect) {
    let err = Log::open(dir.path(), Options::new("run-1")).unwrap_err();
    expected.assert_eq(&err.to_string().replace(dir.path().to_str().unwrap(), "DIR"));
}
