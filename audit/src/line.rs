//! One event to one line, and back.
//!
//! **Invariant:** a written line consists of the bytes 0x20 to 0x7e and one
//! newline. Everything else is a `\uXXXX` escape: control characters of either
//! kind, line separators, bidirectional overrides, zero-width characters, and
//! simply all that is not ASCII. A name cannot end its line, close its string,
//! recolour a terminal that shows the file, or look like another name. The cost
//! is that honest non-ASCII text is spelled out; host names and paths are ASCII
//! already.
//!
//! A line is serialized once. What is hashed, stored, sealed and searched is
//! those bytes; nothing ever re-serializes a line to check it.

mod json;
mod link;

use std::io::{self, Write};

use serde::Serialize;

use crate::event::{Event, FORMAT};
use crate::text::Text;
use json::Json;
pub(crate) use link::{ChainLink, LineFields};

/// The longest line, newline not counted. An event of the largest kind with every
/// text at its limit and every byte escaped stays below it.
pub const MAX_LINE_BYTES: usize = 256 * 1024;

/// Appends `event` and a newline to `out`.
pub fn write(event: &Event, out: &mut Vec<u8>) {
    write_json(event, out);
    out.push(b'\n');
}

/// Appends any value the way lines are written, without a newline.
pub(crate) fn write_json(value: &impl Serialize, out: &mut Vec<u8>) {
    value
        .serialize(Json(out))
        .expect("a Vec takes every byte, and our types have only strings as keys");
}

/// Appends `text` the way lines spell it, without quotes.
pub(crate) fn spell_out(text: &str, out: &mut Vec<u8>) {
    for character in text.chars() {
        match character {
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            _ => put(character, out).expect("a Vec takes every byte"),
        }
    }
}

/// Reads one line, given without its newline.
///
/// ```
/// let err = audit::line::read(b"{}").unwrap_err();
/// assert!(err.to_string().starts_with("not an audit event: missing field"));
/// ```
pub fn read(line: &[u8]) -> Result<Event, LineError> {
    if line.len() > MAX_LINE_BYTES {
        return Err(LineError::TooLong { bytes: line.len() as u64 });
    }
    of_known_version(serde_json::from_slice(line), |event: &Event| event.v)
}

/// What was read of a line, unless that failed or the line has another version.
pub(crate) fn of_known_version<T>(
    read: serde_json::Result<T>,
    version: impl FnOnce(&T) -> u32,
) -> Result<T, LineError> {
    let fields = read.map_err(|err| LineError::NotAnEvent { why: describe(&err) })?;
    match version(&fields) {
        FORMAT => Ok(fields),
        found => Err(LineError::Version { found }),
    }
}

/// Why a line could not be read. The line itself is hostile, so what is quoted
/// of it is bounded and must still be escaped before it is shown.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LineError {
    #[error("not an audit event: {why}")]
    NotAnEvent { why: Text<256> },
    #[error("a line of {bytes} bytes; the longest that is ever written has {MAX_LINE_BYTES}")]
    TooLong { bytes: u64 },
    #[error("format version {found}; this program reads version {FORMAT}")]
    Version { found: u32 },
}

/// The parser's message. Control characters that it quotes are escaped.
pub(crate) fn describe(err: &serde_json::Error) -> Text<256> {
    err.to_string().escape_debug().to_string().into()
}

fn put<W: ?Sized + Write>(character: char, writer: &mut W) -> io::Result<()> {
    if let ' '..='~' = character {
        return writer.write_all(&[character as u8]);
    }
    let mut units = [0; 2];
    character.encode_utf16(&mut units).iter().try_for_each(|unit| write!(writer, "\\u{unit:04x}"))
}

pub(crate) fn is_printable(bytes: &[u8]) -> bool {
    // By the block: a loop that may stop at any byte looks at them one by one.
    let all = |block: &[u8]| block.iter().fold(true, |all, byte| all & matches!(byte, b' '..=b'~'));
    bytes.chunks(32).all(all)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::golden::sample;
    use crate::event::{EventBody, EventKind};
    use crate::secret_name::RecordedSecret;

    #[test]
    fn what_forges_logs_elsewhere_is_spelled_out_here() {
        let hostile = [
            ("/a\n{\"v\":1}", r#"/a\n{\"v\":1}"#),
            ("/\u{1b}[2J\u{9b}31m", r"/\u001b[2J\u009b31m"),
            ("/\u{202e}gpj.exe", r"/\u202egpj.exe"),
            ("/\u{2028}\u{2029}\u{85}", r"/\u2028\u2029\u0085"),
            ("/\u{200b}\u{feff}\u{7f}", r"/\u200b\ufeff\u007f"),
            ("/\"\\", r#"/\"\\"#),
            ("/\u{1f600}", r"/\ud83d\ude00"),
        ];
        for (path, spelled) in hostile {
            let event = with_path(path);
            let line = written(&event);
            assert!(line.contains(&format!(r#""url.path":"{spelled}","#)), "{line}");
            assert_eq!(read(line.trim_end().as_bytes()).unwrap(), event);
        }
    }

    #[test]
    fn the_longest_event_fits_in_a_line() {
        let Event { what: EventBody::Request(mut request), .. } = sample(EventKind::Request) else {
            panic!("asked for a request");
        };
        // A control character takes the most room: six bytes for one.
        let worst = "\u{1}".repeat(10_000);
        request.http.path = Some(worst.as_str().into());
        request.http.query = Some(worst.as_str().into());
        request.http.method = Some(worst.as_str().into());
        request.destination.host = Some(worst.as_str().into());
        request.decision.rule = Some(worst.as_str().into());
        request.decision.reason = Some(worst.as_str().into());
        request.decision.detail = Some(worst.as_str().into());
        request.decision.policy = Some(worst.as_str().into());
        request.capability = Some(worst.as_str().into());
        request.tls.cipher = Some(worst.as_str().into());
        request.tls.next_protocol = Some(worst.as_str().into());
        request.tls.server_name = Some(worst.as_str().into());
        request.failure.code = Some(worst.as_str().into());
        request.failure.message = Some(worst.as_str().into());
        let mut number = 0;
        while request.secrets.add(RecordedSecret::parse(&format!("{number:064}")).unwrap()) {
            number += 1;
        }
        let event = Event {
            seq: u64::MAX,
            run: worst.as_str().into(),
            what: EventBody::Request(request),
            ..sample(EventKind::Request)
        };
        let length = written(&event).len();
        assert!(length > 120_000 && length < MAX_LINE_BYTES, "{length}");
    }

    #[test]
    fn a_line_that_is_too_long_is_not_even_parsed() {
        let read = |length| read(&vec![b' '; length]).unwrap_err();
        assert!(matches!(read(MAX_LINE_BYTES), LineError::NotAnEvent { .. }));
        for bytes in [MAX_LINE_BYTES + 1, MAX_LINE_BYTES + 2, 2 * MAX_LINE_BYTES] {
            assert_eq!(read(bytes), LineError::TooLong { bytes: bytes as u64 });
        }
    }

    #[test]
    fn a_version_we_do_not_know_is_not_guessed_at() {
        let line = written(&sample(EventKind::Request)).replace(r#""v":1,"#, r#""v":2,"#);
        assert_eq!(read(line.trim_end().as_bytes()), Err(LineError::Version { found: 2 }));
    }

    #[test]
    fn a_field_given_twice_is_refused() {
        let line =
            written(&sample(EventKind::LogClosed)).replace(r#""seq":42"#, r#""seq":42,"seq":43"#);
        let err = read(line.trim_end().as_bytes()).unwrap_err();
        assert!(err.to_string().contains("duplicate field `seq`"), "{err}");
    }

    proptest! {
        #[test]
        fn any_text_reads_back_and_stays_in_its_line(text in any::<String>(), at in 0usize..6) {
            let Event { what: EventBody::Request(mut request), .. } = sample(EventKind::Request) else {
                panic!("asked for a request");
            };
            let text = text.as_str();
            match at {
                0 => request.http.path = Some(text.into()),
                1 => request.http.query = Some(text.into()),
                2 => request.destination.host = Some(text.into()),
                3 => request.http.method = Some(text.into()),
                4 => request.decision.detail = Some(text.into()),
                _ => request.failure.message = Some(text.into()),
            }
            let event = Event {
                run: text.into(),
                what: EventBody::Request(request),
                ..sample(EventKind::Request)
            };
            let line = written(&event);
            let (body, newline) = line.split_at(line.len() - 1);
            prop_assert!(newline == "\n" && is_printable(body.as_bytes()), "{}", line);
            prop_assert_eq!(read(body.as_bytes()).unwrap(), event);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
            drop(read(&bytes));
        }

        /// Closer to home: a golden line with some bytes replaced.
        #[test]
        fn no_damage_makes_the_reader_panic(
            kind in 0..EventKind::ALL.len(),
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        ) {
            let mut line = written(&sample(EventKind::ALL[kind])).into_bytes();
            for (at, byte) in damage {
                *at.get_mut(&mut line) = byte;
            }
            if let Ok(event) = read(&line) {
                // Whatever was read can be written again, in one line.
                prop_assert!(is_printable(written(&event).trim_end().as_bytes()));
            }
        }
    }

    fn with_path(path: &str) -> Event {
        let mut event = sample(EventKind::Request);
        if let EventBody::Request(request) = &mut event.what {
            request.http.path = Some(path.into());
        }
        event
    }

    fn written(event: &Event) -> String {
        let mut line = Vec::new();
        write(event, &mut line);
        String::from_utf8(line).unwrap()
    }
}
