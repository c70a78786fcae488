//! What a log finds when it is opened: its own files, torn ones, others'.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

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
        [
            EventKind::LogStarted,
            EventKind::Operator,
            EventKind::LogStarted,
            EventKind::Recovered,
            EventKind::LogClosed,
        ]
    );
    assert_eq!(events[3].what, EventBody::Recovered(recovered));

    let (_log, opening) = Log::open(dir.path(), Options::new("run-1")).unwrap();
    assert!(opening.previous.unwrap().closed);
    assert!(opening.recovered.is_none());
}

#[test]
fn what_a_log_says_of_itself_is_so() {
    let dir = private_dir();
    let options = || Options { writer: "a gateway 9.9".into(), ..Options::new("run-1") };
    let (log, _) = Log::open(dir.path(), options()).unwrap();
    log.record(Operator::default()).unwrap();
    log.close_blocking().unwrap();
    let (log, _) = Log::open(dir.path(), options()).unwrap();
    drop(log);
    let options = Options { segment_bytes: 1, ..options() };
    let (log, _) = Log::open(dir.path(), options).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for _ in 0..2 {
        runtime.block_on(log.record_safely(Operator::default())).unwrap();
    }
    log.close_blocking().unwrap();

    let events = events(dir.path());
    assert!(events.iter().all(|event| event.v == 1 && event.run == "run-1"));
    let started: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.what {
            EventBody::LogStarted(it) => {
                Some((it.writer.as_str(), it.previous_seq, it.previous_closed))
            }
            _ => None,
        })
        .collect();
    let by = "a gateway 9.9";
    assert_eq!(started, [(by, None, None), (by, Some(3), Some(true)), (by, Some(4), Some(false))]);
    let closed: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.what {
            EventBody::LogClosed(it) => Some((event.seq, it.lines)),
            _ => None,
        })
        .collect();
    // Of the third writer: it began after seq 4.
    let last = events.last().unwrap().seq;
    assert_eq!(closed, [(3, 3), (last, last - 4)]);
    let continued: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.what {
            EventBody::SegmentStarted(it) => Some((it.previous.to_string(), it.previous_sha256)),
            _ => None,
        })
        .collect();
    assert!(!continued.is_empty());
    for (name, sha256) in continued {
        assert_eq!(sha256, crate::Digest::of(&fs::read(dir.path().join(name)).unwrap()));
    }
}

#[test]
fn a_log_that_has_its_size_says_which_and_how_much_it_has() {
    let dir = private_dir();
    let options = Options { max_bytes: 100, ..Options::new("run-1") };
    let (log, _) = Log::open(dir.path(), options).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(log.record_safely(Operator::default())).unwrap();
    log.close_blocking().unwrap();
    let events = events(dir.path());
    let EventBody::Limit(limit) = &events[2].what else { panic!("{events:?}") };
    let text = fs::read_to_string(dir.path().join("audit.jsonl")).unwrap();
    let before: usize = text.split_inclusive('\n').take(2).map(str::len).sum();
    assert_eq!((limit.name.as_str(), limit.value), ("audit", 100));
    assert_eq!(limit.reached, before as u64, "what was written before it");
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
        assert_eq!(
            kinds(dir.path()),
            [EventKind::LogStarted, EventKind::SegmentStarted, EventKind::LogStarted]
        );
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

#[track_caller]
fn refused(dir: &TempDir, expected: Expect) {
    let err = Log::open(dir.path(), Options::new("run-1")).unwrap_err();
    expected.assert_eq(&err.to_string().replace(dir.path().to_str().unwrap(), "DIR"));
}

#[test]
fn a_log_is_in_a_directory_that_can_be_made() {
    let dir = private_dir();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let err = Log::open(&file, Options::new("run-1")).unwrap_err();
    assert!(matches!(err, OpenError::WrongType { wanted: "directory", .. }), "{err}");
    let err = Log::open(&file.join("below"), Options::new("run-1")).unwrap_err();
    assert!(matches!(err, OpenError::Disk { step: "create", .. }), "{err}");
}
