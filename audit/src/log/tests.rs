//! The ledger's promises: once, in order, or not without saying so.

mod callers;
mod disk;
mod found;
mod room;
mod written;

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::event::{
    ConnectionFacts, EntryOutcome, Event, EventKind, LimitEvent, Operator, RequestFacts,
};
use crate::segment::Segment;
use crate::{Text, line};

#[test]
fn the_thread_of_a_log_that_is_not_written_to_sleeps() {
    let dir = private_dir();
    let (log, _) = Log::open(dir.path(), Options::new("run-1")).unwrap();
    while !log.inner.shared.is_thread_asleep.load(Ordering::SeqCst) {
        thread::yield_now();
    }
}

#[tokio::test]
async fn an_entry_is_opened_once_and_closed_once_under_one_id() {
    let dir = private_dir();
    let (log, _) = Log::open(dir.path(), Options::new("run-1")).unwrap();

    let mut entry = log.begin(RequestFacts::default()).unwrap();
    let id = entry.id();
    entry.destination = crate::DestinationRecord::new("api.github.com", 443);
    entry.opened().await.unwrap();
    assert_eq!(
        kinds(dir.path()),
        [EventKind::LogStarted, EventKind::Opened],
        "safe before it resolves"
    );
    entry.opened().await.unwrap();
    entry.http.status = Some(200);
    entry.close(EntryOutcome::Relayed);
    log.close().await.unwrap();

    let events = events(dir.path());
    let ours: Vec<_> = events.iter().filter(|event| event.id == id).collect();
    assert_eq!(
        ours.iter().map(|event| event.what.kind()).collect::<Vec<_>>(),
        [EventKind::Opened, EventKind::Request,]
    );
    let EventBody::Request(request) = &ours[1].what else { panic!("{ours:?}") };
    assert_eq!(request.outcome, EntryOutcome::Relayed);
    assert_eq!(request.destination.host.as_ref().unwrap(), "api.github.com");
    assert_eq!(events.last().unwrap().what.kind(), EventKind::LogClosed);
}

#[tokio::test]
async fn an_opening_that_was_cancelled_is_waited_for_by_the_next_call() {
    let dir = private_dir();
    let (log, _) = Log::open(dir.path(), Options::new("run-1")).unwrap();
    let mut entry = log.begin(RequestFacts::default()).unwrap();
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
        [EventKind::LogStarted, EventKind::Opened, EventKind::Request, EventKind::LogClosed,]
    );
}

#[test]
fn a_panic_still_leaves_exactly_one_closing_record() {
    let dir = private_dir();
    let (log, _) = Log::open(dir.path(), Options::new("run-1")).unwrap();
    let (tell, describe) = mpsc::channel();
    let worker = {
        let log = log.clone();
        thread::spawn(move || {
            let mut entry = log.begin(RequestFacts::default()).unwrap();
            entry.http.path = Some("/half-way".into());
            tell.send(entry.id()).unwrap();
            panic::resume_unwind(Box::new("a request task that panics"));
        })
    };
    let id = describe.recv().unwrap();
    worker.join().unwrap_err();
    log.close_blocking().unwrap();

    let closings: Vec<_> = events(dir.path()).into_iter().filter(|event| event.id == id).collect();
    assert_eq!(closings.len(), 1);
    let EventBody::Request(request) = &closings[0].what else { panic!("{closings:?}") };
    assert_eq!(request.outcome, EntryOutcome::Abandoned);
    assert_eq!(request.http.path.as_ref().unwrap(), "/half-way");
}

#[test]
fn eight_threads_write_thousands_of_entries_and_each_is_closed_once() {
    const EACH: usize = 1500;
    let dir = private_dir();
    let options =
        Options { sync: SyncPolicy::Never, segment_bytes: 200_000, ..Options::new("run-1") };
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
        if matches!(event.what, EventBody::Request(_) | EventBody::Connection(_)) {
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
        match log.begin(RequestFacts::default()) {
            Ok(entry) => break entry,
            Err(Unavailable::Full { .. }) => thread::yield_now(),
            Err(why) => panic!("{why}"),
        }
    };
    entry.http.path = Some(format_args!("/{worker}/{n}").into());
    let id = entry.id();
    match n % 3 {
        0 => drop(entry.close(EntryOutcome::Relayed)),
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

    let first = log.begin(ConnectionFacts::default()).unwrap();
    let second = log.begin(RequestFacts::default()).unwrap();
    assert_eq!(log.begin(RequestFacts::default()).unwrap_err(), Unavailable::Full { places: 4 });
    assert_eq!(log.record(LimitEvent::default()).unwrap_err(), Unavailable::Full { places: 4 });
    first.close(EntryOutcome::Relayed);
    second.close(EntryOutcome::Refused);
    log.close_blocking().unwrap();

    assert_eq!(log.health().unwritten, 0);
    assert_eq!(log.begin(RequestFacts::default()).unwrap_err(), Unavailable::Closed);
}

#[test]
fn a_log_that_has_its_size_takes_nothing_new_and_ends_in_order() {
    let dir = private_dir();
    let options = Options { max_bytes: 20_000, segment_bytes: 6_000, ..Options::new("run-1") };
    let (log, _) = Log::open(dir.path(), options.clone()).unwrap();
    let open = log.begin(RequestFacts::default()).unwrap();
    let refused = loop {
        match log.record(LimitEvent::default()) {
            // One at a time, so that segments fill one by one.
            Ok(_) => while log.health().unwritten > 0 {},
            Err(why) => break why,
        }
    };
    assert_eq!(refused, Unavailable::Spent { bytes: 20_000 });
    assert_eq!(log.health().unavailable, Some(refused));
    let id = open.id();
    open.close(EntryOutcome::Relayed);
    log.close_blocking().unwrap();

    let events = events(dir.path());
    let spent = |what: &EventBody| matches!(what, EventBody::Limit(limit) if limit.name == "audit");
    assert_eq!(events.iter().filter(|event| spent(&event.what)).count(), 1);
    assert!(events.iter().any(|event| event.id == id), "what was open has its line");
    assert!(matches!(events.last().unwrap().what, EventBody::LogClosed(_)));
    assert!(Segment::list(dir.path()).unwrap().len() > 2);

    // Whoever opens it again has the whole size once more.
    let (log, _) = Log::open(dir.path(), options).unwrap();
    log.begin(RequestFacts::default()).unwrap().close(EntryOutcome::Relayed);
    log.begin(RequestFacts::default()).unwrap().close(EntryOutcome::Relayed);
    log.close_blocking().unwrap();
}

#[tokio::test]
async fn waiting_for_a_place_ends_with_one_or_at_the_limit() {
    let dir = private_dir();
    let options = Options { entries: 1, ..Options::new("run-1") };
    let (log, _) = Log::open(dir.path(), options).unwrap();

    let held = log.begin(RequestFacts::default()).unwrap();
    let refused = log.begin_within(RequestFacts::default(), Duration::ZERO).await.unwrap_err();
    assert_eq!(refused, Unavailable::Full { places: 2 });

    held.close(EntryOutcome::Relayed);
    let next = log.begin_within(RequestFacts::default(), Duration::from_secs(600)).await.unwrap();
    next.close(EntryOutcome::Relayed);
}

#[tokio::test]
async fn closing_waits_for_open_entries_and_takes_no_new_ones() {
    let dir = private_dir();
    let (log, _) = Log::open(dir.path(), Options::new("run-1")).unwrap();
    let entry = log.begin(ConnectionFacts::default()).unwrap();
    let closing = tokio::spawn({
        let log = log.clone();
        async move { log.close().await }
    });
    while log.health().unavailable.is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(log.begin(RequestFacts::default()).unwrap_err(), Unavailable::Closed);
    entry.close(EntryOutcome::Relayed);

    let head = closing.await.unwrap().unwrap();
    let kinds = kinds(dir.path());
    assert_eq!(kinds, [EventKind::LogStarted, EventKind::Connection, EventKind::LogClosed]);
    assert_eq!(head.seq, 3);
}

#[test]
fn what_was_queued_is_written_when_the_last_handle_goes() {
    let dir = private_dir();
    let options =
        Options { sync: SyncPolicy::Interval(Duration::from_secs(3600)), ..Options::new("r") };
    let (log, _) = Log::open(dir.path(), options).unwrap();
    for _ in 0..100 {
        log.record(Operator { action: "reload".into(), ..Operator::default() }).unwrap();
    }
    drop(log);
    assert_eq!(events(dir.path()).len(), 101);
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

fn kinds(dir: &Path) -> Vec<EventKind> {
    events(dir).iter().map(|event| event.what.kind()).collect()
}
