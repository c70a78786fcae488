//! A record that was waited for is with the kernel; one that is not is waited for.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use super::callers::Panicking;
use super::*;

/// A disk that can be held in the middle of a write, and let go.
#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    opened: Condvar,
    is_reached: AtomicBool,
}

impl Gate {
    fn set(&self, is_shut: bool) {
        *self.is_shut.lock().unwrap() = is_shut;
        self.opened.notify_all();
    }
}

struct Gated(Folder, Arc<Gate>);

impl Sink for Gated {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut is_shut = self.1.is_shut.lock().unwrap();
        while *is_shut {
            self.1.is_reached.store(true, Ordering::SeqCst);
            is_shut = self.1.opened.wait(is_shut).unwrap();
        }
        self.0.write(bytes)
    }

    fn durable(&self) -> Arc<dyn Durable> {
        self.0.durable()
    }

    fn rotate(&mut self) -> io::Result<String> {
        self.0.rotate()
    }
}

fn as_the_gateway() -> Options {
    Options { sync: SyncPolicy::Awaited(Duration::from_secs(3600)), ..Options::new("run-1") }
}

fn poll_once(log: &Log, ticket: Ticket) -> Poll<Result<(), Unavailable>> {
    log.poll_written(ticket, &mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_closing_record_is_in_the_file_when_the_wait_is_over() {
    let dir = private_dir();
    let (log, _) = Log::open(dir.path(), as_the_gateway()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for n in 0..200 {
        let mut entry = log.begin(RequestFacts::default()).unwrap();
        entry.http.path = Some(format_args!("/{n}").into());
        let id = entry.id();
        if n % 3 == 0 {
            let opened = entry.open();
            assert_eq!(entry.open(), opened, "there is one line");
            runtime.block_on(log.written(opened)).unwrap();
            assert_eq!(events(dir.path()).last().unwrap().id, id);
        }
        let closed = entry.close(EntryOutcome::Relayed);
        runtime.block_on(log.written(closed)).unwrap();
        let last = events(dir.path()).pop().unwrap();
        assert_eq!((last.id, last.what.kind()), (id, EventKind::Request));
    }
    assert_eq!(log.health().unwritten, 0);
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn nothing_is_written_before_it_is_and_everybody_is_woken_after() {
    let dir = private_dir();
    let gate = Arc::new(Gate::default());
    let sink = Arc::clone(&gate);
    let (log, _) =
        Log::open_through(dir.path(), as_the_gateway(), |folder| Gated(folder, sink)).unwrap();
    // The writer's thread knows by then when to sync, and sleeps for an hour.
    let earlier = log.begin(RequestFacts::default()).unwrap().close(EntryOutcome::Relayed);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(log.written(earlier)).unwrap();
    gate.set(true);

    // One caller is held in the middle of its write.
    let entry = log.begin(RequestFacts::default()).unwrap();
    let first = entry.close(EntryOutcome::Relayed);
    let writing = {
        let log = log.clone();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(log.written(first))
        })
    };
    while !gate.is_reached.load(Ordering::SeqCst) {
        thread::yield_now();
    }
    // Others do not block; they wait.
    let second = log.begin(RequestFacts::default()).unwrap().close(EntryOutcome::Relayed);
    assert!(poll_once(&log, first).is_pending());
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    assert!(log.poll_written(second, &mut Context::from_waker(&waker)).is_pending());
    assert_eq!(kinds(dir.path()), [EventKind::LogStarted, EventKind::Request]);
    gate.set(false);
    writing.join().unwrap().unwrap();
    // Whoever has the writer, that caller or the thread, writes for those who came
    // meanwhile, and nobody asks for it.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !woken.0.load(Ordering::SeqCst) {
        assert!(Instant::now() < deadline, "nobody wrote it");
        thread::yield_now();
    }
    assert!(log.inner.shared.queue.is_written(second));
    let all = [EventKind::LogStarted, EventKind::Request, EventKind::Request, EventKind::Request];
    assert_eq!(kinds(dir.path()), all);
}

#[test]
fn many_threads_that_wait_each_find_their_record_written() {
    const EACH: usize = 400;
    let dir = private_dir();
    let options = Options { segment_bytes: 100_000, ..as_the_gateway() };
    let (log, _) = Log::open(dir.path(), options).unwrap();
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let log = log.clone();
            thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                for n in 0..EACH {
                    let mut entry = log.begin(RequestFacts::default()).unwrap();
                    if n % 50 == 0 {
                        runtime.block_on(entry.opened()).unwrap();
                    }
                    let ticket = entry.close(EntryOutcome::Relayed);
                    runtime.block_on(log.written(ticket)).unwrap();
                    assert!(log.inner.shared.queue.is_written(ticket));
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    log.close_blocking().unwrap();
    let requests = kinds(dir.path()).iter().filter(|kind| **kind == EventKind::Request).count();
    assert_eq!(requests, 4 * EACH);
    assert!(crate::verify(dir.path(), &[]).unwrap().log.unwrap().segments > 2);
}

#[test]
fn a_record_that_will_never_be_written_is_told() {
    let dir = private_dir();
    let (log, _) = Log::open(dir.path(), as_the_gateway()).unwrap();
    let entry = log.begin(RequestFacts::default()).unwrap();
    let closed = entry.close(EntryOutcome::Relayed);
    log.close_blocking().unwrap();
    assert_eq!(poll_once(&log, closed), Poll::Ready(Ok(())), "it was written before the end");
    assert_eq!(poll_once(&log, Ticket::default()), Poll::Ready(Ok(())), "nothing to wait for");

    let dir = private_dir();
    let (log, _) =
        Log::open_through(dir.path(), as_the_gateway(), |folder| Panicking(folder, false)).unwrap();
    let lost = log.begin(RequestFacts::default()).unwrap().close(EntryOutcome::Relayed);
    let writer = log.clone();
    let panicked = thread::spawn(move || poll_once(&writer, lost)).join();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let describe = runtime.block_on(log.written(lost));
    assert!(
        matches!(describe, Err(Unavailable::Failed { step: WriterStep::Run, .. })),
        "{describe:?}"
    );
    assert!(log.begin(RequestFacts::default()).is_err());
    // By the caller, or by the writer's thread if that came first.
    drop(panicked);
}
