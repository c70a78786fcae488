//! Paths as a deny must see them.
//!
//! Many servers take `/Gists`, `/gists/` and `/gists;x=1` for `/gists`. An allow
//! may insist on the exact path: at worst it refuses too much. A deny that does
//! can be dodged by anyone who knows the server. So a deny compares without
//! case, and besides the path as it is, the path without parameters and without
//! a slash at its end.

use crate::path::RequestPath;

/// One path in the forms that a deny is held against.
pub(crate) struct Folded {
    lower: String,
    bare: Option<String>,
}

impl Folded {
    pub(crate) fn of(path: &RequestPath) -> Self {
        let lower = path.as_str().to_ascii_lowercase();
        let bare = if lower.contains(';') || (lower.len() > 1 && lower.ends_with('/')) {
            let plain = |segment: &str| segment.split(';').next().unwrap_or_default().to_owned();
            let segments: Vec<String> = lower.split('/').map(plain).collect();
            let joined = segments.join("/");
            let trimmed = joined.trim_end_matches('/');
            Some(if trimmed.is_empty() { "/".to_owned() } else { trimmed.to_owned() })
        } else {
            None
        };
        Self { lower, bare }
    }

    pub(crate) fn forms(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.lower.as_str()).chain(self.bare.as_deref())
    }
}
