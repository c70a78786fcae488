//! Any bytes as the frames of a WebSocket.

use super::frames::{FrameChecker, FrameSender};
use super::handshake::AgreedExtensions;
use crate::fuzz_input::piece_size;

/// Frames get the same verdict whole or in pieces, and the verdict on whole
/// frames is that of a plain reading of RFC 6455. The second byte says who
/// sends, and whether compression was agreed on.
pub fn websocket_frames(input: &[u8]) {
    let (piece, rest) = piece_size(input);
    let Some((flags, bytes)) = rest.split_first() else { return };
    let sender = if flags & 1 == 0 { FrameSender::Client } else { FrameSender::Server };
    let deflate = flags & 2 != 0;
    let check = |piece: usize| {
        let mut checker = FrameChecker::new(sender, AgreedExtensions { deflate });
        bytes.chunks(piece).try_for_each(|piece| checker.feed(piece))
    };
    let verdict = check(bytes.len().max(1));
    assert_eq!(check(piece), verdict, "in pieces of {piece}");
    match plain_reading(bytes, sender == FrameSender::Client, deflate) {
        PlainReading::Wrong => assert!(verdict.is_err(), "frames that are wrong were accepted"),
        PlainReading::Whole => assert_eq!(verdict, Ok(()), "frames that are right were refused"),
        // What there is of the last frame may be wrong already.
        PlainReading::Partial => {}
    }
}

#[derive(Debug)]
enum PlainReading {
    Partial,
    Whole,
    Wrong,
}

/// RFC 6455, section 5, from a slice.
fn plain_reading(mut bytes: &[u8], from_client: bool, deflate: bool) -> PlainReading {
    let (mut in_message, mut closed) = (false, false);
    while !bytes.is_empty() {
        let Some((frame, rest)) = plain_frame(bytes, from_client) else {
            return PlainReading::Partial;
        };
        let data = frame.opcode == 1 || frame.opcode == 2;
        let right = !closed
            && frame.masked == from_client
            && frame.is_shortest
            && (frame.reserved == 0 || (frame.reserved == 4 && deflate && data))
            && match frame.opcode {
                0 => in_message,
                1 | 2 => !in_message,
                8..=10 => frame.last && frame.payload.len() <= 125,
                _ => false,
            };
        if !right || (frame.opcode == 8 && !is_close(&frame.payload)) {
            return PlainReading::Wrong;
        }
        if frame.opcode < 8 {
            in_message = !frame.last;
        }
        closed = frame.opcode == 8;
        bytes = rest;
    }
    PlainReading::Whole
}

struct Frame {
    last: bool,
    reserved: u8,
    opcode: u8,
    masked: bool,
    is_shortest: bool,
    payload: Vec<u8>,
}

/// One whole frame and what follows. A frame that is masked wrongly is divided
/// as its sender would have to send it: it is wrong anyway.
fn plain_frame(bytes: &[u8], from_client: bool) -> Option<(Frame, &[u8])> {
    let [first, second, rest @ ..] = bytes else { return None };
    let masked = second & 0x80 != 0;
    let (length, shortest, rest) = match second & 0x7f {
        126 => {
            let (length, rest) = rest.split_first_chunk::<2>()?;
            (u64::from(u16::from_be_bytes(*length)), 126, rest)
        }
        127 => {
            let (length, rest) = rest.split_first_chunk::<8>()?;
            (u64::from_be_bytes(*length), 1 << 16, rest)
        }
        short => (u64::from(short), 0, rest),
    };
    let (mask, rest) = if from_client { rest.split_first_chunk::<4>()? } else { (&[0; 4], rest) };
    let (payload, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    let payload = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
    let frame = Frame {
        last: first & 0x80 != 0,
        reserved: first >> 4 & 7,
        opcode: first & 0x0f,
        masked,
        is_shortest: length >= shortest,
        payload,
    };
    Some((frame, rest))
}

/// The payload of a close frame: nothing, or a code that may be sent and text.
fn is_close(payload: &[u8]) -> bool {
    match payload {
        [] => true,
        [_] => false,
        [high, low, reason @ ..] => {
            let code = u16::from_be_bytes([*high, *low]);
            let sendable =
                [1000..=1003, 1007..=1014, 3000..=4999].iter().any(|r| r.contains(&code));
            sendable && std::str::from_utf8(reason).is_ok()
        }
    }
}
