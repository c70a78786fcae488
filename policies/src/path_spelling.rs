//! The one spelling of a path, and why some paths have none.
//!
//! What [`crate::path`] and [`crate::path_readings`] share: escapes, and the checks
//! that a path and each of its readings must pass.

use std::fmt::Write as _;

/// Why a path or a query is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PathFault {
    #[error("it holds a backslash, which some servers read as `/`")]
    Backslash,
    #[error("it holds a control character or a space")]
    Control,
    #[error("it has a `.` or `..` segment; send the path it leads to")]
    DotSegment,
    #[error("it is escaped twice (`%25` before two hexadecimal digits); escape it once")]
    DoubleEscape,
    #[error("it has an empty segment; write one `/`, not two")]
    EmptySegment,
    #[error("its escaped bytes are not UTF-8")]
    Encoding,
    #[error("a `%` is not followed by two hexadecimal digits; write a percent sign as `%25`")]
    Escape,
    #[error("it holds `#`; a fragment is never sent, and the character is written `%23`")]
    Fragment,
    #[error(
        "some servers drop parameters, spaces or look-alikes from it and then find an empty, \
         `.` or `..` segment; send the path that is meant"
    )]
    HiddenSegment,
    #[error("it is too long")]
    Length,
    #[error("it holds a byte outside ASCII; escape it with `%`")]
    NonAscii,
    #[error("it does not start with `/`")]
    NotAbsolute,
    #[error("it has more than 1000 parameters, and servers stop reading at different ones")]
    Parameters,
    #[error("it holds `?`, which starts the query")]
    Query,
    #[error(
        "servers read it in more than {MAX_READINGS} ways; leave out what it does not need of `%2F`, \
         parameters (`;`), `+`, and spaces or dots around segments"
    )]
    Readings,
}

/// Longest path we read. Servers commonly stop at 8 KiB.
pub(crate) const MAX_PATH_BYTES: usize = 16 * 1024;

/// The most readings of a path that we judge. An npm scope has two, a parameter
/// with an escaped slash before it four.
pub(crate) const MAX_READINGS: usize = 32;

/// The canonical spelling of a path from the wire, or why it has none.
pub(crate) fn canonical(written: &[u8]) -> Result<String, PathFault> {
    if written.len() > MAX_PATH_BYTES {
        return Err(PathFault::Length);
    }
    if written.first() != Some(&b'/') {
        return Err(PathFault::NotAbsolute);
    }
    let canonical = respell(written)?;
    check_double_escapes(&canonical)?;
    check_segments(&canonical)?;
    // Escaping what must be escaped makes a path longer; the bound is on what
    // we forward, too, or reading it back would fail.
    if canonical.len() > MAX_PATH_BYTES {
        return Err(PathFault::Length);
    }
    Ok(canonical)
}

/// Gives every byte its one spelling.
fn respell(written: &[u8]) -> Result<String, PathFault> {
    let mut spelt = String::with_capacity(written.len());
    let mut non_ascii = Vec::new();
    let mut rest = written;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let escaped = byte == b'%';
        let byte = if escaped {
            let (byte, after) = escape(after).ok_or(PathFault::Escape)?;
            rest = after;
            byte
        } else {
            byte
        };
        // Bytes of one character are escaped side by side, so whatever else
        // comes next must find the bytes before it complete.
        if byte < 0x80 {
            check_utf8(&mut non_ascii)?;
        }
        match byte {
            b'\\' => return Err(PathFault::Backslash),
            b' ' if escaped => spelt.push_str("%20"),
            0..=b' ' | 0x7f => return Err(PathFault::Control),
            0x80.. if escaped => {
                non_ascii.push(byte);
                push_escape(&mut spelt, byte);
            }
            0x80.. => return Err(PathFault::NonAscii),
            b'#' if !escaped => return Err(PathFault::Fragment),
            b'?' if !escaped => return Err(PathFault::Query),
            _ if stands_for_itself(byte, escaped) => spelt.push(char::from(byte)),
            _ => push_escape(&mut spelt, byte),
        }
    }
    check_utf8(&mut non_ascii)?;
    Ok(spelt)
}

/// Whether a byte is written plainly in canonical form.
///
/// RFC 3986 lets only the unreserved characters be decoded freely. We decode the
/// delimiters that mean nothing inside a segment as well: servers do, and a rule
/// that denies `/models/x:delete` must not be passed by `x%3Adelete`. Kept apart
/// from their escapes are `/` and `;`, which divide, and `+`, which some stores
/// read as a space.
pub(crate) fn stands_for_itself(byte: u8, escaped: bool) -> bool {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => true,
        b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b',' | b':' | b'=' | b'@' => true,
        b'/' | b';' | b'+' => !escaped,
        _ => false,
    }
}

fn check_utf8(bytes: &mut Vec<u8>) -> Result<(), PathFault> {
    match std::str::from_utf8(bytes) {
        // U+0080 to U+009F control terminals as well as the ASCII ones do.
        Ok(text) if text.chars().any(char::is_control) => Err(PathFault::Control),
        Ok(_) => {
            bytes.clear();
            Ok(())
        }
        Err(_) => Err(PathFault::Encoding),
    }
}

/// A server behind a server may decode once more than we do. Looked for in the
/// canonical text, where the digits themselves can no longer hide in escapes.
pub(crate) fn check_double_escapes(canonical: &str) -> Result<(), PathFault> {
    for (at, _) in canonical.match_indices("%25") {
        let after = canonical.as_bytes().get(at + 3..).unwrap_or_default();
        if let [a, b, ..] = after
            && a.is_ascii_hexdigit()
            && b.is_ascii_hexdigit()
        {
            return Err(PathFault::DoubleEscape);
        }
    }
    Ok(())
}

/// Looks at the path as the server that divides it most finely would.
pub(crate) fn check_segments(canonical: &str) -> Result<(), PathFault> {
    let mut pieces = canonical.split('/').skip(1).flat_map(|s| s.split("%2F")).peekable();
    while let Some(piece) = pieces.next() {
        if piece.is_empty() && pieces.peek().is_some() {
            return Err(PathFault::EmptySegment);
        }
        // `/..;x/` is `/../` to servers that know path parameters.
        if piece.split(';').flat_map(|s| s.split("%3B")).any(is_dots) {
            return Err(PathFault::DotSegment);
        }
    }
    Ok(())
}

/// Whether a server could take a segment for `.` or `..`: some drop spaces
/// around it, some fold look-alikes of the dot (U+2024, U+2025, U+FF0E).
fn is_dots(segment: &str) -> bool {
    let mut rest = segment;
    let mut dots = 0;
    while !rest.is_empty() {
        rest = if let Some(rest) = rest.strip_prefix("%20") {
            rest
        } else if let Some(rest) = DOTS.iter().find_map(|dot| rest.strip_prefix(dot)) {
            dots += 1;
            rest
        } else if let Some(rest) = rest.strip_prefix("%E2%80%A5") {
            dots += 2;
            rest
        } else {
            return false;
        };
    }
    matches!(dots, 1 | 2)
}

const DOTS: [&str; 3] = [".", "%E2%80%A4", "%EF%BC%8E"];

/// Reads the two digits after a `%`.
pub(crate) fn escape(after: &[u8]) -> Option<(u8, &[u8])> {
    let ([high, low], rest) = after.split_first_chunk::<2>()?;
    let digit = |b: u8| char::from(b).to_digit(16);
    let byte = u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?;
    Some((byte, rest))
}

pub(crate) fn push_escape(spelt: &mut String, byte: u8) {
    write!(spelt, "%{byte:02X}").expect("writing to a string cannot fail");
}
