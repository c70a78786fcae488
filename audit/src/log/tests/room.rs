//! A disk that is full, and then has room again.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

/// A log on a disk with so much room, and what makes more.
fn on_a_disk(dir: &Path, room: u64, options: Options) -> (Log, Arc<AtomicU64>) {
    let left = Arc::new(AtomicU64::new(room));
    let options = Options { entries: 32, ..options };
    let disk = Arc::clone(&left);
    let (log, _) = Log::open_through(dir, options, |folder| SmallDisk(folder, disk)).unwrap();
    (log, left)
}

pub(super) struct SmallDisk(pub(super) Folder, pub(super) Arc<AtomicU64>);

impl Sink for SmallDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.1.load(Ordering::SeqCst);
        let count = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if count == 0 {
            return Err(io::Error::from_raw_os_error(28));
        }
        self.1.fetch_sub(count as u64, Ordering::SeqCst);
        self.0.write(&bytes[..count])
    }

    fn durable(&self) -> Arc<dyn Durable> {
        self.0.durable()
    }

    fn rotate(&mut self) -> io::Result<String> {
        if self.1.load(Ordering::SeqCst) == 0 {
            return Err(io::Error::from_raw_os_error(28));
        }
        self.0.rotate()
    }
}

/// Begins and closes entries until none can be begun; gives their ids and why.
fn fill(log: &Log) -> (Vec<Uuid>, Unavailable) {
    let mut ids = Vec::new();
    loop {
        match log.begin(RequestFacts::default()) {
            Ok(entry) => {
                ids.push(entry.id());
                entry.close(EntryOutcome::Relayed);
            }
            Err(Unavailable::Full { .. }) => thread::yield_now(),
            Err(why) => return (ids, why),
        }
    }
}

fn wait_until_available(log: &Log) {
    while log.health().unavailable.is_some() {
        thread::yield_now();
    }
}

#[test]
fn service_resumes_when_there_is_room_and_no_line_is_missing() {
    // Wherever in a line the disk ends.
    for room in (700..1400).step_by(97) {
        let dir = private_dir();
        let (log, left) = on_a_disk(dir.path(), room, Options::new("run-1"));
        let open_before = log.begin(ConnectionFacts::default()).unwrap();
        let (mut ids, why) = fill(&log);
        assert_eq!(
            why.to_string(),
            "the audit log waits for room on its disk: No space left on device (os error 28)"
        );
        let connection = open_before.id();
        // What was open may end meanwhile: it has its place.
        open_before.close(EntryOutcome::Relayed);
        assert_eq!(log.begin(RequestFacts::default()).unwrap_err(), why);
        assert_eq!(log.record(LimitEvent::default()).unwrap_err(), why);

        left.store(u64::MAX, Ordering::SeqCst);
        wait_until_available(&log);
        let entry = log.begin(RequestFacts::default()).unwrap();
        ids.extend([entry.id(), connection]);
        entry.close(EntryOutcome::Relayed);
        log.close_blocking().unwrap();

        let verified = crate::verify(dir.path(), &[]).unwrap().log.unwrap();
        assert!(verified.closed);
        assert_eq!((verified.recovered, verified.unclosed), (0, 0), "no line was cut");
        let events = events(dir.path());
        assert!(ids.iter().all(|id| events.iter().any(|event| event.id == *id)), "room of {room}");
        let resumed: Vec<_> = events
            .iter()
            .filter_map(|event| match &event.what {
                EventBody::LogResumed(resumed) => Some(resumed),
                _ => None,
            })
            .collect();
        assert_eq!(resumed.len(), 1, "{resumed:?}");
        // The one that found it, and the two above.
        assert_eq!(resumed[0].refused, 3);
        assert!(resumed[0].paused.duration() > Duration::ZERO);
        assert_eq!(resumed[0].why, "No space left on device (os error 28)");
    }
}

/// A small disk that counts how often it had no room.
struct Counting(SmallDisk, Arc<AtomicU64>);

impl Sink for Counting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).inspect_err(|_| {
            self.1.fetch_add(1, Ordering::SeqCst);
        })
    }

    fn durable(&self) -> Arc<dyn Durable> {
        self.0.durable()
    }

    fn rotate(&mut self) -> io::Result<String> {
        self.0.rotate()
    }
}

#[test]
fn a_disk_that_stays_full_is_tried_until_it_has_room() {
    let dir = private_dir();
    let (left, refused) = (Arc::new(AtomicU64::new(700)), Arc::new(AtomicU64::new(0)));
    let (disk, counted) = (Arc::clone(&left), Arc::clone(&refused));
    let wrap = |folder| Counting(SmallDisk(folder, disk), counted);
    let options = Options { entries: 32, ..Options::new("run-1") };
    let (log, _) = Log::open_through(dir.path(), options, wrap).unwrap();
    let (ids, _) = fill(&log);
    let deadline = Instant::now() + Duration::from_secs(60);
    // By the line that found it full, and by two attempts after that.
    while refused.load(Ordering::SeqCst) < 3 {
        assert!(Instant::now() < deadline, "it is not tried any more");
        thread::yield_now();
    }
    assert!(matches!(log.health().unavailable, Some(Unavailable::NoRoom { .. })));
    left.store(u64::MAX, Ordering::SeqCst);
    wait_until_available(&log);
    log.close_blocking().unwrap();
    let events = events(dir.path());
    assert!(ids.iter().all(|id| events.iter().any(|event| event.id == *id)));
}

#[tokio::test]
async fn what_was_waited_for_is_answered_when_there_is_room() {
    let dir = private_dir();
    let options =
        Options { sync: SyncPolicy::Awaited(Duration::from_secs(3600)), ..Options::new("r") };
    let (log, left) = on_a_disk(dir.path(), 700, options);
    let mut entry = log.begin(RequestFacts::default()).unwrap();
    entry.http.path = Some("/".repeat(700).into());
    let ticket = entry.open();
    let mut written = Box::pin(log.written(ticket));
    let waker = std::task::Waker::noop();
    let cx = &mut std::task::Context::from_waker(waker);
    assert!(written.as_mut().poll(cx).is_pending(), "there is no room for it");
    while log.health().unavailable.is_none() {
        thread::yield_now();
    }
    left.store(u64::MAX, Ordering::SeqCst);
    written.await.unwrap();
    entry.opened().await.unwrap();
    entry.close(EntryOutcome::Relayed);
    assert_eq!(log.close().await.unwrap().seq, 5);
    assert_eq!(
        kinds(dir.path()),
        [
            EventKind::LogStarted,
            EventKind::Opened,
            EventKind::LogResumed,
            EventKind::Request,
            EventKind::LogClosed
        ]
    );
}

#[test]
fn a_segment_that_finds_no_room_is_begun_when_there_is_some() {
    let dir = private_dir();
    let options = Options { segment_bytes: 600, ..Options::new("run-1") };
    // The second line makes the segment full, to the byte.
    let (log, left) = on_a_disk(dir.path(), u64::MAX, options);
    let length = |dir: &Path| fs::metadata(dir.join("audit.jsonl")).map_or(0, |file| file.len());
    let room = 600 - length(dir.path());
    left.store(room, Ordering::SeqCst);
    let mut entry = log.begin(RequestFacts::default()).unwrap();
    entry.http.path = Some("x".repeat(600).into());
    entry.close(EntryOutcome::Relayed);
    while log.health().unavailable.is_none() {
        thread::yield_now();
    }
    left.store(u64::MAX, Ordering::SeqCst);
    wait_until_available(&log);
    log.begin(RequestFacts::default()).unwrap().close(EntryOutcome::Relayed);
    log.close_blocking().unwrap();
    let verified = crate::verify(dir.path(), &[]).unwrap().log.unwrap();
    assert!(verified.segments >= 2 && verified.closed, "{verified:?}");
}

#[test]
fn a_folder_whose_next_segment_could_not_be_made_goes_on_where_it_failed() {
    let dir = private_dir();
    let (mut folder, _) = Folder::open(dir.path()).unwrap();
    folder.write(b"a line\n").unwrap();
    // The old segment has its number, and something is in the way of the new one.
    let moved = folder.finish_current().unwrap();
    folder.finished = Some(moved);
    fs::create_dir(dir.path().join("audit.jsonl")).unwrap();
    folder.rotate().unwrap_err();
    fs::remove_dir(dir.path().join("audit.jsonl")).unwrap();
    assert_eq!(folder.rotate().unwrap(), "audit.000001.jsonl");
    assert_eq!(fs::read(dir.path().join("audit.000001.jsonl")).unwrap(), b"a line\n");
    assert_eq!(fs::read(dir.path().join("audit.jsonl")).unwrap(), b"");
    assert_eq!(folder.rotate().unwrap(), "audit.000002.jsonl");
}

#[test]
fn the_last_handle_does_not_wait_for_room_that_never_comes() {
    let dir = private_dir();
    let (log, _left) = on_a_disk(dir.path(), 700, Options::new("run-1"));
    let (_, why) = fill(&log);
    assert!(matches!(why, Unavailable::NoRoom { .. }));
    drop(log);
    let (log, opening) = Log::open(dir.path(), Options::new("run-1")).unwrap();
    assert!(opening.recovered.is_some(), "the line that had begun is cut as after a crash");
    log.close_blocking().unwrap();
    crate::verify(dir.path(), &[]).unwrap();
}

#[test]
fn an_operator_hears_once_that_it_is_full_and_once_that_it_goes_on() {
    static HEARD: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
    let dir = private_dir();
    let options = Options {
        report: |notice| {
            let said = match notice {
                LogNotice::Ended { why, .. } => format!("ended: {why}"),
                LogNotice::Paused { folder, why } => format!("{} paused: {why}", folder.display()),
                LogNotice::Resumed { refused, .. } => format!("resumed, {refused} refused"),
            };
            HEARD.lock().unwrap().push(said);
        },
        ..Options::new("run-1")
    };
    let (log, left) = on_a_disk(dir.path(), 700, options);
    fill(&log);
    fill(&log);
    left.store(u64::MAX, Ordering::SeqCst);
    wait_until_available(&log);
    log.close_blocking().unwrap();
    let folder = dir.path().display();
    assert_eq!(
        *HEARD.lock().unwrap(),
        [
            format!("{folder} paused: No space left on device (os error 28)"),
            "resumed, 2 refused".to_owned(),
        ]
    );
}

#[test]
fn a_disk_that_breaks_is_not_one_that_is_full() {
    struct Broken(Folder, Arc<AtomicBool>);
    impl Sink for Broken {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.1.load(Ordering::SeqCst) {
                true => Err(io::Error::from_raw_os_error(5)),
                false => self.0.write(bytes),
            }
        }
        fn durable(&self) -> Arc<dyn Durable> {
            self.0.durable()
        }
        fn rotate(&mut self) -> io::Result<String> {
            self.0.rotate()
        }
    }
    let dir = private_dir();
    let breaks = Arc::new(AtomicBool::new(false));
    let broken = Arc::clone(&breaks);
    let (log, _) =
        Log::open_through(dir.path(), Options::new("run-1"), |folder| Broken(folder, broken))
            .unwrap();
    breaks.store(true, Ordering::SeqCst);
    let (_, why) = fill(&log);
    assert!(matches!(why, Unavailable::Failed { step: WriterStep::Write, .. }), "{why}");
    breaks.store(false, Ordering::SeqCst);
    assert_eq!(log.close_blocking().unwrap_err(), why, "for good");
}
