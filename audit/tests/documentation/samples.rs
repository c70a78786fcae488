//! Lines and folders to hold the page against.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use audit::{
    ConnectionFacts, DecisionRecord, DestinationRecord, DnsFacts, Durable, EventKind, FindingEvent,
    Folder, Hold, HoldState, Http, LimitEvent, Log, Operator, Options, PolicyLoaded, PolicyRefused,
    PublicKey, RequestFacts, RunEnded, RunStarted, Sighting, SigningKey, Sink, segment,
};
use serde_json::{Map, Value};
use tempfile::TempDir;

pub(crate) type Line = Map<String, Value>;

/// The golden line of this kind, as it is in its file.
pub(crate) fn golden_line(kind: EventKind) -> String {
    let name = format!("testdata/v1/{kind}.jsonl");
    fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

pub(crate) fn golden(kind: EventKind) -> Line {
    serde_json::from_str(&golden_line(kind)).unwrap()
}

/// The first line of each kind, written by a log that is told nothing.
pub(crate) fn lines_that_know_nothing() -> BTreeMap<String, Line> {
    let dir = private_dir();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    // Every batch is a segment of its own.
    let options = Options { segment_bytes: 1, ..Options::new("run-1") };
    let (log, _) = Log::open(dir.path(), options).unwrap();
    runtime.block_on(async {
        let mut entry = log.begin(RequestFacts::default()).unwrap();
        entry.opened().await.unwrap();
        drop(entry);
        drop(log.begin(ConnectionFacts::default()).unwrap());
        log.record(DnsFacts::default()).unwrap();
        log.record(FindingEvent {
            sighting: Sighting::Pattern,
            pattern: None,
            secret: None,
            location: "body".into(),
            stopped: false,
            entry: None,
            destination: DestinationRecord::default(),
            decision: DecisionRecord::default(),
        })
        .unwrap();
        log.record(Hold {
            state: HoldState::Asked,
            entry: log.record(LimitEvent::default()).unwrap(),
            user: None,
            waited: None,
            destination: DestinationRecord::default(),
            http: Http::default(),
            decision: DecisionRecord::default(),
        })
        .unwrap();
        log.record(Operator::default()).unwrap();
        log.record(PolicyLoaded::default()).unwrap();
        log.record(PolicyRefused::default()).unwrap();
        log.record(RunEnded::default()).unwrap();
        log.record(RunStarted::default()).unwrap();
        log.close().await.unwrap();
    });
    drop(log);
    tear(dir.path());
    let (log, _) = Log::open(dir.path(), Options::new("run-1")).unwrap();
    drop(log);

    let mut first = BTreeMap::new();
    for segment in segment::Segment::list(dir.path()).unwrap() {
        for line in fs::read_to_string(segment.path()).unwrap().lines() {
            let line: Line = serde_json::from_str(line).unwrap();
            let kind = line["kind"].as_str().unwrap().to_owned();
            first.entry(kind).or_insert(line);
        }
    }
    first.extend(a_disk_that_was_full());
    first
}

/// What a log says once there is room again.
fn a_disk_that_was_full() -> Option<(String, Line)> {
    let dir = private_dir();
    let full_once = |folder| FullOnce { folder, writes: 0 };
    let (log, _) = Log::open_through(dir.path(), Options::new("run-1"), full_once).unwrap();
    log.record(Operator::default()).unwrap();
    log.close_blocking().unwrap();
    let text = fs::read_to_string(dir.path().join(segment::CURRENT_SEGMENT)).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Line>(line).unwrap());
    let resumed = lines.find(|line| line["kind"] == "log_resumed")?;
    Some(("log_resumed".to_owned(), resumed))
}

struct FullOnce {
    folder: Folder,
    writes: u32,
}

impl Sink for FullOnce {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writes += 1;
        match self.writes {
            2 => Err(io::ErrorKind::StorageFull.into()),
            _ => self.folder.write(bytes),
        }
    }

    fn durable(&self) -> Arc<dyn Durable> {
        self.folder.durable()
    }

    fn rotate(&mut self) -> io::Result<String> {
        self.folder.rotate()
    }
}

fn tear(dir: &Path) {
    let mut file =
        OpenOptions::new().append(true).open(dir.join(segment::CURRENT_SEGMENT)).unwrap();
    file.write_all(b"{\"v\":1,\"se").unwrap();
}

/// Evidence with everything a seal can list, and names that shells stumble over.
pub(crate) fn sealed_folder() -> (TempDir, PublicKey) {
    let dir = private_dir();
    write_log(dir.path());
    let artifacts = dir.path().join("artifacts");
    fs::create_dir(&artifacts).unwrap();
    for name in ["report.txt", r"a\nb", "-n", " two  spaces ", "*", "$(id)", "café", "seal.json"] {
        fs::write(artifacts.join(name), name).unwrap();
    }
    symlink("report.txt", artifacts.join("latest")).unwrap();
    symlink("/etc", artifacts.join("outside")).unwrap();
    // A socket's file stays when the socket is closed.
    drop(std::os::unix::net::UnixListener::bind(artifacts.join("socket")).unwrap());
    let home = tempfile::tempdir().unwrap();
    let key = SigningKey::load_or_create(&home.path().join("keys/seal.pem")).unwrap();
    audit::seal(dir.path(), &key).unwrap();
    (dir, key.public())
}

/// A log of three segments.
pub(crate) fn write_log(dir: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let options = Options { segment_bytes: 1500, ..Options::new("run-1") };
    let (log, _) = Log::open(dir, options).unwrap();
    for n in 0..9 {
        let detail = Some(format_args!("number {n}: \\ \" \n % \u{e9}").into());
        let note = Operator { action: "reload".into(), detail, ..Operator::default() };
        runtime.block_on(log.record_safely(note)).unwrap();
    }
    log.close_blocking().unwrap();
    assert_eq!(segment::Segment::list(dir).unwrap().len(), 3);
}

pub(crate) fn private_dir() -> TempDir {
    let private = fs::Permissions::from_mode(0o700);
    tempfile::Builder::new().permissions(private).tempdir().unwrap()
}
