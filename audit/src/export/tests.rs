//! Exports are files others parse, so they are golden files too.

use std::fs;
use std::path::PathBuf;

use expect_test::{expect, expect_file};
use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::event::golden::sample;
use crate::event::{Kind, What};
use crate::line;
use crate::search::{Query, search};

#[test]
fn csv_is_the_golden_file() {
    golden(Format::Csv, "events.csv", Exported { written: 16, ..Exported::default() });
}

#[test]
fn har_is_the_golden_file() {
    golden(Format::Har, "events.har", Exported { written: 1, left_out: 15, unreadable: 0 });
}

#[test]
fn ocsf_is_the_golden_file() {
    golden(Format::Ocsf, "events.ocsf.jsonl", Exported { written: 4, left_out: 12, unreadable: 0 });
}

#[test]
fn jsonl_is_the_log_to_the_byte() {
    let (_dir, file) = a_log_of(Kind::ALL.iter().map(|kind| sample(*kind)));
    let mut out = Vec::new();
    export(Format::Jsonl, found(&file), &mut out).unwrap();
    assert_eq!(out, fs::read(&file).unwrap());
}

#[test]
fn ocsf_loses_no_field() {
    for kind in [Kind::Connection, Kind::Dns, Kind::Finding, Kind::Request] {
        let (_dir, file) = a_log_of([sample(kind)]);
        let mut out = Vec::new();
        export(Format::Ocsf, found(&file), &mut out).unwrap();
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
    for events in [vec![], vec![sample(Kind::Request)], vec![sample(Kind::Request); 3]] {
        let count = events.len();
        let (_dir, file) = a_log_of(events);
        let mut out = Vec::new();
        export(Format::Har, found(&file), &mut out).unwrap();
        let har: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(har["log"]["entries"].as_array().unwrap().len(), count);
    }
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
        let mut event = sample(Kind::Request);
        if let What::Request(request) = &mut event.what {
            request.http.path = Some(path.into());
        }
        let (_dir, file) = a_log_of([event]);
        let mut out = Vec::new();
        export(Format::Csv, found(&file), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains(&format!(",443,{cell},state=open")), "{text}");
        assert_eq!(text.lines().count(), 2);
    }
}

#[test]
fn a_kind_we_do_not_know_is_counted_not_guessed() {
    let (_dir, file) = a_log_of([sample(Kind::Limit)]);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("\"limit\"", "\"quota\"")).unwrap();
    let exported = export(Format::Csv, found(&file), &mut Vec::new()).unwrap();
    assert_eq!(exported, Exported { unreadable: 1, ..Exported::default() });
}

#[test]
fn a_format_that_does_not_exist_is_refused_with_the_list() {
    let err = "xml".parse::<Format>().unwrap_err();
    expect!["`xml` is not an export format; write one of: csv, har, jsonl, ocsf"]
        .assert_eq(&err.to_string());
}

#[track_caller]
fn golden(format: Format, name: &str, expected: Exported) {
    let (_dir, file) = a_log_of(Kind::ALL.iter().map(|kind| sample(*kind)));
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

fn found(file: &std::path::Path) -> impl Iterator<Item = Found> {
    search(file, &Query::default()).unwrap().map(Result::unwrap)
}
