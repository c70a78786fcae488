//! Header fields, named as servers read their names.
//!
//! CGI and its descendants (WSGI, Rack, PHP) hand a field to the program under a
//! name in which every character but letters and digits is `_`. To them `x_mode`,
//! `x.mode` and `x-mode` are one field. So they are to us: a name is compared
//! *folded*, two spellings of one name in a request have no single reading, and a
//! field that frames or identifies a message has exactly one spelling.

use crate::quoted_input::QuotedInput;

/// A request's headers, whatever holds them: the fields that will be sent.
pub trait Headers {
    /// Calls `each` with the name and the value of every field, in order.
    fn each<'h>(&'h self, each: &mut dyn FnMut(&'h [u8], &'h [u8]));

    /// Calls `each` with every value of the header `name`, in any case.
    fn values(&self, name: &str, each: &mut dyn FnMut(&[u8])) {
        self.each(&mut |known, value| {
            if known.eq_ignore_ascii_case(name.as_bytes()) {
                each(value);
            }
        });
    }
}

impl std::fmt::Debug for dyn Headers + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values may be credentials, so nothing of them is printed.
        f.write_str("Headers")
    }
}

/// No headers.
impl Headers for () {
    fn each<'h>(&'h self, _each: &mut dyn FnMut(&'h [u8], &'h [u8])) {}
}

/// Whether some server could take the two names for one.
///
/// ```
/// use policies::is_same_field;
///
/// assert!(is_same_field(b"X_Mode", b"x-mode"));
/// assert!(!is_same_field(b"x-modes", b"x-mode"));
/// ```
pub fn is_same_field(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| folded(*a) == folded(*b))
}

/// Whether the name is one that only the gateway sends: `x-sluice-...`.
pub fn is_gateway_field(name: &[u8]) -> bool {
    name.get(..GATEWAY_PREFIX.len()).is_some_and(|start| is_same_field(start, GATEWAY_PREFIX))
}

const GATEWAY_PREFIX: &[u8] = b"x-sluice-";

/// The field that a name could be taken for, if that one decides what a message
/// means: where it ends, whom it is for, who sent it, how its body is read.
///
/// Such a field does not stand in a trailer, and has one spelling.
pub fn control_field(name: &[u8]) -> Option<&'static str> {
    // Most names are told apart by their length.
    CONTROL_FIELDS.iter().find(|known| is_same_field(name, known.as_bytes())).copied()
}

/// The field that a name could be taken for and is not.
pub fn misspelt_control_field(name: &[u8]) -> Option<&'static str> {
    if name.iter().all(|byte| is_plain(*byte)) {
        return None;
    }
    control_field(name)
}

/// Whether a rule can be about this header. Of some the gateway writes its own,
/// and some are about one connection and are never passed on.
pub(crate) fn is_judgeable(name: &str) -> bool {
    let unjudged = UNJUDGED_FIELDS.iter().any(|known| is_same_field(name.as_bytes(), known));
    !unjudged && !is_gateway_field(name.as_bytes())
}

/// Refuses names that have no single reading.
pub fn check_fields(headers: &dyn Headers) -> Result<(), FieldError> {
    let mut plain = true;
    headers.each(&mut |name, _| plain &= name.iter().all(|byte| is_plain(*byte)));
    // Without punctuation there is one spelling of everything.
    if plain {
        return Ok(());
    }
    let mut names: Vec<&[u8]> = Vec::new();
    headers.each(&mut |name, _| names.push(name));
    for name in names.iter().filter(|name| !name.iter().all(|byte| is_plain(*byte))) {
        if let Some(meant) = misspelt_control_field(name) {
            return Err(FieldError(FieldNameFault::Misspelt {
                written: QuotedInput::of_bytes(name),
                meant,
            }));
        }
        let second = names
            .iter()
            .find(|other| is_same_field(name, other) && !name.eq_ignore_ascii_case(other));
        if let Some(second) = second {
            let (one, other) = (QuotedInput::of_bytes(name), QuotedInput::of_bytes(second));
            return Err(FieldError(FieldNameFault::TwoSpellings { one, other }));
        }
    }
    Ok(())
}

/// Names that servers read in two ways.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct FieldError(FieldNameFault);

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
enum FieldNameFault {
    #[error(
        "some servers read the header `{written}` as `{meant}`; write `{meant}` or leave it out"
    )]
    Misspelt { written: QuotedInput, meant: &'static str },
    #[error("some servers read the headers `{one}` and `{other}` as one; send one of them")]
    TwoSpellings { one: QuotedInput, other: QuotedInput },
}

fn folded(byte: u8) -> u8 {
    match byte {
        b'a'..=b'z' | b'0'..=b'9' => byte,
        b'A'..=b'Z' => byte.to_ascii_lowercase(),
        _ => b'-',
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

const CONTROL_FIELDS: [&str; 37] = [
    "alt-svc",
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-location",
    "content-range",
    "content-type",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "location",
    "max-forwards",
    "origin",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "referer",
    "sec-websocket-accept",
    "sec-websocket-key",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "vary",
    "www-authenticate",
];

const UNJUDGED_FIELDS: [&[u8]; 10] = [
    b"connection",
    b"host",
    b"http2-settings",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"transfer-encoding",
    b"upgrade",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct SampleHeaders(Vec<(String, String)>);

    impl Headers for SampleHeaders {
        fn each<'h>(&'h self, each: &mut dyn FnMut(&'h [u8], &'h [u8])) {
            for (name, value) in &self.0 {
                each(name.as_bytes(), value.as_bytes());
            }
        }
    }

    fn check(names: &[&str]) -> Result<(), String> {
        let fields = names.iter().map(|name| (name.to_string(), String::new())).collect();
        check_fields(&SampleHeaders(fields)).map_err(|err| err.to_string())
    }

    #[test]
    fn punctuation_is_one_character_to_some_servers() {
        for spelling in ["x_mode", "X.Mode", "x!mode", "x~mode", "X-MODE"] {
            assert!(is_same_field(spelling.as_bytes(), b"x-mode"), "{spelling}");
        }
        for other in ["xmode", "x-mod", "x--mode", "y-mode"] {
            assert!(!is_same_field(other.as_bytes(), b"x-mode"), "{other}");
        }
    }

    #[test]
    fn one_spelling_may_be_repeated_and_two_may_not_be_mixed() {
        assert_eq!(check(&["accept", "Accept", "x-a", "session_id"]), Ok(()));
        assert_eq!(
            check(&["session_id", "x", "Session-Id"]).unwrap_err(),
            "some servers read the headers `session_id` and `Session-Id` as one; send one of them",
        );
        assert!(check(&["a.b", "a_b"]).is_err());
    }

    #[test]
    fn a_control_field_has_one_spelling() {
        assert_eq!(check(&["Content-Length", "Transfer-Encoding"]), Ok(()));
        assert_eq!(
            check(&["Content_Length"]).unwrap_err(),
            "some servers read the header `Content_Length` as `content-length`; \
             write `content-length` or leave it out",
        );
    }

    #[test]
    fn only_the_gateway_speaks_with_its_own_name() {
        for ours in ["x-sluice-code", "X_SLUICE_RULE", "x.sluice.x", "x-sluice-"] {
            assert!(is_gateway_field(ours.as_bytes()), "{ours}");
        }
        for other in ["x-sluice", "x-sluices-code", "sluice-code"] {
            assert!(!is_gateway_field(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn lists_are_in_order_and_in_their_one_spelling() {
        assert!(CONTROL_FIELDS.is_sorted());
        assert!(UNJUDGED_FIELDS.is_sorted());
        for name in CONTROL_FIELDS {
            assert_eq!(control_field(name.to_uppercase().as_bytes()), Some(name));
            assert_eq!(control_field(name.replace('-', "_").as_bytes()), Some(name));
        }
    }

    proptest! {
        /// What passes has no two names that any server folds into one.
        #[test]
        fn what_passes_has_one_reading(names in prop::collection::vec("[abAB][-_.!]?[ab]?", 0..6)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let cgi = |name: &str| name.replace(|c: char| !c.is_ascii_alphanumeric(), "_").to_uppercase();
            let clash = names.iter().enumerate().any(|(at, one)| {
                names.iter().skip(at + 1).any(|other| {
                    cgi(one) == cgi(other) && !one.eq_ignore_ascii_case(other)
                })
            });
            prop_assert_eq!(check(&names).is_err(), clash);
        }
    }

    #[test]
    fn every_value_of_a_header_is_told_in_any_case() {
        struct Three;
        impl Headers for Three {
            fn each<'h>(&'h self, each: &mut dyn FnMut(&'h [u8], &'h [u8])) {
                for (name, value) in [("X-A", "1"), ("x-b", "2"), ("x-a", "3")] {
                    each(name.as_bytes(), value.as_bytes());
                }
            }
        }
        let mut values = Vec::new();
        Three.values("x-a", &mut |value| values.push(String::from_utf8_lossy(value).into_owned()));
        assert_eq!(values, ["1", "3"]);
        assert_eq!(format!("{:?}", &Three as &dyn Headers), "Headers", "no value is shown");
    }
}
