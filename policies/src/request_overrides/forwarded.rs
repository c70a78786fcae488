//! `Forwarded` (RFC 7239): `for=192.0.2.1;host=example.com;proto=https, for=...`.

use super::{OverrideError, OverrideReader};
use crate::quoted_input::QuotedInput;

/// Holds every `host` and `proto` in it to the connection's.
///
/// Some servers divide at `,` and `;` inside quotes and some do not, so a quoted
/// value may hold neither, nor an escape that only some of them undo.
pub(super) fn read(text: &str, reader: &OverrideReader<'_>) -> Result<(), OverrideError> {
    let ambiguous = || {
        let why = "servers do not read the header `Forwarded` alike";
        OverrideError::Ambiguous(format!("{why}: `{}`", QuotedInput::of(text)))
    };
    let name = QuotedInput::of("Forwarded");
    for pair in text.split([',', ';']).map(|pair| pair.trim_matches([' ', '\t'])) {
        // Empty members are permitted in lists.
        if pair.is_empty() {
            continue;
        }
        let (parameter, value) = pair.split_once('=').ok_or_else(ambiguous)?;
        let value = match value.strip_prefix('"') {
            Some(rest) => rest.strip_suffix('"').ok_or_else(ambiguous)?,
            None => value,
        };
        if value.contains(['"', '\\', '=']) || parameter.contains([' ', '\t', '"']) {
            return Err(ambiguous());
        }
        if parameter.eq_ignore_ascii_case("host") {
            reader.host(value)?;
        } else if parameter.eq_ignore_ascii_case("proto") {
            reader.scheme(&name, value)?;
        }
    }
    Ok(())
}
