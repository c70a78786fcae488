//! Paths without letter case and trailing slash, for comparison with denies.
//!
//! Many servers take `/Gists` and `/gists/` for `/gists`. An allow may insist on
//! the exact path: at worst it refuses too much. A deny that did could be evaded
//! by anyone who knows the server. So a deny compares without case, and compares
//! each reading both as it is and without a slash at its end.

use crate::path_readings::respell_text;

/// One reading of a path, in the forms that a deny is compared with.
pub(crate) struct Folded {
    lower: String,
}

impl Folded {
    pub(crate) fn of(reading: &str) -> Self {
        Self { lower: lower(reading) }
    }

    pub(crate) fn forms(&self) -> impl Iterator<Item = &str> {
        let bare = self.lower.strip_suffix('/').filter(|bare| !bare.is_empty());
        std::iter::once(self.lower.as_str()).chain(bare)
    }
}

/// A canonical path or pattern without letter case, also that of letters that
/// stand in it as escapes. By way of capitals, because some letters (`ſ`, `ı`)
/// have one that is ASCII.
pub(crate) fn lower(text: &str) -> String {
    let beyond_ascii = |pair: &[u8]| matches!(pair, [b'%', high] if *high >= b'8');
    if !text.as_bytes().windows(2).any(beyond_ascii) {
        return text.to_ascii_lowercase();
    }
    let without_case = |plain: &str| -> String {
        plain.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
    };
    respell_text(text, without_case).to_ascii_lowercase()
}
