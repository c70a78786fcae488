//! How servers read one parameter: a fixed set of readings of its name and value.
//!
//! | reader | reads |
//! |---|---|
//! | PHP | `a[]` and `a[0]` as `a`; ` a` as `a`; `.`, space and a lone `[` as `_` |
//! | Rack, Rails, Node's `qs` | `a[]` and `[a]` as `a` |
//! | ASP.NET, many Java frameworks | names without case |
//! | classic ASP, IIS | `%u0061` as `a`; a `%` that escapes nothing as nothing |
//! | programs in C | `a%00b` as `a` |
//! | a server behind a server | escapes decoded twice |
//!
//! Names are compared *folded*: in lower case, with `_` for what PHP reads so.

use std::borrow::Cow;

use super::decoded;
use crate::path_spelling::escape;

/// The place in `names`, which are folded, of one that `name` could be read as.
pub(super) fn position<'n>(name: &str, mut names: impl Iterator<Item = &'n str>) -> Option<usize> {
    if is_plain(name) {
        return names.position(|known| folds_to(name, known));
    }
    let readings = of_name(name);
    names.position(|known| readings.iter().any(|reading| reading == known))
}

/// The readings of a value, as far as a deny is concerned.
pub(super) fn of_value(value: &str) -> impl Iterator<Item = Cow<'_, [u8]>> {
    let plain = !value.contains(['%', '+']);
    let others = if plain { Vec::new() } else { all_readings(value) };
    let itself = plain.then_some(Cow::Borrowed(value.as_bytes()));
    itself.into_iter().chain(others.into_iter().map(|text| Cow::Owned(text.into_bytes())))
}

/// The readings of a value that an allow has to fit: decoded, decoded once more,
/// and up to a NUL.
pub(super) fn of_plain_value(value: &str) -> impl Iterator<Item = Cow<'_, [u8]>> {
    let once = decoded(value);
    let twice = decoded(&once).into_owned();
    let cut = up_to_nul(&once).map(str::to_owned);
    let twice = value.contains(['%', '+']).then_some(Cow::Owned(twice.into_bytes()));
    let cut = cut.map(|cut| Cow::Owned(cut.into_bytes()));
    [into_bytes(once)].into_iter().chain(twice).chain(cut)
}

fn into_bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// A name as it stands in a rule, in the form that readings are compared with.
pub(super) fn folded_key(written: &str) -> String {
    folded(base(written.trim()))
}

/// Without escapes, spaces and brackets there is one reading.
fn is_plain(name: &str) -> bool {
    !name.contains(['%', '+', '['])
}

/// Whether a plain name folds to `known`, without making the folded name.
fn folds_to(name: &str, known: &str) -> bool {
    name.len() == known.len() && name.chars().map(fold).eq(known.chars())
}

/// Every folded reading of a name.
fn of_name(name: &str) -> Vec<String> {
    let mut readings = Vec::new();
    for text in all_readings(name) {
        readings.push(folded(base(&text)));
        // PHP, where the bracket is not closed.
        readings.push(folded(&text));
    }
    readings
}

/// Decoded once and twice, strictly and leniently; each whole, up to a NUL, and
/// without what cannot be seen.
fn all_readings(written: &str) -> Vec<String> {
    let strict = decoded(written).into_owned();
    let lenient = leniently_decoded(written);
    let decodings = [
        decoded(&strict).into_owned(),
        leniently_decoded(&lenient),
        leniently_decoded(&strict),
        strict,
        lenient,
    ];
    let mut readings = Vec::new();
    for text in decodings {
        if let Some(cut) = up_to_nul(&text) {
            readings.push(cut.trim().to_owned());
        }
        if text.contains(is_dropped_by_servers) {
            let seen: String = text.chars().filter(|c| !is_dropped_by_servers(*c)).collect();
            readings.push(seen.trim().to_owned());
        }
        let trimmed = text.trim();
        if trimmed.len() != text.len() {
            readings.push(trimmed.to_owned());
        }
        readings.push(text);
    }
    readings
}

/// What comes before the brackets, or stands in the first if nothing does.
fn base(name: &str) -> &str {
    match name.strip_prefix('[') {
        Some(rest) => rest.split([']', '[']).next().unwrap_or_default(),
        None => name.split('[').next().unwrap_or_default(),
    }
}

fn folded(name: &str) -> String {
    name.chars().map(fold).collect()
}

fn fold(c: char) -> char {
    match c {
        ' ' | '.' | '+' | '[' => '_',
        c if c.is_ascii() => c.to_ascii_lowercase(),
        // Through capitals, since some letters have only those in common.
        c => {
            let capital = c.to_uppercase().next().unwrap_or(c);
            capital.to_lowercase().next().unwrap_or(capital)
        }
    }
}

fn up_to_nul(text: &str) -> Option<&str> {
    text.split_once('\0').map(|(before, _)| before)
}

/// Control characters and a byte order mark.
fn is_dropped_by_servers(c: char) -> bool {
    c.is_control() || c == '\u{feff}' || c == '\u{200b}'
}

/// As [`decoded`], with `%u0061` for `a`, and without a `%` that escapes nothing.
fn leniently_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                if let Some((c, after)) = wide_escape(after) {
                    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                    rest = after;
                } else if let Some((byte, after)) = escape(after) {
                    bytes.push(byte);
                    rest = after;
                }
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads the `u` and the four digits after a `%`.
fn wide_escape(after: &[u8]) -> Option<(char, &[u8])> {
    let (b'u' | b'U', digits) = after.split_first()? else { return None };
    let (high, rest) = escape(digits)?;
    let (low, rest) = escape(rest)?;
    Some((char::from_u32(u32::from(high) << 8 | u32::from(low))?, rest))
}
