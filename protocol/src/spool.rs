//! What a command printed, in the file that the host opened for it.
//!
//! The first process writes it and the host reads it, at the same time or later,
//! also when whoever started the command is gone. A sequence of frames:
//!
//! ```text
//! kind (1 byte)  microseconds since the start (8)  length (4)  payload (length)
//! ```
//!
//! Numbers have their least significant byte first. The last frame says how the
//! command ended; a spool without one is of a sandbox that was killed. A frame is
//! written at once, so only the last can be torn.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::init::{CommandEnd, TerminalSize};

/// A longer payload is no frame of ours.
pub const MAX_PAYLOAD_BYTES: usize = 64 * 1024;
pub const HEADER_BYTES: usize = 13;

/// One thing that happened to a command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SpoolEvent {
    /// It wrote to its error stream.
    Error(Vec<u8>),
    /// It ended. Nothing comes after.
    Ended(SpoolEnd),
    /// It wrote to its output, or to its terminal.
    Output(Vec<u8>),
    /// Its terminal has another size.
    Resized(TerminalSize),
}

/// How a command ended, and what was measured then.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SpoolEnd {
    pub end: CommandEnd,
    pub facts: Vec<(String, String)>,
}

/// A spool that nobody of ours wrote.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the spool holds something that is not a frame")]
pub struct NotAFrame;

const OUTPUT: u8 = 1;
const ERROR: u8 = 2;
const RESIZED: u8 = 3;
const ENDED: u8 = 4;

impl SpoolEvent {
    /// The whole frame. Payloads longer than permitted are cut.
    pub fn frame(&self, at: Duration) -> Vec<u8> {
        let size;
        let ended;
        let (kind, payload): (u8, &[u8]) = match self {
            Self::Error(bytes) => (ERROR, bytes),
            Self::Output(bytes) => (OUTPUT, bytes),
            Self::Resized(TerminalSize { columns, rows }) => {
                size = [columns.to_le_bytes(), rows.to_le_bytes()].concat();
                (RESIZED, &size)
            }
            Self::Ended(end) => {
                ended = serde_json::to_vec(end).unwrap_or_default();
                (ENDED, &ended)
            }
        };
        let payload = payload.get(..MAX_PAYLOAD_BYTES).unwrap_or(payload);
        let micros = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let mut frame = Vec::with_capacity(HEADER_BYTES + payload.len());
        frame.push(kind);
        frame.extend(micros.to_le_bytes());
        frame.extend(length.to_le_bytes());
        frame.extend(payload);
        frame
    }

    /// The first frame of `bytes`, when it happened, and how long it is; nothing if
    /// it is not all there yet.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, Duration, usize)>, NotAFrame> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [kind, micros @ .., a, b, c, d] = header;
        let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        if length > MAX_PAYLOAD_BYTES {
            return Err(NotAFrame);
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let event = match (*kind, payload) {
            (OUTPUT, bytes) => Self::Output(bytes.to_vec()),
            (ERROR, bytes) => Self::Error(bytes.to_vec()),
            (RESIZED, &[a, b, c, d]) => Self::Resized(TerminalSize {
                columns: u16::from_le_bytes([a, b]),
                rows: u16::from_le_bytes([c, d]),
            }),
            (ENDED, json) => Self::Ended(serde_json::from_slice(json).map_err(|_| NotAFrame)?),
            _ => return Err(NotAFrame),
        };
        let at = Duration::from_micros(u64::from_le_bytes(*micros));
        Ok(Some((event, at, HEADER_BYTES + length)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events() -> impl Strategy<Value = SpoolEvent> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..200);
        prop_oneof![
            bytes().prop_map(SpoolEvent::Output),
            bytes().prop_map(SpoolEvent::Error),
            (any::<u16>(), any::<u16>())
                .prop_map(|(columns, rows)| SpoolEvent::Resized(TerminalSize { columns, rows })),
            (any::<u8>(), ".{0,20}").prop_map(|(code, why)| SpoolEvent::Ended(SpoolEnd {
                end: CommandEnd::Unstartable { code, why: why.clone() },
                facts: vec![("full".to_owned(), why)],
            })),
        ]
    }

    proptest! {
        #[test]
        fn a_spool_reads_back_as_it_was_written_however_it_is_cut(
            events in prop::collection::vec((events(), 0_u64..1 << 50), 0..8),
            cut: prop::sample::Index,
        ) {
            let frame = |(event, at): &(SpoolEvent, u64)| event.frame(Duration::from_micros(*at));
            let whole: Vec<u8> = events.iter().flat_map(frame).collect();
            let (mut rest, mut read) = (&*whole, Vec::new());
            while let Some((event, at, length)) = SpoolEvent::parse(rest).unwrap() {
                rest = &rest[length..];
                read.push((event, u64::try_from(at.as_micros()).unwrap()));
            }
            prop_assert!(rest.is_empty());
            prop_assert_eq!(&read, &events);
            // A torn frame is one that is not there yet, never another one.
            if let Some(first) = events.first().map(frame) {
                let torn = cut.index(first.len());
                prop_assert_eq!(SpoolEvent::parse(&first[..torn]), Ok(None));
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            drop(SpoolEvent::parse(&bytes));
        }
    }
}
