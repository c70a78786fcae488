//! Writes changes as a unified diff that `git apply` and `patch` read.
//!
//! Made by us from the two layers: no git runs, so nothing in the tree can
//! choose a filter, a textconv program or a pager. Text is what has no NUL byte
//! in its first 8000 (git's own rule); everything else is noted as binary, which
//! `git apply` refuses rather than half applies. What a patch cannot say (pipes,
//! empty directories, the owner) is in `changes.json`.

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::time::{Duration, Instant};

use files::TreePath;
use files::tree::Directory;
use similar::{Algorithm, DiffOp, capture_diff_slices_deadline, group_diff_ops};

use super::changes::{Change, Changes, Node, Section};
use super::highlights::Highlight;
use crate::work_budget::{CutShort, WorkBudget};

/// How much text is compared.
#[derive(Clone, Copy, Debug)]
pub struct PatchLimits {
    /// A larger file is noted as binary is.
    pub file: u64,
    /// What comes after this much is noted only.
    pub whole: u64,
    /// After this long a file's difference is told in larger pieces.
    pub time: Duration,
}

impl Default for PatchLimits {
    fn default() -> Self {
        Self { file: 1 << 20, whole: 64 << 20, time: Duration::from_secs(1) }
    }
}

/// Lines of context around a change.
const CONTEXT: usize = 3;

/// Writes the patch for `changes` and notes in each where its part is. What
/// `budget` leaves no time for has none, and that is noted too.
pub fn write(
    changes: &mut Changes,
    upper: &Directory,
    lower: &Directory,
    limits: &PatchLimits,
    budget: &WorkBudget,
    mut out: impl Write,
) -> io::Result<()> {
    let mut offset = 0;
    let mut left_out: Option<(CutShort, usize)> = None;
    for change in &mut changes.changes {
        if let Err(why) = budget.check() {
            left_out.get_or_insert((why, 0)).1 += 1;
            continue;
        }
        let room = limits.whole.saturating_sub(offset);
        let layers = Layers { upper, lower, most: limits.file.min(room), time: limits.time };
        let mut section = Vec::new();
        let lines = layers.section(change, &mut section)?;
        if section.is_empty() {
            continue;
        }
        let length = section.len() as u64;
        change.patch = Some(Section { offset, length, lines });
        out.write_all(&section)?;
        offset += length;
    }
    if let Some((why, count)) = left_out {
        changes.incomplete.push(format!("the patch was {why}; {count} changes are only listed"));
    }
    out.flush()
}

/// How one text became another, as the lines of a unified diff.
pub fn difference(old: &str, new: &str, time: Duration) -> String {
    let mut out = Vec::new();
    hunks(&lines(old.as_bytes()), &lines(new.as_bytes()), time, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

struct Layers<'a> {
    upper: &'a Directory,
    lower: &'a Directory,
    most: u64,
    time: Duration,
}

/// One side of a comparison, as git sees it.
struct PatchSide {
    mode: &'static str,
    content: PatchContent,
}

enum PatchContent {
    Binary,
    Text(Vec<u8>),
}

impl Layers<'_> {
    /// One change's part; how many lines came and went, if it has lines.
    fn section(&self, change: &Change, out: &mut Vec<u8>) -> io::Result<Option<(u64, u64)>> {
        let path = &change.path;
        // What a sandbox may not see is not for the evidence either.
        let secret = change.highlights.contains(&Highlight::Denied);
        let before = change.before.as_ref().map(|before| &before.node);
        let old = before.and_then(|node| self.side(self.lower, path, node, secret));
        let new = change.after.as_ref().and_then(|node| self.side(self.upper, path, node, secret));
        match (old, new) {
            (None, None) => Ok(None),
            // Git has no word for a file that becomes a link: it goes, and comes.
            (Some(old), Some(new)) if old.is_link() != new.is_link() => {
                let went = self.file(path, Some(old), None, out)?;
                let came = self.file(path, None, Some(new), out)?;
                Ok(went.zip(came).map(|(went, came)| (went.0 + came.0, went.1 + came.1)))
            }
            (old, new) => self.file(path, old, new, out),
        }
    }

    /// What a patch can hold of a node: nothing of a directory or a pipe.
    fn side(
        &self,
        layer: &Directory,
        path: &TreePath,
        node: &Node,
        secret: bool,
    ) -> Option<PatchSide> {
        match node {
            Node::Directory { .. } | Node::Special { .. } => None,
            Node::Link { target } => {
                Some(PatchSide { mode: "120000", content: PatchContent::Text(target.0.clone()) })
            }
            Node::File { mode, .. } => {
                let mode = if mode & 0o100 == 0 { "100644" } else { "100755" };
                let text = if secret { None } else { self.text(layer, path) };
                Some(PatchSide {
                    mode,
                    content: text.map_or(PatchContent::Binary, PatchContent::Text),
                })
            }
        }
    }

    fn text(&self, layer: &Directory, path: &TreePath) -> Option<Vec<u8>> {
        let directory = layer.holding(path).ok()??;
        let bytes = directory.contents(path.name()?, self.most).ok()??;
        let is_text = !bytes.iter().take(8000).any(|byte| *byte == 0);
        is_text.then_some(bytes)
    }

    fn file(
        &self,
        path: &TreePath,
        old: Option<PatchSide>,
        new: Option<PatchSide>,
        out: &mut Vec<u8>,
    ) -> io::Result<Option<(u64, u64)>> {
        let (from, to) = (name(b"a/", path), name(b"b/", path));
        put(out, &[b"diff --git ", &from, b" ", &to, b"\n"]);
        match (&old, &new) {
            (None, Some(new)) => put(out, &[b"new file mode ", new.mode.as_bytes(), b"\n"]),
            (Some(old), None) => put(out, &[b"deleted file mode ", old.mode.as_bytes(), b"\n"]),
            (Some(old), Some(new)) if old.mode != new.mode => {
                put(out, &[b"old mode ", old.mode.as_bytes(), b"\n"]);
                put(out, &[b"new mode ", new.mode.as_bytes(), b"\n"]);
            }
            _ => {}
        }
        let nothing = || PatchContent::Text(Vec::new());
        let from = if old.is_some() { from } else { b"/dev/null".to_vec() };
        let to = if new.is_some() { to } else { b"/dev/null".to_vec() };
        let contents = (
            old.map_or_else(nothing, |side| side.content),
            new.map_or_else(nothing, |side| side.content),
        );
        let (PatchContent::Text(old), PatchContent::Text(new)) = contents else {
            put(out, &[b"Binary files ", &from, b" and ", &to, b" differ\n"]);
            return Ok(None);
        };
        if old == new {
            return Ok(Some((0, 0)));
        }
        put(out, &[b"--- ", &from, after_name(&from), b"\n+++ ", &to, after_name(&to), b"\n"]);
        Ok(Some(hunks(&lines(&old), &lines(&new), self.time, out)))
    }
}

impl PatchSide {
    fn is_link(&self) -> bool {
        self.mode == "120000"
    }
}

fn hunks(old: &[&[u8]], new: &[&[u8]], time: Duration, out: &mut Vec<u8>) -> (u64, u64) {
    let deadline = Instant::now().checked_add(time);
    let ops = capture_diff_slices_deadline(Algorithm::Myers, old, new, deadline);
    let (mut came, mut went) = (0, 0);
    for group in group_diff_ops(ops, CONTEXT) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let range = |start: usize, end: usize| -> String {
            // An empty range stands after the line it names.
            match end - start {
                0 => format!("{start},0"),
                1 => format!("{}", start + 1),
                length => format!("{},{length}", start + 1),
            }
        };
        let before = range(first.old_range().start, last.old_range().end);
        let after = range(first.new_range().start, last.new_range().end);
        put(out, &[format!("@@ -{before} +{after} @@\n").as_bytes()]);
        for op in &group {
            let gone = old.get(op.old_range()).unwrap_or_default();
            let fresh = new.get(op.new_range()).unwrap_or_default();
            if matches!(op, DiffOp::Equal { .. }) {
                gone.iter().for_each(|line| put_line(out, b" ", line));
                continue;
            }
            gone.iter().for_each(|line| put_line(out, b"-", line));
            fresh.iter().for_each(|line| put_line(out, b"+", line));
            went += gone.len() as u64;
            came += fresh.len() as u64;
        }
    }
    (came, went)
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

fn put_line(out: &mut Vec<u8>, sign: &[u8], line: &[u8]) {
    put(out, &[sign, line]);
    if !line.ends_with(b"\n") {
        put(out, &[b"\n\\ No newline at end of file\n"]);
    }
}

fn put(out: &mut Vec<u8>, parts: &[&[u8]]) {
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Readers take a name with a space to end at the tab.
fn after_name(name: &[u8]) -> &'static [u8] {
    if name.contains(&b' ') && !name.starts_with(b"\"") { b"\t" } else { b"" }
}

/// A name as git writes it: quoted, with C's escapes, unless it is plain. So a
/// name with a newline cannot forge a line of the patch.
fn name(prefix: &[u8], path: &TreePath) -> Vec<u8> {
    let plain = |byte: &u8| (0x20..0x7f).contains(byte) && !b"\"\\".contains(byte);
    let whole = [prefix, path.as_bytes()].concat();
    if whole.iter().all(plain) {
        return whole;
    }
    let mut quoted = vec![b'"'];
    for byte in whole {
        match byte {
            b'"' | b'\\' => quoted.extend_from_slice(&[b'\\', byte]),
            byte if plain(&byte) => quoted.push(byte),
            byte => quoted.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
        }
    }
    quoted.push(b'"');
    quoted
}
