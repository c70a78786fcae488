//! Queries, kept as written.
//!
//! Unlike a path, a query has no canonical form that servers agree on, so a
//! [`Query`] is forwarded byte for byte and only *read* for matching. Matching
//! can trust two things. Every pair is seen: a value cannot hide behind an
//! earlier one of the same name, because [`Query::pairs`] yields both. And every
//! byte is in some pair: what is no escape is read as itself, never skipped.
//!
//! What matching cannot know is which of two pairs a server takes, or whether it
//! divides at `;` as well as `&`. A rule that needs a value must therefore hold
//! for every pair of that name.

use std::borrow::Cow;
use std::fmt;

use crate::path::{Part, PathError, PathFault, escape};

/// What stood after the `?` of a request target.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Query(Box<str>);

impl Query {
    /// Reads a query as it stood in a request, without the `?`.
    ///
    /// ```
    /// use policies::Query;
    ///
    /// let query = Query::parse("q=a+b%21&q=c&flag")?;
    /// let pairs: Vec<_> = query.pairs().collect();
    /// assert_eq!(pairs, [("q".into(), "a b!".into()), ("q".into(), "c".into()), ("flag".into(), "".into())]);
    ///
    /// let err = Query::parse("q=a b").unwrap_err();
    /// assert_eq!(
    ///     err.to_string(),
    ///     "the query `q=a b` is refused: it holds a control character or a space",
    /// );
    /// # Ok::<(), policies::PathError>(())
    /// ```
    pub fn parse(written: &str) -> Result<Self, PathError> {
        match fault_in(written.as_bytes()) {
            None => Ok(Self(written.into())),
            Some(why) => Err(PathError::new(Part::Query, written.as_bytes(), why)),
        }
    }

    /// Reads a query from the wire.
    pub fn parse_bytes(written: &[u8]) -> Result<Self, PathError> {
        match std::str::from_utf8(written) {
            Ok(text) => Self::parse(text),
            Err(_) => Err(PathError::new(Part::Query, written, PathFault::NonAscii)),
        }
    }

    /// What is forwarded and recorded.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The pairs, as a form decoder reads them: divided at `&`, the name ends at
    /// the first `=`, `+` is a space, escapes are decoded. Bytes that are not
    /// UTF-8 show as U+FFFD, which no rule can be written to want.
    pub fn pairs(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        self.0.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        })
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

const LONGEST: usize = 32 * 1024;

fn fault_in(written: &[u8]) -> Option<PathFault> {
    if written.len() > LONGEST {
        return Some(PathFault::Length);
    }
    written.iter().find_map(|byte| match byte {
        b'#' => Some(PathFault::Fragment),
        0..=b' ' | 0x7f => Some(PathFault::Control),
        0x80.. => Some(PathFault::NonAscii),
        b'!'..=b'~' => None,
    })
}

fn decoded(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|b| matches!(b, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => match escape(after) {
                Some((byte, after)) => {
                    bytes.push(byte);
                    rest = after;
                }
                None => bytes.push(b'%'),
            },
            _ => bytes.push(byte),
        }
    }
    match String::from_utf8(bytes) {
        Ok(text) => Cow::Owned(text),
        Err(err) => Cow::Owned(String::from_utf8_lossy(err.as_bytes()).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(written: &str) -> Vec<(String, String)> {
        let query = Query::parse(written).unwrap();
        query.pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
    }

    macro_rules! pairs {
        ($claim:ident, $written:expr, $expected:expr) => {
            #[test]
            fn $claim() {
                let expected: &[(&str, &str)] = &$expected;
                let expected: Vec<(String, String)> =
                    expected.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
                assert_eq!(pairs($written), expected);
            }
        };
    }

    pairs!(nothing, "", []);
    pairs!(a_name_alone, "a", [("a", "")]);
    pairs!(an_empty_name, "=a", [("", "a")]);
    pairs!(only_the_first_equals_sign_divides, "a=b=c", [("a", "b=c")]);
    pairs!(empty_pairs_are_no_pairs, "&a=1&&b=2&", [("a", "1"), ("b", "2")]);
    pairs!(the_second_of_a_name_is_seen, "a=1&a=2", [("a", "1"), ("a", "2")]);
    pairs!(an_escaped_name_is_the_name, "%61=1", [("a", "1")]);
    pairs!(an_escaped_ampersand_does_not_divide, "a=1%26b=2", [("a", "1&b=2")]);
    pairs!(a_semicolon_does_not_divide, "a=1;b=2", [("a", "1;b=2")]);
    pairs!(a_broken_escape_is_read_as_itself, "a=%zz%4", [("a", "%zz%4")]);
    pairs!(a_value_is_decoded_once, "a=%2541", [("a", "%41")]);
    pairs!(bytes_that_are_not_text_match_nothing, "a=%ff", [("a", "\u{fffd}")]);

    macro_rules! refused {
        ($claim:ident, $written:expr, $fault:ident) => {
            #[test]
            fn $claim() {
                let err = Query::parse_bytes($written).unwrap_err();
                assert_eq!(err.fault(), PathFault::$fault);
            }
        };
    }

    refused!(a_fragment, b"a=1#b", Fragment);
    refused!(a_line_break, b"a=1\r\nHost: evil", Control);
    refused!(a_nul, b"a=\0", Control);
    refused!(a_space, b"a=b c", Control);
    refused!(a_letter_outside_ascii, "a=é".as_bytes(), NonAscii);
    refused!(a_byte_outside_utf8, b"a=\xff", NonAscii);
    refused!(too_much, &[b'a'; LONGEST + 1], Length);

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(written in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(query) = Query::parse_bytes(&written) {
                prop_assert_eq!(query.as_str().as_bytes(), &written);
                prop_assert!(query.pairs().count() <= written.len());
            }
        }

        /// Whatever was encoded comes back, so no value escapes a matcher.
        #[test]
        fn what_a_form_encodes_is_what_is_read(name in "\\PC{1,9}", value in "\\PC{0,9}") {
            let encode = |text: &str| -> String {
                text.bytes().map(|b| format!("%{b:02x}")).collect()
            };
            let written = format!("x&{}={}", encode(&name), encode(&value));
            prop_assert_eq!(&pairs(&written)[1], &(name, value));
        }
    }
}
