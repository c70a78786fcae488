//! Any bytes as the frames of an HTTP/2 connection.

use super::reader::{FrameReader, Http2Frame};
use crate::fuzz_input::piece_size;

/// The frames are the same whole or in pieces, and they are those of a plain
/// reading of RFC 9113. The second byte says how many bytes precede the first.
pub fn http2_frames(input: &[u8]) {
    let (piece, rest) = piece_size(input);
    let Some((preface, bytes)) = rest.split_first() else { return };
    let preface = usize::from(*preface);
    let read = |piece: usize| {
        let (mut reader, mut frames) = (FrameReader::after(preface), Vec::new());
        bytes.chunks(piece).for_each(|piece| reader.feed(piece, |frame| frames.push(frame)));
        frames
    };
    let whole = read(bytes.len().max(1));
    assert_eq!(read(piece), whole, "in pieces of {piece}");
    let plain = plain_reading(bytes.get(preface..).unwrap_or_default());
    let seen: Vec<Plain> = whole.iter().map(as_plain).collect();
    assert_eq!(seen, plain);
}

/// Type, stream, bytes of content, whether the stream ends, why it is reset.
type Plain = (u8, u32, usize, bool, Option<u32>);

fn as_plain(frame: &Http2Frame) -> Plain {
    // An error code that is cut short is a frame that the library refuses.
    let why = (frame.kind == 3 && frame.length >= 4).then(|| frame.error_code());
    (frame.kind, frame.stream, frame.content() as usize, frame.ends_stream(), why)
}

/// RFC 9113, sections 4.1 and 6, from a slice. A frame counts once what is said
/// of it here is there, though not all of its payload may be.
fn plain_reading(mut bytes: &[u8]) -> Vec<Plain> {
    let mut frames = Vec::new();
    while let Some((&[l0, l1, l2, kind, flags, s0, s1, s2, s3], payload)) =
        bytes.split_first_chunk::<9>()
    {
        let length = usize::from(l0) << 16 | usize::from(l1) << 8 | usize::from(l2);
        let stream = u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff;
        let padded = kind == 0 && flags & 8 != 0;
        let needed = if kind == 3 { length.min(4) } else { usize::from(padded && length > 0) };
        if payload.len() < needed {
            break;
        }
        let padding = match payload.first() {
            Some(padding) if padded && length > 0 => usize::from(*padding) + 1,
            _ => usize::from(padded),
        };
        let content = if kind == 0 { length.saturating_sub(padding) } else { 0 };
        let why = payload.first_chunk::<4>().filter(|_| kind == 3 && length >= 4);
        let ends = kind <= 1 && flags & 1 != 0;
        frames.push((kind, stream, content, ends, why.map(|code| u32::from_be_bytes(*code))));
        bytes = payload.get(length..).unwrap_or_default();
    }
    frames
}
