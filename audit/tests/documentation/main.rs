//! The format's documentation is true: `docs/audit-format.md` describes every
//! field of every kind, with its type, its bound and when it is there; it quotes
//! every fault; and its scripts tell whole evidence from tampered.
//!
//! The golden lines of `testdata/v1` have every field a kind can have; lines that
//! know nothing, written here, have those that are always there.

#![expect(clippy::indexing_slicing, reason = "this whole program is a test")]
#![expect(clippy::unwrap_used, reason = "this whole program is a test")]

mod page;
mod samples;
mod scripts;
#[path = "../../../tests/src/skip.rs"]
mod skip;
mod tool;

use std::collections::BTreeSet;
use std::path::PathBuf;

use audit::{EventKind, Fault, SealFault, VerifyError, line};
use serde_json::Value;

use crate::page::{PAGE, Row};
use crate::samples::{golden, golden_line, lines_that_know_nothing, sealed_folder};

#[test]
fn every_kind_is_listed_and_has_no_field_that_is_not_described() {
    let listed: BTreeSet<&str> = page::kinds();
    let real: BTreeSet<&str> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(listed, real);
    for kind in EventKind::ALL {
        let described: BTreeSet<&str> = page::rows(*kind).iter().map(|row| row.field).collect();
        let golden = golden(*kind);
        let written: BTreeSet<&str> = golden.keys().map(String::as_str).collect();
        let missing: Vec<_> = written.difference(&described).collect();
        assert!(missing.is_empty(), "`{kind}` lines have {missing:?}, which the page does not");
    }
}

#[test]
fn every_field_that_is_described_exists() {
    let written: BTreeSet<String> = EventKind::ALL
        .iter()
        .flat_map(|kind| golden(*kind).into_iter().map(|(name, _)| name))
        .collect();
    for kind in EventKind::ALL {
        for Row { field, .. } in page::rows(*kind) {
            assert!(written.contains(field), "no line of any kind has `{field}`");
        }
    }
}

#[test]
fn what_is_always_there_is_what_a_line_has_that_knows_nothing() {
    let lines = lines_that_know_nothing();
    for kind in EventKind::ALL {
        let line = &lines[kind.as_str()];
        let there: BTreeSet<&str> = line.keys().map(String::as_str).collect();
        let rows = page::rows(*kind);
        let always: BTreeSet<&str> =
            rows.iter().filter(|row| row.is_always_in(*kind)).map(|row| row.field).collect();
        assert_eq!(always, there, "always in `{kind}`, by the page and by the code");
    }
}

#[test]
fn types_and_bounds_are_those_of_the_code() {
    for kind in EventKind::ALL {
        for row in page::rows(*kind) {
            if let Some(value) = golden(*kind).get(row.field) {
                let at = format!("`{}` in `{kind}` is {value}, by the page {}", row.field, row.of);
                assert!(has_type(value, row.of), "{at}");
                if let Some(bound) = row.of.strip_prefix("text ") {
                    assert_eq!(longest(*kind, row.field).to_string(), bound, "{at}");
                }
            }
        }
    }
    let longest = line::MAX_LINE_BYTES.to_string();
    let (thousands, rest) = longest.split_at(longest.len() - 3);
    assert!(PAGE.contains(&format!("longer than {thousands},{rest} bytes")));
}

#[test]
fn every_word_a_field_can_be_is_spelled_out() {
    let mut words_seen = 0;
    for kind in EventKind::ALL {
        for row in page::rows(*kind).iter().filter(|row| row.of == "word" && row.field != "kind") {
            let mut line = golden(*kind);
            if line.insert(row.field.to_owned(), "no such word".into()).is_none() {
                continue;
            }
            let err = read(&Value::Object(line)).unwrap_err().to_string();
            let (_, expected) = err.split_once("expected").expect(&err);
            let words: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
            assert!(words.len() >= 2, "{err}");
            for word in words {
                let spelled = row.meaning.contains(&format!("`{word}`"));
                assert!(spelled, "`{}` can be `{word}`: {}", row.field, row.meaning);
                words_seen += 1;
            }
        }
    }
    assert!(words_seen > 20, "{words_seen}");
}

#[test]
fn the_line_that_is_explained_is_a_golden_line() {
    let shown = page::block("```json\n");
    assert_eq!(shown, golden_line(EventKind::Dns));
}

#[test]
fn every_fault_is_quoted_in_its_own_words() {
    let faults = [
        Fault::Appended { sealed: 9 },
        Fault::Changed,
        Fault::Deleted { expected: 8, found: 9 },
        Fault::Duplicated { seq: 8 },
        Fault::Edited { why: None },
        Fault::Edited { why: Some("its seq is 9 and should be 8".to_owned()) },
        Fault::ExtraFile,
        Fault::MissingFile,
        Fault::Reordered { expected: 8, found: 9 },
        Fault::Seal(SealFault::Damaged { why: "it has not the three lines of a seal".to_owned() }),
        Fault::Seal(SealFault::Foreign { id: "0123456789abcdef".repeat(2) }),
        Fault::Seal(SealFault::Forged),
        Fault::TornTail { bytes: 113 },
        Fault::Truncated { last: 8, sealed: 9 },
    ];
    let numbers: BTreeSet<u8> = faults.iter().map(number).collect();
    assert_eq!(numbers.len(), 13, "each fault once, and `Edited` twice");
    let no_log = VerifyError::NoLog { path: PathBuf::from("FOLDER") }.to_string();
    for said in faults.iter().map(Fault::to_string).chain([no_log]) {
        assert!(PAGE.contains(&format!("`{said}`")), "the page does not quote: {said}");
    }
}

/// No `_` arm: a new fault must be added here, above, and to the page.
fn number(fault: &Fault) -> u8 {
    match fault {
        Fault::Appended { .. } => 0,
        Fault::Changed => 1,
        Fault::Deleted { .. } => 2,
        Fault::Duplicated { .. } => 3,
        Fault::Edited { .. } => 4,
        Fault::ExtraFile => 5,
        Fault::MissingFile => 6,
        Fault::Reordered { .. } => 7,
        Fault::Seal(SealFault::Damaged { .. }) => 8,
        Fault::Seal(SealFault::Foreign { .. }) => 9,
        Fault::Seal(SealFault::Forged) => 10,
        Fault::TornTail { .. } => 11,
        Fault::Truncated { .. } => 12,
    }
}

#[test]
fn every_field_of_a_seal_is_described() {
    let (folder, _) = sealed_folder();
    let text = std::fs::read_to_string(folder.path().join("seal.json")).unwrap();
    let mut fields = BTreeSet::new();
    collect(&serde_json::from_str(&text).unwrap(), &mut fields);
    assert!(fields.len() >= 15, "{fields:?}");
    let section = page::section("## The seal\n");
    let missing: Vec<_> =
        fields.iter().filter(|field| !section.contains(&format!("`{field}`"))).collect();
    assert!(missing.is_empty(), "the page does not describe {missing:?}");
}

fn collect(value: &Value, fields: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, fields)),
        Value::Object(members) => {
            fields.extend(members.keys().cloned());
            members.values().for_each(|member| collect(member, fields));
        }
        _ => {}
    }
}

/// Whether a value is what the page calls that type.
fn has_type(value: &Value, of: &str) -> bool {
    let text = value.as_str().unwrap_or_default();
    let is_name =
        |name: &Value| audit::RecordedSecret::parse(name.as_str().unwrap_or_default()).is_ok();
    match of {
        "boolean" => value.is_boolean(),
        "id" => text.len() == 36 && text.split('-').count() == 5,
        "integer" => value.is_i64(),
        "ms" => value.is_f64(),
        "name" => is_name(value),
        "names" => value.as_array().is_some_and(|names| names.iter().all(is_name)),
        "number" => value.is_u64(),
        "sha256" => text.parse::<audit::Digest>().is_ok(),
        "texts" => value.as_array().is_some_and(|all| all.iter().all(Value::is_string)),
        "time" => text.len() == 27 && text.parse::<audit::Time>().is_ok(),
        "word" => !text.is_empty(),
        _ => of.starts_with("text ") && value.is_string(),
    }
}

/// How many bytes are kept of a text that is far too long.
fn longest(kind: EventKind, field: &str) -> usize {
    let mut line = golden(kind);
    line.insert(field.to_owned(), "x".repeat(20_000).into());
    let event = read(&Value::Object(line)).unwrap();
    let mut written = Vec::new();
    line::write(&event, &mut written);
    let written: Value = serde_json::from_slice(&written).unwrap();
    written[field].as_str().unwrap().len()
}

fn read(line: &Value) -> Result<audit::Event, line::LineError> {
    line::read(line.to_string().as_bytes())
}
