//! Exports are files others parse, so they are golden files too.

use std::fs;
use std::path::PathBuf;

use expect_test::{expect, expect_file};
use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::event::golden::sample;
use crate::event::{EventBody, EventKind};
use crate::line;
use crate::search::{SearchQuery, search};

#[test]
fn a_format_is_known_by_its_name_alone() {
    let names = [
        ("csv", ExportFormat::Csv),
        ("har", ExportFormat::Har),
        ("jsonl", ExportFormat::Jsonl),
        ("ocsf", ExportFormat::Ocsf),
    ];
    for (name, format) in names {
        assert_eq!(name.parse(), Ok(format));
    }
    assert!("CSV".parse::<ExportFormat>().is_err());
    assert!("".parse::<ExportFormat>().is_err());
}

#[test]
fn csv_is_the_golden_file() {
    golden(ExportFormat::Csv, "events.csv", Exported { written: 17, ..Exported::default() });
}

#[test]
fn har_is_the_golden_file() {
    golden(ExportFormat::Har, "events.har", Exported { written: 1, left_out: 16, unreadable: 0 });
}

#[test]
fn ocsf_is_the_golden_file() {
    golden(
        ExportFormat::Ocsf,
        "events.ocsf.jsonl",
        Exported { written: 4, left_out: 13, unreadable: 0 },
    );
}

#[test]
fn jsonl_is_the_log_to_the_byte() {
    let (_dir, file) = a_log_of(EventKind::ALL.iter().map(|kind| sample(*kind)));
    let mut out = Vec::new();
    export(ExportFormat::Jsonl, found(&file), &mut out).unwrap();
    assert_eq!(out, fs::read(&file).unwrap());
}

#[test]
fn ocsf_loses_no_field() {
    for kind in [EventKind::Connection, EventKind::Dns, EventKind::Finding, EventKind::Request] {
        let (_dir, file) = a_log_of([sample(kind)]);
        let mut out = Vec::new();
        export(ExportFormat::Ocsf, found(&file), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let line: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        for (name, value) in line.as_object().unwrap() {
            // Its type is the class, its times are whole numbers, the chain stays here.
            let elsewhere = ["v", "kind", "time", "prev", "sluice.timing.total_ms"];
            let mut spelled = Vec::new();
            line::write_json(value, &mut spelled);
            let kept = text.contains(std::str::from_utf8(&spelled).unwrap());
            assert!(kept || elsewhere.contains(&name.as_str()), "{kind}: {name} is not in {text}");
        }
    }
}

#[test]
fn a_har_is_valid_json_whatever_it_holds() {
    for events in [vec![], vec![sample(EventKind::Request)], vec![sample(EventKind::Request); 3]] {
        let count = events.len();
        let (_dir, file) = a_log_of(events);
        let mut out = Vec::new();
        export(ExportFormat::Har, found(&file), &mut out).unwrap();
        let har: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(har["log"]["entries"].as_array().unwrap().len(), count);
    }
}

/// One event as OCSF.
fn as_ocsf(event: crate::Event) -> Value {
    let (_dir, file) = a_log_of([event]);
    let mut out = Vec::new();
    export(ExportFormat::Ocsf, found(&file), &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn ocsf_tells_what_was_decided_from_what_became_of_it() {
    use crate::{EntryOutcome, VerdictRecord};
    let cases = [
        (VerdictRecord::Allow, EntryOutcome::Relayed, (1, 1, 1)),
        (VerdictRecord::Allow, EntryOutcome::Failed, (27, 1, 1)),
        (VerdictRecord::Allow, EntryOutcome::Refused, (2, 2, 2)),
        (VerdictRecord::Ask, EntryOutcome::Relayed, (8, 1, 1)),
        (VerdictRecord::Ask, EntryOutcome::Abandoned, (0, 0, 1)),
        (VerdictRecord::Deny, EntryOutcome::Refused, (2, 2, 2)),
        (VerdictRecord::WouldDeny, EntryOutcome::Relayed, (15, 1, 1)),
    ];
    for (verdict, outcome, (disposition, action, severity)) in cases {
        let mut event = sample(EventKind::Request);
        if let EventBody::Request(request) = &mut event.what {
            request.decision.verdict = Some(verdict);
            request.outcome = outcome;
        }
        let describe = as_ocsf(event);
        let said = ["disposition_id", "action_id", "severity_id"].map(|name| &describe[name]);
        assert_eq!(said, [disposition, action, severity], "{verdict:?}, {outcome:?}");
    }
}

#[test]
fn ocsf_says_what_was_found() {
    use crate::event::Sighting;
    for (sighting, title) in [
        (Sighting::Canary, "A canary in outgoing traffic"),
        (Sighting::Secret, "A secret in outgoing traffic"),
    ] {
        let mut event = sample(EventKind::Finding);
        if let EventBody::Finding(finding) = &mut event.what {
            finding.sighting = sighting;
        }
        assert_eq!(as_ocsf(event)["finding_info"]["title"], title);
    }
}

#[test]
fn a_har_says_minus_one_for_what_it_does_not_know() {
    let mut event = sample(EventKind::Request);
    let mut held = event.clone();
    if let EventBody::Request(request) = &mut event.what {
        request.timing = Default::default();
    }
    let millis = |millis| Some(std::time::Duration::from_millis(millis).into());
    if let EventBody::Request(request) = &mut held.what {
        request.timing = Default::default();
        request.timing.decide = millis(3);
        request.timing.hold = millis(500);
        request.timing.first_byte = millis(600);
        request.timing.total = millis(700);
    }
    let (_dir, file) = a_log_of([event, held]);
    let mut out = Vec::new();
    export(ExportFormat::Har, found(&file), &mut out).unwrap();
    let har: Value = serde_json::from_slice(&out).unwrap();
    let [unknown, held] = [0, 1].map(|at| &har["log"]["entries"][at]);
    assert_eq!(unknown["timings"]["dns"], -1.0);
    assert_eq!(held["timings"]["blocked"], 503.0, "deciding and being held");
    assert_eq!(held["timings"]["wait"], 97.0);
    assert_eq!(held["timings"]["receive"], 100.0);
}

#[test]
fn a_path_is_neither_a_formula_nor_a_second_row() {
    let hostile = [
        ("=HYPERLINK(\"http://evil.test\",\"x\")", r#""'=HYPERLINK(""http://evil.test"",""x"")""#),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("/a\r\nforged,row", r#""/a\r\nforged,row""#),
        ("/\u{1b}[31m\u{202e}", r"/\u001b[31m\u202e"),
        ("\t=1+1", r"\t=1+1"),
        ("\u{ff1d}1+1", r"\uff1d1+1"),
    ];
    for (path, cell) in hostile {
        let mut event = sample(EventKind::Request);
        if let EventBody::Request(request) = &mut event.what {
            request.http.path = Some(path.into());
        }
        let (_dir, file) = a_log_of([event]);
        let mut out = Vec::new();
        export(ExportFormat::Csv, found(&file), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains(&format!(",443,{cell},state=open")), "{text}");
        assert_eq!(text.lines().count(), 2);
    }
}

#[test]
fn a_kind_we_do_not_know_is_counted_not_guessed() {
    let (_dir, file) = a_log_of([sample(EventKind::Limit)]);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("\"limit\"", "\"quota\"")).unwrap();
    let exported = export(ExportFormat::Csv, found(&file), &mut Vec::new()).unwrap();
    assert_eq!(exported, Exported { unreadable: 1, ..Exported::default() });
}

#[test]
fn a_format_that_does_not_exist_is_refused_with_the_list() {
    let err = "xml".parse::<ExportFormat>().unwrap_err();
    expect!["`xml` is not an export format; write one of: csv, har, jsonl, ocsf"]
        .assert_eq(&err.to_string());
}

#[track_caller]
fn golden(format: ExportFormat, name: &str, expected: Exported) {
    let (_dir, file) = a_log_of(EventKind::ALL.iter().map(|kind| sample(*kind)));
    let mut out = Vec::new();
    let exported = export(format, found(&file), &mut out).unwrap();
    assert_eq!(exported, expected);
    assert!(out.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\r' | b'\n')));
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/export").join(name);
    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let text = String::from_utf8(out).unwrap().replace(&version, "\"version\":\"VERSION\"");
    // A golden file has the line ends git keeps.
    expect_file![path].assert_eq(&text.replace("\r\n", "\n"));
}

fn a_log_of(events: impl IntoIterator<Item = crate::Event>) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let mut bytes = Vec::new();
    events.into_iter().for_each(|event| line::write(&event, &mut bytes));
    fs::write(&file, bytes).unwrap();
    (dir, file)
}

fn found(file: &std::path::Path) -> impl Iterator<Item = FoundEvent> {
    search(file, &SearchQuery::default()).unwrap().map(Result::unwrap)
}
