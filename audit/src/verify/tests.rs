//! Whatever is done to evidence, verify says so, and says where.

mod any_change;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::LazyLock;

use expect_test::{Expect, expect};
use tempfile::TempDir;

use super::*;
use crate::event::{Operator, RequestFacts};
use crate::key::SigningKey;
use crate::sealing::seal;
use crate::{EntryOutcome, Log, Options, SyncPolicy};

#[test]
fn a_sealed_folder_is_whole() {
    let evidence = Evidence::new();
    let verified = evidence.verify().unwrap();
    let log = verified.log.unwrap();
    assert_eq!((log.segments, log.closed, log.recovered, log.unclosed), (3, true, 0, 0));
    assert_eq!(log.head.seq, 16);
    let seal = verified.seal.unwrap();
    assert_eq!((seal.key, seal.files), (SEALED.key, 6));
}

#[test]
fn a_log_without_a_seal_is_whole_and_says_that_nobody_vouches() {
    let evidence = Evidence::new();
    evidence.remove("seal.json");
    let verified = evidence.verify().unwrap();
    assert_eq!(verified.log.unwrap().head.seq, 16);
    assert_eq!(verified.seal, None);
}

#[test]
fn a_pipe_in_the_place_of_a_log_is_refused_and_not_waited_for() {
    for name in ["audit.jsonl", "audit.000002.jsonl"] {
        let evidence = Evidence::new();
        let path = evidence.path().join(name);
        evidence.remove(name);
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        for checked in [evidence.path(), &*path] {
            let (describe, verified) = std::sync::mpsc::channel();
            let checked = checked.to_owned();
            std::thread::spawn(move || drop(describe.send(verify(&checked, &[SEALED.key]))));
            let verified = verified.recv_timeout(std::time::Duration::from_secs(30));
            let err = verified.expect("nobody writes into the pipe").unwrap_err();
            let VerifyError::Read { path: named, source } = err else { panic!("{err}") };
            assert_eq!(
                (named, source.to_string()),
                (path.clone(), "it is not a regular file".into())
            );
        }
    }
}

#[test]
fn an_emptied_log_is_named_too() {
    let evidence = Evidence::new();
    evidence.remove("audit.000001.jsonl");
    evidence.remove("audit.000002.jsonl");
    evidence.rewrite("audit.jsonl", Vec::clear);
    evidence.broken(expect![
        "audit.jsonl, line 1 (byte 0): lines are missing at the end: it ends at seq 0, the seal at 16"
    ]);
}

#[test]
fn an_edited_line_is_named_and_not_its_neighbour() {
    let line =
        |n: usize| move |lines: &mut Vec<String>| lines[n - 1] = lines[n - 1].replace("/n/", "/m/");
    tampered(
        "audit.jsonl",
        line(2),
        expect!["audit.jsonl, line 2 (byte 358): this line was changed"],
    );
    // The last line of a file is named too, though the break shows in the next file.
    tampered(
        "audit.000001.jsonl",
        |lines| {
            let last = lines.last_mut().unwrap();
            *last = last.replace("/n/", "/m/");
        },
        expect!["audit.000001.jsonl, line 7 (byte 2179): this line was changed"],
    );
}

#[test]
fn an_edited_link_is_named_and_not_the_line_it_points_to() {
    tampered(
        "audit.000001.jsonl",
        |lines| lines[2] = flip_last_hex(&lines[2]),
        expect!["audit.000001.jsonl, line 3 (byte 623): this line was changed"],
    );
    tampered(
        "audit.000001.jsonl",
        |lines| lines[0] = flip_last_hex(&lines[0]),
        expect!["audit.000001.jsonl, line 1 (byte 0): this line was changed"],
    );
}

#[test]
fn the_first_line_is_named_where_it_stands_and_not_where_it_should() {
    let evidence = Evidence::new();
    evidence.remove("seal.json");
    // Whoever did it made everything after the first line fit.
    evidence.rechain(|file, number, line| match (file, number) {
        ("audit.000001.jsonl", 0) => flip_last_hex(line),
        _ => line.to_owned(),
    });
    evidence.rename("audit.000002.jsonl", "audit.000003.jsonl");
    evidence.rename("audit.000001.jsonl", "audit.000002.jsonl");
    fs::write(evidence.path().join("audit.000001.jsonl"), "").unwrap();
    evidence.broken(expect!["audit.000002.jsonl, line 1 (byte 0): this line was changed"]);
}

#[test]
fn an_edited_number_is_an_edit_not_a_gap() {
    tampered(
        "audit.000001.jsonl",
        |lines| lines[2] = lines[2].replace(r#""seq":3"#, r#""seq":9"#),
        expect![
            "audit.000001.jsonl, line 3 (byte 623): this line was changed: its seq is 9 and should be 3"
        ],
    );
}

#[test]
fn what_is_no_line_at_all_is_an_edit() {
    tampered(
        "audit.000001.jsonl",
        |lines| lines[1] = "{}".to_owned(),
        expect![
            "audit.000001.jsonl, line 2 (byte 234): this line was changed: not an audit event: missing field `v` at line 1 column 2"
        ],
    );
    tampered(
        "audit.000001.jsonl",
        |lines| lines.insert(1, String::new()),
        expect![
            "audit.000001.jsonl, line 2 (byte 234): this line was changed: not an audit event: EOF while parsing a value at line 1 column 0"
        ],
    );
}

#[test]
fn deleted_lines_are_counted_from_where_they_are_missed() {
    tampered(
        "audit.000001.jsonl",
        |lines| drop(lines.drain(1..3)),
        expect![
            "audit.000001.jsonl, line 2 (byte 234): lines were deleted before this one: expected seq 2, found 4"
        ],
    );
    tampered(
        "audit.000001.jsonl",
        |lines| drop(lines.remove(0)),
        expect![
            "audit.000001.jsonl, line 1 (byte 0): lines were deleted before this one: expected seq 1, found 2"
        ],
    );
}

#[test]
fn reordered_and_doubled_lines_are_told_apart_from_deleted_ones() {
    tampered(
        "audit.000001.jsonl",
        |lines| lines.swap(1, 2),
        expect![
            "audit.000001.jsonl, line 2 (byte 234): lines were reordered: expected seq 2, found 3"
        ],
    );
    tampered(
        "audit.000001.jsonl",
        |lines| lines.insert(2, lines[1].clone()),
        expect![
            "audit.000001.jsonl, line 3 (byte 623): a line was put in: seq 2 was there already"
        ],
    );
}

#[test]
fn a_cut_end_is_seen_by_the_seal() {
    tampered(
        "audit.jsonl",
        |lines| lines.truncate(lines.len() - 1),
        expect![
            "audit.jsonl, line 2 (byte 358): lines are missing at the end: it ends at seq 15, the seal at 16"
        ],
    );
    let evidence = Evidence::new();
    evidence.rewrite("audit.jsonl", |bytes| bytes.truncate(bytes.len() - 1));
    evidence.broken(expect!["audit.jsonl, line 3 (byte 748): the last line has no end: 227 bytes were left by a crash or a cut"]);
}

#[test]
fn the_last_line_is_vouched_for_by_the_seal() {
    tampered(
        "audit.jsonl",
        |lines| {
            let last = lines.last_mut().unwrap();
            *last = last.replace("lines\":16", "lines\":17");
        },
        expect!["audit.jsonl, line 3 (byte 748): this line was changed"],
    );
}

#[test]
fn a_log_that_went_on_after_the_seal_is_not_what_was_sealed() {
    let evidence = Evidence::new();
    let seal = fs::read(evidence.path().join("seal.json")).unwrap();
    evidence.remove("seal.json");
    let (log, _) = Log::open(evidence.path(), Options::new("run-1")).unwrap();
    log.close_blocking().unwrap();
    fs::write(evidence.path().join("seal.json"), seal).unwrap();
    let err = evidence.verify().unwrap_err().to_string();
    assert!(err.ends_with("lines were added after the seal, which ends at seq 16"), "{err}");
}

#[test]
fn a_missing_segment_is_a_missing_file() {
    for (name, expected) in [
        ("audit.000001.jsonl", expect!["audit.000001.jsonl: missing"]),
        (
            "audit.000002.jsonl",
            expect![
                "audit.jsonl, line 1 (byte 0): lines were deleted before this one: expected seq 8, found 14"
            ],
        ),
        (
            "audit.jsonl",
            expect![
                "audit.000002.jsonl, line 6 (byte 1916): lines are missing at the end: it ends at seq 13, the seal at 16"
            ],
        ),
    ] {
        let evidence = Evidence::new();
        evidence.remove(name);
        evidence.broken(expected);
    }
}

#[test]
fn segments_cannot_be_removed_swapped_or_replaced_even_if_the_numbers_fit() {
    // All of this without a seal: the links alone have to show it.
    let unsealed = || {
        let evidence = Evidence::new();
        evidence.remove("seal.json");
        evidence
    };
    let evidence = unsealed();
    evidence.remove("audit.000001.jsonl");
    evidence.rename("audit.000002.jsonl", "audit.000001.jsonl");
    evidence.broken(expect!["audit.000001.jsonl, line 1 (byte 0): lines were deleted before this one: expected seq 1, found 8"]);

    let evidence = unsealed();
    evidence.remove("audit.000002.jsonl");
    evidence.rename("audit.jsonl", "audit.000002.jsonl");
    evidence.broken(expect!["audit.000002.jsonl, line 1 (byte 0): lines were deleted before this one: expected seq 8, found 14"]);

    let evidence = unsealed();
    evidence.rename("audit.000002.jsonl", "audit.jsonl.old");
    evidence.rename("audit.000001.jsonl", "audit.000002.jsonl");
    evidence.rename("audit.jsonl.old", "audit.000001.jsonl");
    evidence.broken(expect![
        "audit.000001.jsonl, line 1 (byte 0): lines were reordered: expected seq 1, found 8"
    ]);

    let evidence = unsealed();
    let first = fs::read(evidence.path().join("audit.000001.jsonl")).unwrap();
    evidence.rewrite("audit.000002.jsonl", |bytes| *bytes = first);
    evidence.broken(expect![
        "audit.000002.jsonl, line 1 (byte 0): a line was put in: seq 1 was there already"
    ]);
}

#[test]
fn a_segment_names_the_file_it_continues_and_its_digest() {
    // Whoever changes a link and chains all later lines anew is still seen.
    let forged = |change: &dyn Fn(&str) -> String, expected: Expect| {
        let evidence = Evidence::new();
        evidence.remove("seal.json");
        evidence.rechain(|file, number, line| match (file, number) {
            ("audit.000002.jsonl", 0) => change(line),
            _ => line.to_owned(),
        });
        evidence.broken(expected);
    };
    let digest = |line: &str| {
        let (before, rest) = line.split_once(r#"previous.sha256":""#).unwrap();
        format!(r#"{before}previous.sha256":"{}{}"#, "0".repeat(64), &rest[64..])
    };
    forged(
        &digest,
        expect![
            "audit.000002.jsonl, line 1 (byte 0): this line was changed: it does not continue audit.000001.jsonl"
        ],
    );
    let name = |line: &str| line.replace("audit.000001.jsonl", "audit.000007.jsonl");
    forged(
        &name,
        expect![
            "audit.000002.jsonl, line 1 (byte 0): this line was changed: it does not continue audit.000001.jsonl"
        ],
    );
    let kind = |line: &str| line.replace("sluice.segment.previous", "sluice.segment.other");
    forged(
        &kind,
        expect![
            "audit.000002.jsonl, line 1 (byte 0): this line was changed: it does not continue audit.000001.jsonl"
        ],
    );

    // Chained anew without a change, it is whole: what is tested is the link.
    let evidence = Evidence::new();
    evidence.remove("seal.json");
    evidence.rechain(|_, _, line| line.to_owned());
    assert_eq!(evidence.verify().unwrap().log.unwrap().segments, 3);
}

#[test]
fn a_file_that_was_split_in_two_is_not_two_segments() {
    let evidence = Evidence::new();
    evidence.remove("seal.json");
    evidence.remove("audit.000002.jsonl");
    evidence.remove("audit.jsonl");
    let whole = fs::read_to_string(evidence.path().join("audit.000001.jsonl")).unwrap();
    let at = whole.match_indices('\n').nth(2).unwrap().0 + 1;
    evidence.rewrite("audit.000001.jsonl", |bytes| bytes.truncate(at));
    fs::write(evidence.path().join("audit.jsonl"), &whole[at..]).unwrap();
    evidence.broken(expect!["audit.jsonl, line 1 (byte 0): this line was changed: it does not continue audit.000001.jsonl"]);
}

#[test]
fn other_files_are_checked_by_name() {
    let evidence = Evidence::new();
    evidence.rewrite("run.json", |bytes| bytes.push(b' '));
    evidence.broken(expect!["run.json: not the file that was sealed"]);

    let evidence = Evidence::new();
    evidence.remove("artifacts/report.txt");
    evidence.broken(expect!["artifacts/report.txt: missing"]);

    let evidence = Evidence::new();
    fs::write(evidence.path().join("artifacts/new\u{1b}[2J"), "").unwrap();
    evidence.broken(expect![[r"artifacts/new\u{1b}[2J: not in the seal"]]);

    let evidence = Evidence::new();
    evidence.remove("artifacts/latest");
    std::os::unix::fs::symlink("/etc/passwd", evidence.path().join("artifacts/latest")).unwrap();
    evidence.broken(expect!["artifacts/latest: not the file that was sealed"]);
}

#[test]
fn a_seal_by_an_unknown_key_is_foreign_and_a_changed_one_is_forged() {
    let evidence = Evidence::new();
    evidence.remove("seal.json");
    let elsewhere = tempfile::tempdir().unwrap();
    let other = SigningKey::load_or_create(&elsewhere.path().join("keys/seal.pem")).unwrap();
    seal(evidence.path(), &other).unwrap();
    let err = evidence.verify().unwrap_err().to_string().replace(&other.public().id(), "ID");
    expect!["seal.json: it is signed by ID, a key this installation does not trust"]
        .assert_eq(&err);

    let evidence = Evidence::new();
    evidence.rewrite("seal.json", |bytes| {
        let text = String::from_utf8(bytes.clone()).unwrap().replace("\"size\":15", "\"size\":16");
        *bytes = text.into_bytes();
    });
    evidence.broken(expect!["seal.json: its signature does not fit what it says"]);

    let evidence = Evidence::new();
    evidence.rewrite("seal.json", |bytes| bytes.push(b'\n'));
    evidence.broken(expect!["seal.json: it is not a seal: it has not the three lines of a seal"]);
}

#[test]
fn an_empty_folder_has_no_log() {
    let empty = tempfile::tempdir().unwrap();
    let err = verify(empty.path(), &[]).unwrap_err();
    assert!(matches!(err, VerifyError::NoLog { .. }), "{err}");
}

#[test]
fn entries_that_a_crash_left_open_are_counted() {
    let dir = private_dir();
    let (log, _) = Log::open(dir.path(), Options::new("run-1")).unwrap();
    let mut entry = log.begin(RequestFacts::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(entry.opened()).unwrap();
    let at_the_crash = fs::read(dir.path().join("audit.jsonl")).unwrap();
    entry.close(EntryOutcome::Relayed);
    log.close_blocking().unwrap();
    assert_eq!(verify(dir.path(), &[]).unwrap().log.unwrap().unclosed, 0);

    let file = dir.path().join("crashed.jsonl");
    fs::write(&file, at_the_crash).unwrap();
    let log = verify(&file, &[]).unwrap().log.unwrap();
    assert_eq!((log.unclosed, log.closed), (1, false));
}

const FILES: [&str; 6] = [
    "artifacts/report.txt",
    "audit.000001.jsonl",
    "audit.000002.jsonl",
    "audit.jsonl",
    "run.json",
    "seal.json",
];

/// One sealed folder, made once and copied for each test.
struct Original {
    dir: TempDir,
    key: PublicKey,
}

static SEALED: LazyLock<Original> = LazyLock::new(|| {
    let dir = private_dir();
    let home = tempfile::tempdir().unwrap();
    let key = SigningKey::load_or_create(&home.path().join("keys/seal.pem")).unwrap();
    write_log(dir.path());
    fs::write(dir.path().join("run.json"), "{\"command\":[]}\n").unwrap();
    fs::create_dir(dir.path().join("artifacts")).unwrap();
    fs::write(dir.path().join("artifacts/report.txt"), "all is well\n").unwrap();
    std::os::unix::fs::symlink("report.txt", dir.path().join("artifacts/latest")).unwrap();
    seal(dir.path(), &key).unwrap();
    Original { dir, key: key.public() }
});

/// Sixteen lines in three segments, the same length each time.
fn write_log(dir: &Path) {
    // One line a batch, so that segments end where they always end.
    let options = Options {
        writer: "a gateway".into(),
        segment_bytes: 2200,
        clock: || "2026-03-01T09:30:00Z".parse().unwrap(),
        ..Options::new("run-1")
    };
    let (log, _) = Log::open(dir, options).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for n in 10..22 {
        let action = "x".into();
        let detail = Some(format_args!("/n/{n}").into());
        let user = Some("a person with a long name ".repeat(4).into());
        runtime
            .block_on(log.record_safely(Operator { action, detail, user, accepted: true }))
            .unwrap();
    }
    log.close_blocking().unwrap();
}

/// A copy of the sealed folder that a test may damage.
struct Evidence(TempDir);

impl Evidence {
    fn new() -> Self {
        let copy = private_dir();
        let original = SEALED.dir.path();
        fs::create_dir(copy.path().join("artifacts")).unwrap();
        for file in FILES {
            fs::copy(original.join(file), copy.path().join(file)).unwrap();
        }
        std::os::unix::fs::symlink("report.txt", copy.path().join("artifacts/latest")).unwrap();
        Self(copy)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn verify(&self) -> Result<Verified, VerifyError> {
        verify(self.path(), &[SEALED.key])
    }

    fn rewrite(&self, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let path = self.path().join(file);
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes);
        fs::write(&path, bytes).unwrap();
    }

    fn remove(&self, file: &str) {
        fs::remove_file(self.path().join(file)).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path().join(from), self.path().join(to)).unwrap();
    }

    /// Changes lines and makes each name the one before it, as somebody does who
    /// can write and not sign. `change` has the file, the line's number, the line.
    fn rechain(&self, change: impl Fn(&str, usize, &str) -> String) {
        let mut prev = None;
        for file in ["audit.000001.jsonl", "audit.000002.jsonl", "audit.jsonl"] {
            self.rewrite(file, |bytes| {
                let text = String::from_utf8(bytes.clone()).unwrap();
                bytes.clear();
                for (number, line) in text.lines().enumerate() {
                    let mut line = change(file, number, line);
                    if let Some(prev) = prev {
                        let at = line.rfind(r#""prev":""#).unwrap();
                        line = format!(r#"{}"prev":"{prev}"}}"#, &line[..at]);
                    }
                    prev = Some(crate::Digest::of(line.as_bytes()));
                    bytes.extend_from_slice(line.as_bytes());
                    bytes.push(b'\n');
                }
            });
            // The next file names this one as it is now.
        }
    }

    #[track_caller]
    fn broken(&self, expected: Expect) {
        expected.assert_eq(&self.verify().unwrap_err().to_string());
    }
}

#[track_caller]
fn tampered(file: &str, change: impl FnOnce(&mut Vec<String>), expected: Expect) {
    let evidence = Evidence::new();
    evidence.rewrite(file, |bytes| {
        let text = String::from_utf8(bytes.clone()).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        change(&mut lines);
        *bytes = lines.iter().flat_map(|line| [line, "\n"]).collect::<String>().into_bytes();
    });
    evidence.broken(expected);
}

fn flip_last_hex(line: &str) -> String {
    let body = line.strip_suffix("\"}").unwrap();
    let (rest, last) = body.split_at(body.len() - 1);
    format!("{rest}{}\"}}", if last == "0" { "1" } else { "0" })
}

fn private_dir() -> TempDir {
    let private = fs::Permissions::from_mode(0o700);
    tempfile::Builder::new().permissions(private).tempdir().unwrap()
}
