//! Where a body ends, in the one reading both sides must share.
//!
//! Smuggling lives on two readings of this question, so anything that permits a
//! second one is refused: a length beside a coding, two lengths (equal ones too),
//! a length with a sign, a coding that is not exactly `chunked`.

use crate::http_version::HttpVersion;
use crate::http1_codec::fields::{Fields, KnownField};

/// How a body is delimited.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Framing {
    Chunked,
    /// There is none.
    Empty,
    Length(u64),
    /// Until the connection ends; only a response may.
    UntilClose,
}

/// Why a body's end is in doubt.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum FramingFault {
    #[error("it has both a Content-Length and a Transfer-Encoding")]
    Both,
    #[error("its Transfer-Encoding is not `chunked`")]
    Coding,
    #[error("its Content-Length is not a number")]
    Length,
    #[error("it is HTTP/1.0 and has a Transfer-Encoding")]
    OldCoding,
    #[error("it has two of the headers that say where its body ends")]
    Two,
}

/// What the fields say, before the message's kind is considered.
fn written(fields: &Fields, version: HttpVersion) -> Result<Option<Framing>, FramingFault> {
    let coding = only(fields, KnownField::TransferEncoding)?;
    let length = only(fields, KnownField::ContentLength)?;
    match (coding, length) {
        (Some(_), Some(_)) => Err(FramingFault::Both),
        (Some(_), None) if version == HttpVersion::Http10 => Err(FramingFault::OldCoding),
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => {
            Ok(Some(Framing::Chunked))
        }
        (Some(_), None) => Err(FramingFault::Coding),
        (None, Some(length)) => Ok(Some(Framing::Length(read_length(length)?))),
        (None, None) => Ok(None),
    }
}

pub(crate) fn of_request(fields: &Fields, version: HttpVersion) -> Result<Framing, FramingFault> {
    Ok(match written(fields, version)? {
        None | Some(Framing::Length(0)) => Framing::Empty,
        Some(framing) => framing,
    })
}

/// `bodiless` for the answer to a HEAD.
pub(crate) fn of_response(
    fields: &Fields,
    version: HttpVersion,
    status: u16,
    bodiless: bool,
) -> Result<Framing, FramingFault> {
    let written = written(fields, version)?;
    if bodiless || matches!(status, 100..200 | 204 | 304) {
        return Ok(Framing::Empty);
    }
    Ok(match written {
        None => Framing::UntilClose,
        Some(Framing::Length(0)) => Framing::Empty,
        Some(framing) => framing,
    })
}

fn only(fields: &Fields, known: KnownField) -> Result<Option<&[u8]>, FramingFault> {
    let mut values = fields.of(known);
    let first = values.next();
    if values.next().is_some() {
        return Err(FramingFault::Two);
    }
    Ok(first)
}

/// Digits only, and few enough to count: `+5`, `5, 5` and `0x5` are numbers to
/// somebody.
fn read_length(value: &[u8]) -> Result<u64, FramingFault> {
    if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
        return Err(FramingFault::Length);
    }
    Ok(value.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(block: &str) -> Result<Framing, FramingFault> {
        let mut fields = Fields::default();
        fields.read(block.as_bytes(), 16).unwrap();
        of_request(&fields, HttpVersion::Http11)
    }

    macro_rules! framing {
        ($claim:ident, $block:expr, $expected:expr) => {
            #[test]
            fn $claim() {
                assert_eq!(request($block), $expected);
            }
        };
    }

    framing!(nothing_said_means_no_body, "", Ok(Framing::Empty));
    framing!(a_length, "Content-Length: 5\r\n", Ok(Framing::Length(5)));
    framing!(a_length_of_zero, "Content-Length: 0\r\n", Ok(Framing::Empty));
    framing!(chunked, "Transfer-Encoding: Chunked\r\n", Ok(Framing::Chunked));
    framing!(
        a_length_beside_a_coding,
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        Err(FramingFault::Both)
    );
    framing!(
        two_lengths_that_differ,
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        Err(FramingFault::Two)
    );
    framing!(
        two_lengths_that_agree,
        "Content-Length: 5\r\ncontent-length: 5\r\n",
        Err(FramingFault::Two)
    );
    framing!(two_lengths_in_one, "Content-Length: 5, 5\r\n", Err(FramingFault::Length));
    framing!(a_length_with_a_sign, "Content-Length: +5\r\n", Err(FramingFault::Length));
    framing!(a_negative_length, "Content-Length: -5\r\n", Err(FramingFault::Length));
    framing!(an_empty_length, "Content-Length:\r\n", Err(FramingFault::Length));
    framing!(
        a_length_that_overflows,
        "Content-Length: 18446744073709551617\r\n",
        Err(FramingFault::Length)
    );
    framing!(
        the_longest_length,
        "Content-Length: 999999999999999999\r\n",
        Ok(Framing::Length(999_999_999_999_999_999))
    );
    framing!(
        a_length_too_long,
        "Content-Length: 0000000000000000005\r\n",
        Err(FramingFault::Length)
    );
    framing!(another_coding, "Transfer-Encoding: xchunked\r\n", Err(FramingFault::Coding));
    framing!(a_second_coding, "Transfer-Encoding: gzip, chunked\r\n", Err(FramingFault::Coding));
    framing!(chunked_twice, "Transfer-Encoding: chunked, chunked\r\n", Err(FramingFault::Coding));
    framing!(
        two_coding_headers,
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        Err(FramingFault::Two)
    );
    #[test]
    fn http_1_0_has_no_codings() {
        let mut fields = Fields::default();
        fields.read(b"Transfer-Encoding: chunked\r\n", 16).unwrap();
        assert_eq!(of_request(&fields, HttpVersion::Http10), Err(FramingFault::OldCoding));
    }

    #[test]
    fn some_responses_have_no_body_whatever_they_say() {
        let mut fields = Fields::default();
        fields.read(b"Content-Length: 5\r\n", 16).unwrap();
        let of = |status, head| of_response(&fields, HttpVersion::Http11, status, head);
        assert_eq!(of(200, true), Ok(Framing::Empty));
        assert_eq!(of(204, false), Ok(Framing::Empty));
        assert_eq!(of(304, false), Ok(Framing::Empty));
        assert_eq!(of(200, false), Ok(Framing::Length(5)));
    }

    #[test]
    fn a_response_without_a_length_lasts_until_the_end() {
        let of = of_response(&Fields::default(), HttpVersion::Http11, 200, false);
        assert_eq!(of, Ok(Framing::UntilClose));
    }
}
