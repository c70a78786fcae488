use proptest::prelude::*;

use super::*;

const PLAIN: AgreedExtensions = AgreedExtensions { deflate: false };

/// The verdict on a stream that comes in these pieces.
fn verdict(sender: FrameSender, deflate: bool, pieces: &[&[u8]]) -> Result<(), WebSocketFault> {
    let mut checker = FrameChecker::new(sender, AgreedExtensions { deflate });
    pieces.iter().try_for_each(|piece| checker.feed(piece))
}

fn from_server(bytes: &[u8]) -> Result<(), WebSocketFault> {
    verdict(FrameSender::Server, false, &[bytes])
}

#[test]
fn the_examples_of_the_rfc_are_frames() {
    // RFC 6455, section 5.7.
    let masked: &[u8] = &[0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(verdict(FrameSender::Client, false, &[masked]), Ok(()));
    assert_eq!(from_server(&[0x81, 5, 0x48, 0x65, 0x6c, 0x6c, 0x6f]), Ok(()));
    assert_eq!(from_server(&[0x01, 3, 0x48, 0x65, 0x6c, 0x80, 2, 0x6c, 0x6f]), Ok(()));
    assert_eq!(from_server(&[&[0x82, 126, 1, 0][..], &[0; 256]].concat()), Ok(()));
    let long = [&[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0][..], &[0; 65536]].concat();
    assert_eq!(from_server(&long), Ok(()));
}

macro_rules! refused {
    ($claim:ident, $bytes:expr, $fault:expr) => {
        #[test]
        fn $claim() {
            assert_eq!(from_server(&$bytes), Err($fault));
        }
    };
}

refused!(a_masked_frame_of_a_server, [0x81, 0x80, 1, 2, 3, 4], WebSocketFault::Masked);
refused!(a_reserved_bit, [0xc1, 0], WebSocketFault::Reserved);
refused!(a_reserved_opcode, [0x83, 0], WebSocketFault::Opcode(3));
refused!(a_reserved_control_opcode, [0x8b, 0], WebSocketFault::Opcode(11));
refused!(a_ping_in_parts, [0x09, 0], WebSocketFault::ControlFragmented);
refused!(a_long_ping, [0x89, 126], WebSocketFault::ControlLength);
refused!(a_length_with_room_to_spare, [0x82, 126, 0, 125], WebSocketFault::Length);
refused!(
    a_long_length_with_room_to_spare,
    [0x82, 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff],
    WebSocketFault::Length
);
refused!(a_negative_length, [0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0], WebSocketFault::LengthTooLarge);
refused!(a_part_of_nothing, [0x80, 0], WebSocketFault::Continuation);
refused!(a_part_after_the_last, [0x81, 0, 0x80, 0], WebSocketFault::Continuation);
refused!(a_message_inside_another, [0x01, 0, 0x81, 0], WebSocketFault::Interrupted);
refused!(half_a_close_code, [0x88, 1, 3], WebSocketFault::CloseLength);
refused!(a_close_code_for_nobody, [0x88, 2, 3, 0xed], WebSocketFault::CloseCode(1005));
refused!(a_close_reason_that_is_no_text, [0x88, 3, 3, 0xe8, 0xff], WebSocketFault::CloseReason);
refused!(more_after_a_close, [0x88, 0, 0x89], WebSocketFault::AfterClose);

#[test]
fn a_client_masks() {
    assert_eq!(verdict(FrameSender::Client, false, &[&[0x81, 0]]), Err(WebSocketFault::Unmasked));
    // The code is read through the mask: 1000, and then nothing any more.
    let close = [0x88, 0x82, 1, 2, 3, 4, 3 ^ 1, 0xe8 ^ 2];
    assert_eq!(verdict(FrameSender::Client, false, &[&close]), Ok(()));
    let closed = [&close[..], &[0x81]].concat();
    assert_eq!(verdict(FrameSender::Client, false, &[&closed]), Err(WebSocketFault::AfterClose));
}

#[test]
fn a_compressed_message_says_so_once() {
    let first = |bytes: &[u8]| verdict(FrameSender::Server, true, &[bytes]);
    assert_eq!(first(&[0xc1, 0]), Ok(()));
    assert_eq!(first(&[0x41, 0, 0x80, 0]), Ok(()));
    assert_eq!(first(&[0x41, 0, 0xc0, 0]), Err(WebSocketFault::Reserved));
    assert_eq!(first(&[0xc9, 0]), Err(WebSocketFault::Reserved));
    assert_eq!(first(&[0xa1, 0]), Err(WebSocketFault::Reserved));
}

#[test]
fn control_frames_come_between_the_parts_of_a_message() {
    assert_eq!(from_server(&[0x01, 1, b'a', 0x89, 0, 0x8a, 1, b'x', 0x80, 1, b'b']), Ok(()));
}

#[test]
fn a_close_frame_fits_between_frames_and_after_what_was_accepted() {
    let mut checker = FrameChecker::new(FrameSender::Server, PLAIN);
    assert!(checker.can_close());
    checker.feed(&[0x81, 2, b'h']).unwrap();
    assert!(!checker.can_close(), "inside a frame");
    checker.feed(b"i").unwrap();
    assert!(checker.can_close());
    // What is refused was not relayed, so it is not in the way.
    assert_eq!(checker.feed(&[0x81, 1, b'a', 0x83]), Err(WebSocketFault::Opcode(3)));
    assert!(checker.can_close());
    assert_eq!(checker.feed(&[0x81, 0]), Err(WebSocketFault::Opcode(3)), "a fault stays");
    assert_eq!(checker.fault(), Some(WebSocketFault::Opcode(3)));
}

#[test]
fn nobody_closes_twice() {
    let mut checker = FrameChecker::new(FrameSender::Server, PLAIN);
    checker.feed(&[0x88, 0]).unwrap();
    assert!(!checker.can_close());
}

/// Bytes that are frames often enough to get past the first one.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    let frame = (any::<bool>(), prop::sample::select(vec![0u8, 1, 2, 8, 9, 10, 3]), any::<bool>())
        .prop_flat_map(|(last, opcode, odd)| {
            let first = u8::from(last) << 7 | u8::from(odd) << 6 | opcode;
            (Just(first), prop::collection::vec(any::<u8>(), 0..140))
        })
        .prop_map(|(first, payload)| {
            let mut bytes = vec![first];
            match u8::try_from(payload.len()) {
                Ok(length @ 0..126) => bytes.push(length),
                _ => bytes.extend([126, 0, payload.len() as u8]),
            }
            bytes.extend(payload);
            bytes
        });
    prop_oneof![
        prop::collection::vec(frame, 0..6).prop_map(|frames| frames.concat()),
        prop::collection::vec(any::<u8>(), 0..64),
    ]
}

proptest! {
    /// The law: cut anywhere, the verdict is the same.
    #[test]
    fn how_a_stream_is_cut_changes_nothing(
        stream in streams(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        deflate in any::<bool>(),
        client in any::<bool>(),
    ) {
        let sender = if client { FrameSender::Client } else { FrameSender::Server };
        let whole = verdict(sender, deflate, &[&stream]);
        let each: Vec<&[u8]> = stream.chunks(1).collect();
        prop_assert_eq!(verdict(sender, deflate, &each), whole);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut rest = stream.as_slice();
        let mut taken = 0;
        for cut in cuts {
            let (piece, left) = rest.split_at(cut - taken);
            pieces.push(piece);
            (rest, taken) = (left, cut);
        }
        pieces.push(rest);
        prop_assert_eq!(verdict(sender, deflate, &pieces), whole);
    }
}

/// A client's frame, masked so that no byte of it is what it means.
fn masked(first: u8, length: &[u8], payload: &[u8]) -> Vec<u8> {
    let mask = [0xff, 0x0f, 0xf0, 0x55];
    let hidden = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
    [&[first, 0x80 | length[0]], &length[1..], &mask].concat().into_iter().chain(hidden).collect()
}

#[test]
fn a_masked_close_frame_is_read_through_its_mask() {
    let close = |payload: &[u8]| {
        let length = u8::try_from(payload.len()).unwrap();
        verdict(FrameSender::Client, false, &[&masked(0x88, &[length], payload)])
    };
    assert_eq!(close(&[3, 0xe8]), Ok(()));
    assert_eq!(close(&[&[3, 0xe8][..], b"bye"].concat()), Ok(()));
    assert_eq!(close(&[3, 0xed]), Err(WebSocketFault::CloseCode(1005)));
    assert_eq!(close(&[3, 0xe8, 0xff]), Err(WebSocketFault::CloseReason));
}

#[test]
fn a_control_frame_may_have_125_bytes() {
    assert_eq!(from_server(&[&[0x89, 125][..], &[0; 125]].concat()), Ok(()));
    assert_eq!(from_server(&[0x89, 126]), Err(WebSocketFault::ControlLength));
}

/// Where one frame ends and the next begins.
#[test]
fn a_masked_frame_ends_where_its_length_says() {
    for length in [0usize, 1, 125, 126, 65_535, 65_536, 70_000] {
        let written = match length {
            0..126 => vec![u8::try_from(length).unwrap()],
            126..65_536 => [&[126][..], &u16::try_from(length).unwrap().to_be_bytes()].concat(),
            _ => [&[127][..], &(length as u64).to_be_bytes()].concat(),
        };
        let frame = masked(0x82, &written, &vec![0; length]);
        let ping = masked(0x89, &[0], &[]);
        let unmasked = [0x89, 0x00];
        for piece in [&frame[..], &[&frame[..], &ping].concat()] {
            assert_eq!(verdict(FrameSender::Client, false, &[piece]), Ok(()), "{length}");
            let fault = verdict(FrameSender::Client, false, &[piece, &unmasked]);
            assert_eq!(fault, Err(WebSocketFault::Unmasked), "{length}");
        }
    }
}
