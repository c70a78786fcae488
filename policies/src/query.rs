//! Queries, kept as written.
//!
//! Unlike a path, a query has no canonical form that servers agree on, so a
//! [`Query`] is forwarded byte for byte and only *read* for matching. Matching
//! can trust two things. Every pair is seen: a value cannot hide behind an
//! earlier one of the same name, because [`Query::pairs`] yields both. And every
//! byte is in some pair: what is no escape is read as itself, never skipped.
//!
//! What matching cannot know is how a server reads a name: with or without case,
//! `a[]` as `a`, `a.b` as `a_b`, decoded twice, cut at a NUL, divided at `;` as
//! well as `&`. All these readings are looked at ([`parameter_readings`]). A deny holds if
//! one of them is the parameter it names; an allow wants that parameter written
//! plainly, once, and nothing else that could be read as it.

mod parameter_readings;

use std::borrow::Cow;
use std::fmt;

use crate::glob::TextPattern;
use crate::path::{PathError, TargetPart};
use crate::path_spelling::{PathFault, escape};
use crate::verdict::Verdict;

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
            Some(why) => Err(PathError::new(TargetPart::Query, written.as_bytes(), why)),
        }
    }

    /// Reads a query from the wire.
    pub fn parse_bytes(written: &[u8]) -> Result<Self, PathError> {
        match std::str::from_utf8(written) {
            Ok(text) => Self::parse(text),
            Err(_) => Err(PathError::new(TargetPart::Query, written, PathFault::NonAscii)),
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
        let pairs = self.0.split('&').filter(|pair| !pair.is_empty()).map(divide);
        pairs.map(|(name, value)| (decoded(name), decoded(value)))
    }

    /// The pairs as they are written, and besides them those that a server sees
    /// which divides at `;` as well.
    fn parts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.split('&').filter(|pair| !pair.is_empty()).flat_map(|pair| {
            let finer = pair.contains(';').then(|| pair.split(';')).into_iter().flatten();
            [pair].into_iter().chain(finer).map(divide)
        })
    }

    /// Whether the parameter `key` fits a rule of this verdict.
    pub(crate) fn fits(&self, key: &QueryKey, pattern: &TextPattern, verdict: Verdict) -> bool {
        let names = || std::iter::once(&*key.folded);
        let named = |name: &str| parameter_readings::position(name, names()).is_some();
        match verdict {
            Verdict::Deny => self.parts().any(|(name, value)| {
                named(name)
                    && parameter_readings::of_value(value).any(|value| pattern.matches(&value))
            }),
            Verdict::Allow | Verdict::Ask => self.fits_plainly(key, pattern, named),
        }
    }

    /// Whether one pair is plainly the parameter, and nothing else could be read
    /// as it.
    fn fits_plainly(
        &self,
        key: &QueryKey,
        pattern: &TextPattern,
        named: impl Fn(&str) -> bool,
    ) -> bool {
        let fits =
            |value| parameter_readings::of_plain_value(value).all(|value| pattern.matches(&value));
        let mut fitting = false;
        for pair in self.0.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = divide(pair);
            // What a server sees that divides at `;`.
            let mut parts = pair.split(';').map(divide);
            let (first, first_value) = parts.next().unwrap_or_default();
            if parts.any(|(name, _)| named(name)) || named(first) != named(name) {
                return false;
            }
            if named(name) {
                let plain = decoded(name) == *key.written && fits(value) && fits(first_value);
                if fitting || !plain {
                    return false;
                }
                fitting = true;
            }
        }
        fitting
    }

    /// Calls `each` with the place in `names` of every parameter that could be
    /// read as one of them, and with all readings of its value. The names are
    /// folded as [`QueryKey`] folds them.
    pub(crate) fn read_as<'n>(
        &self,
        names: impl Iterator<Item = &'n str> + Clone,
        each: &mut dyn FnMut(usize, Vec<String>),
    ) {
        for (name, value) in self.parts() {
            if let Some(at) = parameter_readings::position(name, names.clone()) {
                let text = |value: Cow<'_, [u8]>| String::from_utf8_lossy(&value).into_owned();
                each(at, parameter_readings::of_value(value).map(text).collect());
            }
        }
    }
}

/// The name of a parameter that a rule is about.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct QueryKey {
    written: Box<str>,
    folded: Box<str>,
}

impl QueryKey {
    pub(crate) fn new(written: &str) -> Self {
        Self { written: written.into(), folded: parameter_readings::folded_key(written).into() }
    }
}

fn divide(pair: &str) -> (&str, &str) {
    pair.split_once('=').unwrap_or((pair, ""))
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

const MAX_QUERY_BYTES: usize = 32 * 1024;
/// Where PHP and Node stop reading. A parameter behind that is there for some
/// servers and not for others.
const MAX_PARAMETERS: usize = 1000;

fn fault_in(written: &[u8]) -> Option<PathFault> {
    if written.len() > MAX_QUERY_BYTES {
        return Some(PathFault::Length);
    }
    if written.iter().filter(|byte| matches!(byte, b'&' | b';')).count() >= MAX_PARAMETERS {
        return Some(PathFault::Parameters);
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
    pairs!(a_plus_is_a_space, "a+b=c+d%2B", [("a b", "c d+")]);
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
    refused!(too_much, &[b'a'; MAX_QUERY_BYTES + 1], Length);
    refused!(too_many, "a&".repeat(MAX_PARAMETERS).as_bytes(), Parameters);

    #[test]
    fn a_query_may_be_as_long_as_it_may_be() {
        let parse = |length: usize| Query::parse(&"a".repeat(length));
        assert!(parse(MAX_QUERY_BYTES).is_ok());
        assert_eq!(parse(MAX_QUERY_BYTES + 1).unwrap_err().fault(), PathFault::Length);
        let many = |count: usize| Query::parse(&"a&".repeat(count));
        assert!(many(MAX_PARAMETERS - 1).is_ok() && many(MAX_PARAMETERS).is_err());
    }

    fn fits(query: &str, key: &str, value: &str, verdict: Verdict) -> bool {
        let pattern = TextPattern::parse(value).unwrap();
        Query::parse(query).unwrap().fits(&QueryKey::new(key), &pattern, verdict)
    }

    #[test]
    fn a_deny_holds_in_any_reading() {
        for query in [
            "a_b=x",
            "A_B=x",
            "a%5fb=x",
            "a%255Fb=x",
            "a%u005fb=x",
            "a%_b=x",
            "a_b[]=x",
            "a_b[0][c]=x",
            "a_b%5b%5d=x",
            "[a_b]=x",
            "a.b=x",
            "a+b=x",
            "a[b=x",
            "+a_b=x",
            "a_b%20=x",
            "a_b%00=x",
            "a_b%00c=x",
            "a%00_b=x",
            "c;a_b=x",
            "amp;a_b=x",
            "a_b=y&a_b=x",
            "a_b=x;c",
            "a_b=x%00c",
            "a_b=%2578",
            "a_b=+x",
            "a_b=x%0a",
            "a%EF%BB%BF_b=x",
        ] {
            assert!(fits(query, "a_b", "x", Verdict::Deny), "{query}");
        }
        for query in ["a_b=y", "ab=x", "c_a_b=x", "c=a_b%3Dx", "c=1%26a_b=x", "c[a_b]=x", ""] {
            assert!(!fits(query, "a_b", "x", Verdict::Deny), "{query}");
        }
    }

    /// Letters outside ASCII have no case to some servers, and `%u` may spell them.
    #[test]
    fn a_deny_holds_for_letters_outside_ascii() {
        for query in ["%C3%A9=x", "%C3%89=x", "%u00e9=x", "%U00C9=x", "%25u00e9=x"] {
            assert!(fits(query, "é", "x", Verdict::Deny), "{query}");
        }
        for query in ["%u0161=x", "%u0160=x", "%C5%A1=x"] {
            assert!(fits(query, "š", "x", Verdict::Deny), "{query}");
            assert!(!fits(query, "a", "x", Verdict::Deny), "{query}");
        }
        // Read leniently a `+` is a space as well.
        assert!(fits("k=a+%u0062", "k", "a b", Verdict::Deny));
        assert!(fits("k=a%2B%u0062", "k", "a b", Verdict::Deny));
    }

    #[test]
    fn an_allow_wants_the_plain_reading_and_no_other() {
        for query in ["f=x", "a=1&f=x&b[c]=d", "%66=%78", "c=1;d=2&f=x", "f=x&"] {
            assert!(fits(query, "f", "x", Verdict::Allow), "{query}");
        }
        for query in [
            "",
            "f=y",
            "f=x&f=x",
            "f=x&F=y",
            "f=x&f[]=y",
            "f=x&%2566=y",
            "f=x;f=x",
            "f=x;c",
            "c;f=y&f=x",
            "c;f=x",
            "f;c=x",
            "F=x",
            "f[]=x",
            "+f=x",
            "%2566=x",
            "f=x%00y",
            "f=%2578",
            "f%00=x",
        ] {
            assert!(!fits(query, "f", "x", Verdict::Allow), "{query}");
        }
        assert!(fits("f=x;c", "f", "x*", Verdict::Allow));
        assert!(!fits("f=x;f=y", "f", "*", Verdict::Allow), "there are two for some servers");
        assert!(fits("f[]=x", "f[]", "x", Verdict::Allow), "the rule says so itself");
        assert!(fits("f=100%25", "f", "100%", Verdict::Allow));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(written in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(query) = Query::parse_bytes(&written) {
                prop_assert_eq!(query.as_str().as_bytes(), &written);
                prop_assert!(query.pairs().count() <= written.len());
            }
        }

        /// What an allow takes for the parameter, a deny does too: every other
        /// spelling is at most as allowed and at least as denied.
        #[test]
        fn an_allow_is_never_wider_than_a_deny(query in "[aA_.=&;+%20bB\\[\\]5fF]{0,16}") {
            let Ok(query) = Query::parse(&query) else { return Ok(()) };
            let (key, any) = (QueryKey::new("a"), TextPattern::parse("*").unwrap());
            if query.fits(&key, &any, Verdict::Allow) {
                prop_assert!(query.fits(&key, &any, Verdict::Deny));
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
