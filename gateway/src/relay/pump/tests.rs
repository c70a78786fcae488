use std::future::poll_fn;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// Sends `wire` in pieces through a pump; what comes out, and what was counted.
fn pumped(
    wire: &[u8],
    piece: usize,
    framing: Framing,
    chunked: bool,
    limit: usize,
) -> (Result<(), PumpError>, Vec<u8>, usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (mut sender, mut from) = tokio::io::duplex(piece);
        let (mut to, mut receiver) = tokio::io::duplex(piece);
        let wire = wire.to_vec();
        let send = async move {
            // The pump may stop listening.
            drop(sender.write_all(&wire).await);
        };
        let mut counted = 0;
        let pump = async {
            let mut pump = BodyPump::new(framing, chunked, Vec::new());
            pump.out.extend_from_slice(b"HEAD");
            let mut inbox = Inbox::new();
            let mut count = |bytes: usize| {
                if counted + bytes > limit {
                    return Err(Refusal::BodyTooLarge { limit: limit as u64 });
                }
                counted += bytes;
                Ok(())
            };
            let done =
                poll_fn(|cx| pump.poll(cx, &mut from, &mut inbox, &mut to, &mut count)).await;
            drop((to, from));
            done
        };
        let receive = async {
            let mut out = Vec::new();
            receiver.read_to_end(&mut out).await.unwrap();
            out
        };
        let (_, done, out) = tokio::join!(send, pump, receive);
        (done, out, counted)
    })
}

fn chunks_of(body: &[u8], size: usize) -> Vec<u8> {
    let mut wire = Vec::new();
    for chunk in body.chunks(size) {
        chunked::write_chunk(chunk, &mut wire);
    }
    chunked::write_end(&Fields::default(), &mut wire);
    wire
}

/// The body in a chunked message.
fn unchunked(mut wire: &[u8]) -> Vec<u8> {
    let mut decoder = ChunkDecoder::new();
    let mut body = Vec::new();
    while !decoder.is_done() {
        let step = decoder.step(wire).unwrap();
        body.extend_from_slice(&wire[step.framing..step.framing + step.data]);
        wire = &wire[step.framing + step.data..];
    }
    assert!(wire.is_empty());
    body
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the framing on either side and however the pieces fall, the same
    /// body arrives behind the head, and every byte of it is counted once.
    #[test]
    fn a_body_arrives_as_it_was_sent(
        body in prop::collection::vec(any::<u8>(), 0..40_000),
        piece in 1usize..5_000,
        size in 1usize..3_000,
        (arrives, chunked) in prop::sample::select(vec![
            ("chunked", true), ("chunked", false),
            ("length", true), ("length", false),
            ("until close", true), ("until close", false),
        ]),
    ) {
        let (wire, framing) = match arrives {
            "chunked" => (chunks_of(&body, size), Framing::Chunked),
            "length" if body.is_empty() => (Vec::new(), Framing::Empty),
            "length" => (body.clone(), Framing::Length(body.len() as u64)),
            _ => (body.clone(), Framing::UntilClose),
        };
        let (done, out, counted) = pumped(&wire, piece, framing, chunked, usize::MAX);
        prop_assert!(done.is_ok(), "{done:?}");
        let sent = out.strip_prefix(b"HEAD").expect("the head comes first");
        let arrived = match chunked && framing != Framing::Empty {
            true => unchunked(sent),
            false => sent.to_vec(),
        };
        prop_assert_eq!(counted, body.len());
        prop_assert!(arrived == body, "{} bytes became {}", body.len(), arrived.len());
    }

    /// A byte that would exceed the limit is not sent, nor is any after it.
    #[test]
    fn nothing_is_sent_beyond_the_limit(
        length in 1usize..20_000, limit in 0usize..20_000, piece in 1usize..5_000, chunked: bool,
    ) {
        let framing = Framing::Length(length as u64);
        let (done, out, counted) = pumped(&vec![7; length], piece, framing, chunked, limit);
        let sent = out.iter().filter(|byte| **byte == 7).count();
        prop_assert!(sent <= counted && counted <= limit);
        prop_assert_eq!(done.is_ok(), length <= limit);
    }
}

#[test]
fn a_body_that_ends_too_early_is_not_ended_for_it() {
    for (wire, framing) in [
        (&b"hel"[..], Framing::Length(5)),
        (b"5\r\nhel", Framing::Chunked),
        (b"5\r\nhello\r\n", Framing::Chunked),
    ] {
        let (done, out, _) = pumped(wire, 100, framing, true, usize::MAX);
        assert!(matches!(done, Err(PumpError::Truncated)), "{done:?}");
        assert!(!out.ends_with(b"0\r\n\r\n"));
    }
}

#[test]
fn what_follows_a_body_is_left_in_the_inbox() {
    let (done, out, counted) = pumped(b"hello, next", 100, Framing::Length(5), false, usize::MAX);
    assert!(done.is_ok());
    assert_eq!((out.as_slice(), counted), (&b"HEADhello"[..], 5));
}

#[test]
fn trailers_are_bytes_that_leave_too() {
    let wire = b"5\r\nhello\r\n0\r\nX-Out: 12345\r\n\r\n";
    let (done, out, counted) = pumped(wire, 100, Framing::Chunked, true, usize::MAX);
    assert!(done.is_ok());
    assert!(out.ends_with(b"0\r\nX-Out: 12345\r\n\r\n"));
    assert_eq!(counted, 5 + 14);
    let (done, out, _) = pumped(wire, 100, Framing::Chunked, true, 10);
    assert!(matches!(done, Err(PumpError::Refused(_))), "{done:?}");
    assert!(!out.ends_with(b"\r\n\r\n"));
}
