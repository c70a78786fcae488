//! Promises that hold whatever is done to evidence: the bodies of fuzz targets.
//!
//! Each function takes arbitrary bytes and panics if a promise is broken. The
//! targets in `fuzz/` call them with generated input (`./test --full`), and the
//! test below calls them with the kept corpus, so that a target that no longer
//! compiles or holds is noticed by an ordinary `cargo test`.

use std::cell::RefCell;
use std::fs;

use tempfile::TempDir;

use crate::event::Operator;
use crate::key::{PublicKey, SigningKey};
use crate::log::{Log, Options, SyncPolicy};
use crate::sealing::seal;
use crate::verify::verify;

/// A fuzz target's body.
pub type FuzzTarget = fn(&[u8]);

/// Every target of this crate, by the name it has in `fuzz/`.
pub const TARGETS: [(&str, FuzzTarget); 1] = [("evidence_folder", evidence_folder)];

/// A sealed folder in which any byte changed does not verify; one without its
/// seal verifies only if no line but the last one changed.
///
/// The first byte says whether the seal stays; four bytes each are an edit.
pub fn evidence_folder(input: &[u8]) {
    thread_local! {
        static EVIDENCE: RefCell<Evidence> = RefCell::new(Evidence::new());
    }
    let Some((first, edits)) = input.split_first() else { return };
    EVIDENCE.with_borrow_mut(|evidence| evidence.check(first & 1 == 0, edits));
}

/// A small sealed folder of three segments, and its files as they were.
struct Evidence {
    dir: TempDir,
    key: PublicKey,
    files: Vec<(&'static str, Vec<u8>)>,
}

/// Every file of the folder; the log's in the order of its lines, the seal last.
const FILES: [&str; 5] =
    ["audit.000001.jsonl", "audit.000002.jsonl", "audit.jsonl", "run.json", "seal.json"];
const SEGMENTS: usize = 3;

impl Evidence {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder can be made");
        let options = Options {
            writer: "a gateway".into(),
            segment_bytes: 1200,
            sync: SyncPolicy::Never,
            clock: || "2026-03-01T09:30:00Z".parse().expect("a time"),
            ..Options::new("run-1")
        };
        let folder = dir.path().join("run-1");
        let (log, _) = Log::open(&folder, options).expect("a log can be opened");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for n in 10..20 {
            let detail = Some(format_args!("/n/{n}").into());
            let note = Operator { action: "x".into(), detail, user: None, accepted: true };
            // One line a batch, so that segments end where they always end.
            runtime.block_on(log.record_safely(note)).expect("it is recorded");
        }
        log.close_blocking().expect("a log can be closed");
        fs::write(folder.join("run.json"), "{\"run\":\"run-1\"}\n").expect("a file can be written");
        let key =
            SigningKey::load_or_create(&dir.path().join("keys/seal.pem")).expect("a key is made");
        seal(&folder, &key).expect("a closed log can be sealed");
        let read = |name| (name, fs::read(folder.join(name)).expect("every file is there"));
        let files = FILES.map(read).into();
        Self { dir, key: key.public(), files }
    }

    fn check(&mut self, sealed: bool, edits: &[u8]) {
        let mut files: Vec<Vec<u8>> = self.files.iter().map(|(_, bytes)| bytes.clone()).collect();
        for edit in edits.chunks_exact(4).take(16) {
            apply(edit, &mut files);
        }
        let folder = self.dir.path().join("run-1");
        let put = |name: &str, bytes: &[u8]| {
            fs::write(folder.join(name), bytes).expect("a file can be written");
        };
        let mut changed = false;
        for ((name, original), bytes) in self.files.iter().zip(&files) {
            if original != bytes {
                put(name, bytes);
                changed = true;
            }
        }
        if !sealed {
            fs::remove_file(folder.join("seal.json")).expect("the seal can be removed");
        }
        let outcome = verify(&folder, &[self.key]);
        for ((name, original), bytes) in self.files.iter().zip(&files) {
            if original != bytes || *name == "seal.json" {
                put(name, original);
            }
        }
        match outcome {
            Err(why) => assert!(changed, "an untouched folder is refused: {why}"),
            Ok(verified) if sealed => {
                assert!(verified.seal.is_some());
                assert!(!changed, "a changed folder verifies: {verified:?}");
            }
            Ok(verified) => {
                assert!(verified.seal.is_none());
                let original = lines(self.files.iter().map(|(_, bytes)| bytes));
                let found = lines(files.iter());
                let before_last = found.split_last().map_or(&[][..], |(_, before)| before);
                let kept = original.get(..before_last.len());
                assert_eq!(Some(before_last), kept, "a changed line verifies");
            }
        }
    }
}

/// The log's lines, over all of its segments.
fn lines<'f>(files: impl Iterator<Item = &'f Vec<u8>>) -> Vec<&'f [u8]> {
    files.take(SEGMENTS).flat_map(|bytes| bytes.split_inclusive(|byte| *byte == b'\n')).collect()
}

/// One edit: what to do in which file, where, and with which byte.
fn apply(edit: &[u8], files: &mut [Vec<u8>]) {
    let [what, high, low, value] = edit else { return };
    let count = files.len();
    let other = files.get(usize::from(*value) % count).cloned().unwrap_or_default();
    let Some(file) = files.get_mut(usize::from(what & 7) % count) else { return };
    let at = usize::from(u16::from_be_bytes([*high, *low])) % (file.len() + 1);
    let mut rows: Vec<Vec<u8>> =
        file.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let row = at % (rows.len() + 1);
    match what >> 3 {
        0 => file.insert(at, *value),
        1 if at < file.len() => drop(file.remove(at)),
        2 => file.truncate(at),
        3 if row + 1 < rows.len() => {
            rows.swap(row, row + 1);
            *file = rows.concat();
        }
        4 if row < rows.len() => {
            rows.remove(row);
            *file = rows.concat();
        }
        5 => {
            if let Some(again) = rows.get(row).cloned() {
                rows.insert(row, again);
                *file = rows.concat();
            }
        }
        6 => *file = other,
        7 => file.extend(other),
        _ => {
            if let Some(byte) = file.get_mut(at) {
                *byte = *value;
            }
        }
    }
}

#[cfg(test)]
#[path = "../../fuzz/replay.rs"]
mod tests;
