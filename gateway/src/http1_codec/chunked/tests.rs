use proptest::prelude::*;

use super::*;

/// Decodes `input` in pieces of `piece` bytes: the data, and what was left over.
fn decode(input: &[u8], piece: usize) -> Result<(Vec<u8>, usize), ChunkFault> {
    let mut decoder = ChunkDecoder::new();
    let (mut data, mut used) = (Vec::new(), 0);
    let mut known = 0;
    while !decoder.is_done() {
        if used == known {
            if known == input.len() {
                break;
            }
            known = input.len().min(known + piece);
        }
        let step = decoder.step(&input[used..known])?;
        data.extend_from_slice(&input[used + step.framing..used + step.framing + step.data]);
        used += step.framing + step.data;
    }
    assert!(decoder.is_done() || used == input.len(), "all of an unfinished body is taken");
    Ok((data, input.len() - used))
}

macro_rules! refused {
    ($claim:ident, $input:expr, $fault:expr) => {
        #[test]
        fn $claim() {
            for piece in [1, 3, 1000] {
                assert_eq!(decode($input, piece).map(|(data, _)| data), Err($fault), "{piece}");
            }
        }
    };
}

refused!(no_size, b"\r\n", ChunkFault::Size);
refused!(a_size_with_a_sign, b"+5\r\nhello\r\n", ChunkFault::Size);
refused!(a_size_with_a_prefix, b"0x5\r\nhello\r\n", ChunkFault::Size);
refused!(a_size_with_a_space_before, b" 5\r\nhello\r\n", ChunkFault::Size);
refused!(a_size_with_a_space_after, b"5 \r\nhello\r\n", ChunkFault::Size);
refused!(a_size_with_an_underscore, b"1_0\r\nhello\r\n", ChunkFault::Size);
refused!(a_size_that_overflows, b"ffffffffffffffff1\r\n", ChunkFault::Size);
refused!(a_size_ended_by_a_line_feed, b"5\nhello\r\n", ChunkFault::Size);
refused!(a_size_ended_by_a_return, b"5\rhello\r\n", ChunkFault::Size);
refused!(data_longer_than_its_size, b"5\r\nhello!\r\n", ChunkFault::DataEnd);
refused!(data_ended_by_a_line_feed, b"5\r\nhello\n0\r\n\r\n", ChunkFault::DataEnd);
refused!(an_extension_with_a_line_feed, b"5;a\nhello\r\n", ChunkFault::Extension);
refused!(
    an_endless_extension,
    &[b"5;".as_slice(), &[b'a'; MAX_EXTENSION_LINE_BYTES + 1]].concat(),
    ChunkFault::Extension
);
refused!(
    extensions_that_outweigh_the_data,
    &b"1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n".repeat(400),
    ChunkFault::Extension
);
refused!(
    endless_trailers,
    &[b"0\r\n".as_slice(), &b"a: b\r\n".repeat(2000)].concat(),
    ChunkFault::Trailers
);
refused!(
    a_trailer_with_a_bare_line_feed,
    b"0\r\na: b\n\r\n",
    ChunkFault::Field(FieldFault::LineEnd)
);
refused!(a_folded_trailer, b"0\r\na: b\r\n c\r\n\r\n", ChunkFault::Field(FieldFault::Folded));

#[test]
fn what_follows_the_end_is_left_alone() {
    let input = b"5;x=y\r\nhello\r\n6\r\n world\r\n0\r\n\r\nGET /next";
    for piece in [1, 2, 7, 1000] {
        let (data, left) = decode(input, piece).unwrap();
        assert_eq!((data.as_slice(), left <= 9), (b"hello world".as_slice(), true), "{piece}");
    }
    assert_eq!(decode(input, 1000).unwrap().1, 9);
}

#[test]
fn trailers_survive_in_their_order() {
    let mut decoder = ChunkDecoder::new();
    decoder.step(b"0\r\nGrpc-Status: 0\r\nx-b: 1\r\n\r\n").unwrap();
    assert!(decoder.is_done());
    let mut out = Vec::new();
    write_end(decoder.trailers(), &mut out);
    assert_eq!(out, b"0\r\nGrpc-Status: 0\r\nx-b: 1\r\n\r\n");
}

/// The straightforward way, for a whole body without extensions and trailers.
fn naive(input: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut rest, mut data) = (input, Vec::new());
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let digits = std::str::from_utf8(&rest[..end]).ok()?;
        if digits.is_empty() || digits.len() > 15 || !digits.bytes().all(|b| b.is_ascii_hexdigit())
        {
            return None;
        }
        let size = usize::from_str_radix(digits, 16).ok()?;
        rest = &rest[end + 2..];
        let chunk = rest.get(..size)?;
        data.extend_from_slice(chunk);
        rest = rest.get(size..)?.strip_prefix(b"\r\n")?;
        if size == 0 {
            return Some((data, rest.len()));
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_reads_back(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..80), 0..8), piece in 1usize..40) {
        let mut out = Vec::new();
        for chunk in &chunks {
            write_chunk(chunk, &mut out);
        }
        write_end(&Fields::default(), &mut out);
        prop_assert_eq!(decode(&out, piece).unwrap(), (chunks.concat(), 0));
    }

    /// Nothing that is hostile gets a reading the plain way would not give it.
    #[test]
    fn it_accepts_nothing_the_plain_way_refuses(input in "[0-9a-f;\r\n x]{0,60}", piece in 1usize..70) {
        let mut decoder = ChunkDecoder::new();
        let (mut data, mut used) = (Vec::new(), 0);
        let ok = loop {
            let known = input.len().min(used + piece);
            match decoder.step(&input.as_bytes()[used..known]) {
                Err(_) => break false,
                Ok(step) => {
                    data.extend_from_slice(&input.as_bytes()[used + step.framing..][..step.data]);
                    used += step.framing + step.data;
                }
            }
            if decoder.is_done() || used == input.len() {
                break decoder.is_done();
            }
        };
        if ok && decoder.trailers().iter().next().is_none() && !input[..used].contains(';') {
            prop_assert_eq!(naive(&input.as_bytes()[..used]), Some((data, 0)));
        }
    }

    #[test]
    fn it_never_panics(input in prop::collection::vec(any::<u8>(), 0..200), piece in 1usize..50) {
        drop(decode(&input, piece));
    }
}

#[test]
fn what_stands_around_a_chunk_is_counted_as_it_is_written() {
    for length in [1, 9, 10, 15, 16, 17, 255, 256, 4095, 4096, 65_535, 65_536] {
        let mut out = Vec::new();
        write_chunk(&vec![b'x'; length], &mut out);
        assert_eq!(around(length), out.len() - length, "{length}");
    }
    assert_eq!(around(0), END.len());
}

#[test]
fn an_extension_may_be_as_long_as_it_may_be() {
    let with = |length: usize| {
        let extension = "a".repeat(length);
        decode(format!("5;{extension}\r\nhello\r\n0\r\n\r\n").as_bytes(), 1000)
    };
    assert!(with(MAX_EXTENSION_LINE_BYTES).is_ok());
    assert_eq!(with(MAX_EXTENSION_LINE_BYTES + 1), Err(ChunkFault::Extension));
}

#[test]
fn extensions_may_outweigh_the_data_by_so_much() {
    // Each chunk brings one byte of data, which earns one byte of extension.
    let with = |last: usize| {
        let chunk = |extension: usize| format!("1;{}\r\nx\r\n", "a".repeat(extension));
        let each = 129;
        let chunks = usize::try_from(MAX_EXTENSION_BYTES).unwrap() / (each - 1) - 1;
        let body = chunk(each).repeat(chunks) + &chunk(last) + "0\r\n\r\n";
        decode(body.as_bytes(), 1000)
    };
    assert!(with(128).is_ok());
    assert_eq!(with(129), Err(ChunkFault::Extension));
    assert_eq!(with(140), Err(ChunkFault::Extension));
}

#[test]
fn trailers_may_be_as_long_as_they_may_be() {
    let with = |length: usize| {
        let value = "a".repeat(length - "x: \r\n\r\n".len());
        decode(format!("0\r\nx: {value}\r\n\r\n").as_bytes(), 1000)
    };
    assert!(with(MAX_TRAILER_BYTES).is_ok());
    assert_eq!(with(MAX_TRAILER_BYTES + 1), Err(ChunkFault::Trailers));
}
