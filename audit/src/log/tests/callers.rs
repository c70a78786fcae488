//! What whoever waits for a record does by himself: these logs have no thread.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::room::SmallDisk;
use super::*;

/// A log that nobody looks after.
fn unattended<S: Sink + 'static>(
    dir: &Path,
    options: &Options,
    wrap: impl FnOnce(Folder) -> S,
    thread: Option<JoinHandle<()>>,
) -> Log {
    let (folder, found) = Folder::open(dir).unwrap();
    let shared = Arc::new(LogState::new(dir.to_owned(), options));
    let mut writer = LogWriter::new(Box::new(wrap(folder)), Arc::clone(&shared), options, &found);
    writer.start(options, found).unwrap();
    let inner = LogHandle { shared, writer: Arc::new(Mutex::new(writer)), thread };
    Log { inner: Arc::new(inner), run: options.run.clone() }
}

fn hourly() -> Options {
    Options { sync: SyncPolicy::Awaited(Duration::from_secs(3600)), ..Options::new("run-1") }
}

fn one_record(log: &Log) -> Ticket {
    log.begin(RequestFacts::default()).unwrap().close(EntryOutcome::Relayed)
}

fn poll_once(log: &Log, ticket: Ticket) -> Poll<Result<(), Unavailable>> {
    log.poll_written(ticket, &mut Context::from_waker(Waker::noop()))
}

fn was_hurried(log: &Log) -> bool {
    log.inner.shared.is_thread_hurried.swap(false, Ordering::SeqCst)
}

#[test]
fn the_first_poll_writes_the_record_and_leaves_the_thread_alone() {
    let dir = private_dir();
    let log = unattended(dir.path(), &hourly(), |folder| folder, None);
    let ticket = one_record(&log);
    assert_eq!(poll_once(&log, ticket), Poll::Ready(Ok(())));
    assert_eq!(kinds(dir.path()), [EventKind::LogStarted, EventKind::Request]);
    assert!(!was_hurried(&log));
}

#[test]
fn a_disk_that_is_slow_or_full_is_left_to_the_thread() {
    let dir = private_dir();
    let log = unattended(dir.path(), &hourly(), |folder| folder, None);
    let ticket = one_record(&log);
    log.inner.shared.is_disk_slow.store(true, Ordering::SeqCst);
    assert!(poll_once(&log, ticket).is_pending());
    assert!(was_hurried(&log), "whoever waits hurries the thread");
    log.inner.shared.is_disk_slow.store(false, Ordering::SeqCst);
    log.inner.shared.begin_pause("no room".into());
    assert!(poll_once(&log, ticket).is_pending());
    assert!(was_hurried(&log));
    assert_eq!(kinds(dir.path()), [EventKind::LogStarted]);
}

#[test]
fn a_segment_that_is_full_is_the_threads_to_finish() {
    let dir = private_dir();
    let options = Options { segment_bytes: 1, ..hourly() };
    let log = unattended(dir.path(), &options, |folder| folder, None);
    let ticket = one_record(&log);
    assert_eq!(poll_once(&log, ticket), Poll::Ready(Ok(())));
    assert!(was_hurried(&log));
}

#[test]
fn a_write_that_took_long_is_the_last_one_by_a_caller() {
    let dir = private_dir();
    let log = unattended(dir.path(), &hourly(), Slow, None);
    let ticket = one_record(&log);
    assert_eq!(poll_once(&log, ticket), Poll::Ready(Ok(())));
    assert!(log.inner.shared.is_disk_slow.load(Ordering::SeqCst));
    let ticket = one_record(&log);
    assert!(poll_once(&log, ticket).is_pending());
}

#[test]
fn a_caller_that_panics_while_it_writes_ends_the_log_for_everybody() {
    let dir = private_dir();
    let log = unattended(dir.path(), &hourly(), |folder| Panicking(folder, false), None);
    let ticket = one_record(&log);
    panic::catch_unwind(AssertUnwindSafe(|| poll_once(&log, ticket).is_ready())).unwrap_err();
    let why = log.health().unavailable.unwrap();
    assert!(matches!(why, Unavailable::Failed { step: WriterStep::Run, .. }), "{why}");
    assert_eq!(poll_once(&log, ticket), Poll::Ready(Err(why)));
    assert!(was_hurried(&log));
}

#[test]
fn the_thread_is_woken_for_what_a_caller_wrote_and_has_to_be_synced_later() {
    let dir = private_dir();
    let woken = Arc::new(AtomicBool::new(false));
    let thread = {
        let woken = Arc::clone(&woken);
        thread::spawn(move || {
            thread::park();
            woken.store(true, Ordering::SeqCst);
        })
    };
    let log = unattended(dir.path(), &hourly(), |folder| folder, Some(thread));
    let ticket = one_record(&log);
    assert_eq!(poll_once(&log, ticket), Poll::Ready(Ok(())));
    let deadline = Instant::now() + Duration::from_secs(20);
    while !woken.load(Ordering::SeqCst) {
        assert!(Instant::now() < deadline, "nobody would have synced it");
        thread::yield_now();
    }
}

#[test]
fn each_record_is_counted_once_wherever_the_disk_was_full() {
    let dir = private_dir();
    let left = Arc::new(AtomicU64::new(u64::MAX));
    let disk = Arc::clone(&left);
    let log = unattended(dir.path(), &hourly(), |folder| SmallDisk(folder, disk), None);
    let length = || fs::metadata(dir.path().join("audit.jsonl")).unwrap().len();
    let before = length();
    let ticket = one_record(&log);
    assert_eq!(poll_once(&log, ticket), Poll::Ready(Ok(())));
    let line = length() - before;

    // Two of five lines, and half of the third.
    left.store(2 * line + line / 2, Ordering::SeqCst);
    let tickets = [(); 5].map(|()| one_record(&log));
    let last = tickets[4];
    // On a busy machine the first write may have taken long.
    log.inner.shared.is_disk_slow.store(false, Ordering::SeqCst);
    assert!(poll_once(&log, last).is_pending());
    assert_eq!((log.health().written, log.health().unwritten), (3, 3));
    left.store(u64::MAX, Ordering::SeqCst);
    assert!(log.inner.writer.lock().unwrap().write_batch().is_ok());
    assert_eq!((log.health().written, log.health().unwritten), (6, 0));
    assert_eq!(poll_once(&log, last), Poll::Ready(Ok(())));
    assert_eq!(events(dir.path()).len(), 7);
}

#[test]
fn what_was_handed_over_together_is_written_at_once() {
    let dir = private_dir();
    let writes = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&writes);
    let log = unattended(dir.path(), &hourly(), |folder| Counted(folder, counter), None);
    let started = writes.load(Ordering::SeqCst);
    let tickets = [(); 100].map(|()| one_record(&log));
    assert_eq!(poll_once(&log, tickets[99]), Poll::Ready(Ok(())));
    assert_eq!(writes.load(Ordering::SeqCst) - started, 1);
    assert_eq!(events(dir.path()).len(), 101);
}

struct Counted(Folder, Arc<AtomicU64>);

impl Sink for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.write(bytes)
    }

    fn durable(&self) -> Arc<dyn Durable> {
        self.0.durable()
    }

    fn rotate(&mut self) -> io::Result<String> {
        self.0.rotate()
    }
}

#[test]
fn a_write_that_was_interrupted_goes_on() {
    let dir = private_dir();
    let log = unattended(dir.path(), &hourly(), |folder| Interrupted(folder, false), None);
    let ticket = one_record(&log);
    assert_eq!(poll_once(&log, ticket), Poll::Ready(Ok(())));
}

/// Every other write is interrupted.
struct Interrupted(Folder, bool);

impl Sink for Interrupted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1 = !self.1;
        if self.1 { Err(io::ErrorKind::Interrupted.into()) } else { self.0.write(bytes) }
    }

    fn durable(&self) -> Arc<dyn Durable> {
        self.0.durable()
    }

    fn rotate(&mut self) -> io::Result<String> {
        self.0.rotate()
    }
}

#[test]
fn a_log_is_idle_when_nothing_is_open_or_queued() {
    let dir = private_dir();
    let log = unattended(dir.path(), &hourly(), |folder| folder, None);
    let shared = &log.inner.shared;
    assert!(shared.is_idle());
    let entry = log.begin(RequestFacts::default()).unwrap();
    assert!(!shared.is_idle(), "it is open");
    let ticket = entry.close(EntryOutcome::Relayed);
    assert!(!shared.is_idle(), "it is queued");
    assert_eq!(poll_once(&log, ticket), Poll::Ready(Ok(())));
    assert!(shared.is_idle());
}

#[test]
fn what_cannot_be_forced_to_disk_is_an_error() {
    let (_reader, writer) = io::pipe().unwrap();
    let pipe = fs::File::from(std::os::fd::OwnedFd::from(writer));
    assert!(Durable::sync(&pipe).is_err(), "a pipe is on no disk");
    let file = tempfile::tempfile().unwrap();
    assert!(Durable::sync(&file).is_ok());
}

/// Takes longer than a caller is made to wait.
struct Slow(Folder);

impl Sink for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        std::thread::sleep(SLOW_WRITE_TIME * 4);
        self.0.write(bytes)
    }

    fn durable(&self) -> Arc<dyn Durable> {
        self.0.durable()
    }

    fn rotate(&mut self) -> io::Result<String> {
        self.0.rotate()
    }
}

/// Panics at the second write.
pub(super) struct Panicking(pub(super) Folder, pub(super) bool);

impl Sink for Panicking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        assert!(!std::mem::replace(&mut self.1, true), "this disk panics");
        self.0.write(bytes)
    }

    fn durable(&self) -> Arc<dyn Durable> {
        self.0.durable()
    }

    fn rotate(&mut self) -> io::Result<String> {
        self.0.rotate()
    }
}
