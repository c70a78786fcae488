//! Any bytes as a head or a body: one reading, however they arrive.

use crate::fuzz_input::piece_size;
use crate::http_version::HttpVersion;
use crate::http1_codec::chunked::{self, ChunkDecoder, ChunkFault};
use crate::http1_codec::fields::{Fields, tokens};
use crate::http1_codec::framing::{self, Framing};
use crate::http1_codec::head::{self, HeadFault, RequestHead, ResponseHead};

const MAX_FIELDS: usize = 64;

/// A request head ends in the same place however it arrives; what is accepted
/// is read alike by another strict parser, and its body has one possible end.
pub fn http1_request_head(input: &[u8]) {
    let (piece, bytes) = piece_size(input);
    let Ok(Some(end)) = head_end(bytes, piece) else { return };
    let written = bytes.get(..end).unwrap_or_default();
    let mut ours = RequestHead::default();
    if ours.read(written, MAX_FIELDS).is_err() {
        return;
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut other = httparse::Request::new(&mut fields);
    assert_eq!(other.parse(written), Ok(httparse::Status::Complete(end)));
    assert_eq!(other.method.map(str::as_bytes), Some(ours.method()));
    assert_eq!(other.path.map(str::as_bytes), Some(ours.target()));
    assert_eq!(other.version, Some(minor(ours.version)));
    assert_same_fields(other.headers, &ours.fields);

    if let Ok(framing) = framing::of_request(&ours.fields, ours.version) {
        assert_one_end(other.headers, ours.version, framing);
        assert_ne!(framing, Framing::UntilClose, "a request cannot end with its connection");
    }
}

/// The same for the head of a response.
pub fn http1_response_head(input: &[u8]) {
    let (piece, bytes) = piece_size(input);
    let Ok(Some(end)) = head_end(bytes, piece) else { return };
    let written = bytes.get(..end).unwrap_or_default();
    let mut ours = ResponseHead::default();
    if ours.read(written, MAX_FIELDS).is_err() {
        return;
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut other = httparse::Response::new(&mut fields);
    assert_eq!(other.parse(written), Ok(httparse::Status::Complete(end)));
    assert_eq!(other.code, Some(ours.status));
    assert_eq!(other.version, Some(minor(ours.version)));
    assert_same_fields(other.headers, &ours.fields);
    assert!(!ours.reason().iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));

    for answers_head in [false, true] {
        let framing = framing::of_response(&ours.fields, ours.version, ours.status, answers_head);
        let Ok(framing) = framing else { continue };
        if answers_head || matches!(ours.status, 100..200 | 204 | 304) {
            assert_eq!(framing, Framing::Empty);
        } else {
            assert_one_end(other.headers, ours.version, framing);
        }
    }
}

/// A chunked body decodes to the same whether it arrives whole or in pieces, and
/// what we write of it reads back.
pub fn http1_chunked_body(input: &[u8]) {
    let (piece, bytes) = piece_size(input);
    let whole = decode(bytes, bytes.len().max(1));
    assert_eq!(decode(bytes, piece), whole, "in pieces of {piece}");

    let (Ok(read), data) = whole else { return };
    let Some(read) = read else { return };
    assert!(read.used <= bytes.len());
    let mut written = Vec::new();
    for chunk in data.chunks(piece) {
        chunked::write_chunk(chunk, &mut written);
    }
    let mut fields = Fields::default();
    fields.read(&read.trailers, MAX_FIELDS).expect("trailers that were read are read again");
    chunked::write_end(&fields, &mut written);
    let (again, data_again) = decode(&written, written.len());
    let again = again.expect("what we write is well-formed").expect("and whole");
    assert_eq!((again.used, data_again), (written.len(), data));
}

/// Finds the end of a head that arrives in pieces, and checks that it is where
/// it is when all of it is there at once.
fn head_end(bytes: &[u8], piece: usize) -> Result<Option<usize>, HeadFault> {
    let whole = head::end(bytes, 0);
    let (mut seen, mut found) = (0, Ok(None));
    while seen < bytes.len() && found == Ok(None) {
        let arrived = bytes.len().min(seen + piece);
        found = head::end(bytes.get(..arrived).unwrap_or_default(), seen);
        seen = arrived;
    }
    assert_eq!(found, whole, "in pieces of {piece}");
    whole
}

fn minor(version: HttpVersion) -> u8 {
    match version {
        HttpVersion::Http10 => 0,
        _ => 1,
    }
}

/// Every field of ours is one of theirs, in their order; what we left out is for
/// one connection only, ours to say, or a control field under another spelling.
fn assert_same_fields(theirs: &[httparse::Header<'_>], ours: &Fields) {
    let listed = theirs.iter().filter(|field| field.name.eq_ignore_ascii_case("connection"));
    let nominated: Vec<&[u8]> = listed.flat_map(|field| tokens(field.value)).collect();
    let may_be_left_out = |name: &[u8]| {
        nominated.iter().any(|option| option.eq_ignore_ascii_case(name))
            || ONE_HOP.iter().any(|hop| name.eq_ignore_ascii_case(hop.as_bytes()))
            || policies::is_gateway_field(name)
            || policies::misspelt_control_field(name).is_some()
    };
    let mut ours = ours.iter().map(|(_, name, value)| (name, value)).peekable();
    for field in theirs {
        let theirs = (field.name.as_bytes(), field.value);
        if ours.next_if_eq(&theirs).is_none() {
            assert!(may_be_left_out(theirs.0), "{} is left out", field.name);
        }
    }
    assert_eq!(ours.next(), None, "we read a field that is not there");
}

const ONE_HOP: [&str; 5] = [
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
];

/// What was accepted says once, and plainly, where the body ends.
fn assert_one_end(fields: &[httparse::Header<'_>], version: HttpVersion, framing: Framing) {
    let values = |name: &str| -> Vec<&[u8]> {
        let named = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        named.map(|field| field.value).collect()
    };
    let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
    let expected = match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => vec![Framing::Empty, Framing::UntilClose],
        ([], [coding]) => {
            assert!(coding.eq_ignore_ascii_case(b"chunked") && version == HttpVersion::Http11);
            vec![Framing::Chunked]
        }
        ([length], []) => {
            assert!(!length.is_empty() && length.iter().all(u8::is_ascii_digit));
            let length = std::str::from_utf8(length).expect("digits").parse().expect("a length");
            vec![if length == 0 { Framing::Empty } else { Framing::Length(length) }]
        }
        _ => panic!("two ends were accepted: {lengths:?} {codings:?}"),
    };
    assert!(expected.contains(&framing), "{framing:?}, not one of {expected:?}");
}

/// A body that was read to its end.
#[derive(Debug, Eq, PartialEq)]
struct Complete {
    /// Bytes of input that belong to the body.
    used: usize,
    /// Its trailers as lines.
    trailers: Vec<u8>,
}

/// Decodes `input`, which arrives in pieces: its end if it has one, and the data.
fn decode(input: &[u8], piece: usize) -> (Result<Option<Complete>, ChunkFault>, Vec<u8>) {
    let mut decoder = ChunkDecoder::new();
    let (mut data, mut used, mut arrived) = (Vec::new(), 0, 0);
    while !decoder.is_done() {
        if used == arrived {
            if arrived == input.len() {
                return (Ok(None), data);
            }
            arrived = input.len().min(arrived + piece);
        }
        let step = match decoder.step(input.get(used..arrived).unwrap_or_default()) {
            Ok(step) => step,
            Err(fault) => return (Err(fault), data),
        };
        let start = used + step.framing;
        used = start + step.data;
        data.extend_from_slice(input.get(start..used).expect("only what arrived is taken"));
    }
    let mut trailers = Vec::new();
    for (_, name, value) in decoder.trailers().iter() {
        trailers.extend_from_slice(&[name, b": ", value, b"\r\n"].concat());
    }
    (Ok(Some(Complete { used, trailers })), data)
}
