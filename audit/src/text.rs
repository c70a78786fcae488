//! Strings that came from outside.
//!
//! A sandbox chooses host names, paths and queries; whoever answers it chooses
//! error texts. So every string of the log is a [`Text`]: it has a length limit
//! that the type knows, and what is cut off is counted in the text itself. What
//! such a string does to a terminal or to the log's own syntax is no concern
//! here: [`crate::line`] escapes whatever is not printable ASCII.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

/// A string of at most `LIMIT` bytes; a longer one is cut, visibly.
///
/// Cloning is cheap: a constant is borrowed, everything else is shared. A rule's
/// name or a policy's hash is made once and cloned into each record.
///
/// ```
/// use audit::Text;
///
/// let host: Text = "api.github.com".into();
/// assert_eq!(host.as_str(), "api.github.com");
///
/// let long: Text<32> = "x".repeat(100).into();
/// assert_eq!(long.as_str(), "xxxxxxxxxxxxxxxxx…[+83 bytes]");
/// ```
#[derive(Clone)]
pub struct Text<const LIMIT: usize = 1024>(TextStorage);

#[derive(Clone)]
enum TextStorage {
    Constant(&'static str),
    Shared(Arc<str>),
}

/// A code or a name: a reason, a rule, a method, a host.
pub type Name = Text<256>;

/// A path or a query. Longer ones exist, and a reviewer is told how much longer.
pub type Long = Text<8192>;

impl<const LIMIT: usize> Text<LIMIT> {
    /// Keeps `written`, or as much of it as fits with the note of what is missing.
    pub fn new(written: &str) -> Self {
        match cut(written, LIMIT) {
            Cow::Borrowed(whole) => Self(TextStorage::Shared(whole.into())),
            Cow::Owned(cut) => Self(TextStorage::Shared(cut.into())),
        }
    }

    /// Borrows a constant: no allocation, for reason codes and the like.
    pub fn constant(written: &'static str) -> Self {
        match cut(written, LIMIT) {
            Cow::Borrowed(whole) => Self(TextStorage::Constant(whole)),
            Cow::Owned(cut) => Self(TextStorage::Shared(cut.into())),
        }
    }

    /// The text, at most `LIMIT` bytes of it.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            TextStorage::Constant(text) => text,
            TextStorage::Shared(text) => text,
        }
    }
}

/// The longest prefix that leaves room for the note, then the note.
///
/// The result is never longer than `limit`, so cutting twice changes nothing:
/// a text read back from a log is the text that was written.
fn cut(written: &str, limit: usize) -> Cow<'_, str> {
    if written.len() <= limit {
        return Cow::Borrowed(written);
    }
    let room = limit.saturating_sub(note(written.len()).len());
    let end = written.floor_char_boundary(room);
    let (kept, lost) = written.split_at(end);
    let mut note = note(lost.len());
    // Only a limit smaller than its own note gets here with too much.
    note.truncate(note.floor_char_boundary(limit - kept.len()));
    Cow::Owned(format!("{kept}{note}"))
}

fn note(bytes: usize) -> String {
    format!("…[+{bytes} bytes]")
}

impl<const LIMIT: usize> From<&str> for Text<LIMIT> {
    fn from(written: &str) -> Self {
        Self::new(written)
    }
}

impl<const LIMIT: usize> From<String> for Text<LIMIT> {
    fn from(written: String) -> Self {
        Self::new(&written)
    }
}

/// An error, an address, anything that says itself.
impl<const LIMIT: usize> From<fmt::Arguments<'_>> for Text<LIMIT> {
    fn from(written: fmt::Arguments<'_>) -> Self {
        Self::new(&written.to_string())
    }
}

impl<const LIMIT: usize> Default for Text<LIMIT> {
    fn default() -> Self {
        Self(TextStorage::Constant(""))
    }
}

impl<const LIMIT: usize> fmt::Display for Text<LIMIT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl<const LIMIT: usize> fmt::Debug for Text<LIMIT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl<const LIMIT: usize> PartialEq for Text<LIMIT> {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl<const LIMIT: usize> Eq for Text<LIMIT> {}

impl<const LIMIT: usize> PartialEq<str> for Text<LIMIT> {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl<const LIMIT: usize> PartialEq<&str> for Text<LIMIT> {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl<const LIMIT: usize> Serialize for Text<LIMIT> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de, const LIMIT: usize> Deserialize<'de> for Text<LIMIT> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Cow::<'de, str>::deserialize(deserializer)?.as_ref().into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_equals_and_shows_what_it_holds() {
        let text: Text<16> = "a\n".into();
        assert!(text == *"a\n" && text != *"b" && text == "a\n" && text != "b");
        assert_eq!(format!("{text:?}"), r#""a\n""#);
    }

    #[test]
    fn a_cut_never_splits_a_character() {
        let text: Text<19> = "ééééééééééééééé".into();
        assert_eq!(text.as_str(), "éé…[+26 bytes]");
    }

    #[test]
    fn a_limit_smaller_than_the_note_still_holds() {
        assert_eq!(Text::<5>::from("0123456789").as_str(), "…[+");
    }

    proptest! {
        #[test]
        fn what_fits_is_kept_whole(written in "\\PC{0,40}") {
            let kept: Text<256> = written.as_str().into();
            prop_assert_eq!(kept.as_str(), written);
        }

        /// So a text that was read back can be written again.
        #[test]
        fn cutting_twice_changes_nothing(written in any::<String>()) {
            let once: Text<24> = written.as_str().into();
            let twice: Text<24> = once.as_str().into();
            prop_assert!(once.as_str().len() <= 24);
            prop_assert_eq!(once, twice);
        }
    }
}
