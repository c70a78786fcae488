//! A line's place in the chain: how it is written and read.
//!
//! A line is written in two steps. Whoever hands a record over writes its fields, on
//! its own thread and with its own memory. Its number and the digest of the line
//! before are known only when it is its turn, and then all that is left is to copy.

use std::io::Write as _;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{LineError, of_known_version, write_json};
use crate::chain::ChainHead;
use crate::digest::Digest;
use crate::event::{EventBody, FORMAT, RunName};
use crate::time::Time;

/// An [`Event`](crate::Event) without its place in the chain.
#[derive(Serialize)]
pub(crate) struct LineFields<'a> {
    pub(crate) time: Time,
    pub(crate) id: Uuid,
    pub(crate) run: &'a RunName,
    #[serde(flatten)]
    pub(crate) what: &'a EventBody,
}

impl LineFields<'_> {
    /// Appends them to `out`, as they stand in a line.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        write_json(self, out);
        // Without the braces: there is more on either side.
        out.remove(begin);
        out.pop();
    }
}

impl ChainHead {
    /// Appends the line after this one and its newline to `out`; gives its head.
    pub(crate) fn link(self, fields: &[u8], out: &mut Vec<u8>) -> Self {
        let begin = out.len();
        let seq = self.seq + 1;
        write!(out, r#"{{"v":{FORMAT},"seq":{seq},"#).expect("a Vec takes every byte");
        out.extend_from_slice(fields);
        out.extend_from_slice(br#","prev":"#);
        write_json(&self.hash, out);
        out.push(b'}');
        let head = self.after(out.get(begin..).unwrap_or_default());
        out.push(b'\n');
        head
    }
}

/// The fields of a line that the chain needs. They are the same for every kind, so an
/// older program can check a newer one's log.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(crate) struct ChainLink {
    v: u32,
    pub(crate) seq: u64,
    pub(crate) id: Uuid,
    pub(crate) kind: String,
    #[serde(rename = "sluice.segment.previous")]
    pub(crate) previous_segment: Option<String>,
    #[serde(rename = "sluice.segment.previous.sha256")]
    pub(crate) previous_segment_sha256: Option<Digest>,
    pub(crate) prev: Digest,
}

impl ChainLink {
    pub(crate) fn read(line: &[u8]) -> Result<Self, LineError> {
        of_known_version(serde_json::from_slice(line), |link: &Self| link.v)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::golden::sample;
    use crate::event::{Event, EventKind};

    #[test]
    fn a_line_in_two_steps_is_the_event_in_one() {
        let before = ChainHead { seq: 41, hash: Digest::of(b"the line before") };
        for kind in EventKind::ALL {
            let event = Event { seq: 42, prev: before.hash, ..sample(*kind) };
            let Event { time, id, run, what, .. } = &event;
            let (mut fields, mut whole) = (b"before".to_vec(), b"before\n".to_vec());
            super::super::write(&event, &mut whole);

            LineFields { time: *time, id: *id, run, what }.write(&mut fields);
            let fields = fields.strip_prefix(b"before").unwrap();
            let mut linked = b"before\n".to_vec();
            let head = before.link(fields, &mut linked);
            assert_eq!(str::from_utf8(&linked), str::from_utf8(&whole));
            let line = whole.strip_prefix(b"before\n").unwrap().strip_suffix(b"\n").unwrap();
            assert_eq!(head, ChainHead { seq: 42, hash: Digest::of(line) });
        }
    }
}
