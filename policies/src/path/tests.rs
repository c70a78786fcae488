use proptest::prelude::*;

use super::*;
use crate::path_spelling::{MAX_PATH_BYTES, escape, stands_for_itself};

macro_rules! path {
    ($claim:ident, $written:expr, Ok($canonical:expr)) => {
        #[test]
        fn $claim() {
            assert_eq!(RequestPath::parse($written).unwrap().as_str(), $canonical);
        }
    };
    ($claim:ident, $written:expr, Err($fault:expr)) => {
        #[test]
        fn $claim() {
            assert_eq!(RequestPath::parse($written).unwrap_err().fault(), $fault);
        }
    };
}

use PathFault::*;

path!(root, "/", Ok("/"));
path!(plain, "/repos/ok/readme.md", Ok("/repos/ok/readme.md"));
path!(a_trailing_slash_is_kept, "/repos/", Ok("/repos/"));
path!(hidden_files_are_not_dot_segments, "/.git/..x/...", Ok("/.git/..x/..."));
path!(unreserved_escapes_are_decoded, "/%7E%61%2D%2e%5f", Ok("/~a-._"));
path!(harmless_delimiters_are_decoded, "/x%3adelete%40%21", Ok("/x:delete@!"));
path!(other_escapes_are_upper_case, "/a%2bb%3f%c3%a9", Ok("/a%2Bb%3F%C3%A9"));
path!(a_plus_is_not_its_escape, "/a+b", Ok("/a+b"));
path!(a_scoped_package_survives, "/@scope%2fname", Ok("/@scope%2Fname"));
path!(an_escaped_scope_is_the_same, "/%40scope%2Fname", Ok("/@scope%2Fname"));
path!(a_final_escaped_slash_survives, "/o/folder%2F", Ok("/o/folder%2F"));
path!(parameters_survive, "/a;v=1/b", Ok("/a;v=1/b"));
path!(what_must_be_escaped_is, "/a\"<>^`{|}[]", Ok("/a%22%3C%3E%5E%60%7B%7C%7D%5B%5D"));
path!(an_escaped_space, "/a%20b", Ok("/a%20b"));
path!(an_escaped_percent, "/100%25", Ok("/100%25"));
path!(an_escaped_percent_before_one_digit, "/%252/x", Ok("/%252/x"));
path!(invisible_characters_are_text, "/a%E2%80%8Bb", Ok("/a%E2%80%8Bb"));

// C7: dot segments, in every spelling.
path!(up, "/repos/ok/../../gists", Err(DotSegment));
path!(up_at_the_end, "/repos/ok/..", Err(DotSegment));
path!(here, "/repos/./ok", Err(DotSegment));
path!(up_escaped, "/repos/ok/%2e%2e/gists", Err(DotSegment));
path!(up_half_escaped, "/repos/ok/.%2E/gists", Err(DotSegment));
path!(up_before_an_escaped_slash, "/repos/ok/..%2fgists", Err(DotSegment));
path!(up_after_an_escaped_slash, "/repos/ok%2F..", Err(DotSegment));
path!(up_within_a_segment, "/repos/ok%2f..%2fgists", Err(DotSegment));
path!(up_with_a_parameter, "/repos/ok/..;x/gists", Err(DotSegment));
path!(up_escaped_with_a_parameter, "/repos/ok/%2e%2e;/gists", Err(DotSegment));
path!(up_with_an_escaped_parameter, "/repos/ok/..%3bx/gists", Err(DotSegment));
path!(up_as_a_parameter, "/repos/ok/;x/../gists", Err(DotSegment));
path!(up_and_a_space, "/repos/ok/..%20/gists", Err(DotSegment));
path!(up_in_full_width_dots, "/ok/%ef%bc%8e%EF%BC%8E/gists", Err(DotSegment));
path!(up_in_a_two_dot_leader, "/ok/%E2%80%A5/gists", Err(DotSegment));
path!(up_in_one_dot_leaders, "/ok/%E2%80%A4./gists", Err(DotSegment));

// C7: double escapes.
path!(an_escape_of_an_escape, "/repos/ok/%252e%252e/gists", Err(DoubleEscape));
path!(an_escape_of_an_escaped_slash, "/a%252fb", Err(DoubleEscape));
path!(an_escape_of_an_escape_in_escapes, "/a%25%32%65", Err(DoubleEscape));
path!(an_escape_thrice, "/a%25252e", Err(DoubleEscape));

// C7: empty segments.
path!(two_slashes, "/repos//ok", Err(EmptySegment));
path!(two_leading_slashes, "//evil.test/x", Err(EmptySegment));
path!(two_trailing_slashes, "/repos//", Err(EmptySegment));
path!(an_escaped_slash_after_a_slash, "/repos/%2Fok", Err(EmptySegment));
path!(an_escaped_slash_before_a_slash, "/repos%2f/ok", Err(EmptySegment));
path!(two_escaped_slashes, "/repos%2f%2fok", Err(EmptySegment));

// C7: backslashes, control characters, bytes that are no text.
path!(backslashes, "/repos\\..\\gists", Err(Backslash));
path!(an_escaped_backslash, "/repos%5c..%5Cgists", Err(Backslash));
path!(nul, "/ok%00.png", Err(Control));
path!(a_raw_line_break, "/ok\r\nHost: evil", Err(Control));
path!(an_escaped_line_break, "/ok%0d%0a", Err(Control));
path!(an_escaped_tab, "/ok%09", Err(Control));
path!(an_escaped_delete, "/ok%7f", Err(Control));
path!(a_control_of_the_second_set, "/ok%c2%85", Err(Control));
path!(a_raw_space, "/o k", Err(Control));
path!(an_overlong_slash, "/ok/..%c0%af", Err(Encoding));
path!(an_overlong_dot, "/ok/%c0%ae%c0%ae/", Err(Encoding));
path!(an_overlong_nul, "/ok%e0%80%80", Err(Encoding));
path!(a_surrogate, "/ok%ed%a0%80", Err(Encoding));
path!(half_a_character, "/ok%c3", Err(Encoding));
path!(half_a_character_before_text, "/ok%c3a%a9", Err(Encoding));
path!(a_latin_1_letter, "/%e9t%e9", Err(Encoding));
path!(a_raw_letter_outside_ascii, "/é", Err(NonAscii));
path!(no_digits_after_a_percent, "/%zz", Err(Escape));
path!(one_digit_after_a_percent, "/%4", Err(Escape));
path!(a_percent_at_the_end, "/100%", Err(Escape));
path!(the_escape_of_one_vendor, "/%u002e%u002e/", Err(Escape));
path!(a_signed_escape, "/%+2", Err(Escape));

path!(nothing, "", Err(NotAbsolute));
path!(no_slash, "repos", Err(NotAbsolute));
path!(the_whole_server, "*", Err(NotAbsolute));
path!(a_whole_url, "http://allowed.test/", Err(NotAbsolute));
path!(a_fragment, "/a#b", Err(Fragment));
path!(a_query, "/a?b", Err(Query));
path!(too_long, &format!("/{}", "a".repeat(MAX_PATH_BYTES)), Err(Length));
path!(too_long_once_escaped, &format!("/{}", "|".repeat(MAX_PATH_BYTES / 2)), Err(Length));

#[test]
fn the_longest_path_is_read_and_no_longer_one() {
    let of = |length: usize| RequestPath::parse(&format!("/{}", "a".repeat(length - 1)));
    assert_eq!(of(MAX_PATH_BYTES).unwrap().as_str().len(), MAX_PATH_BYTES);
    assert_eq!(MAX_PATH_BYTES, 16_384, "twice what servers commonly take");
    for length in [MAX_PATH_BYTES + 1, MAX_PATH_BYTES + 2, 2 * MAX_PATH_BYTES] {
        assert_eq!(of(length).unwrap_err().fault(), PathFault::Length);
    }
    // Refused before it is looked at: what else is wrong with it is not found.
    let long = format!("/{}/..", "a".repeat(MAX_PATH_BYTES));
    assert_eq!(RequestPath::parse(&long).unwrap_err().fault(), PathFault::Length);
}

#[test]
fn segments_end_at_slashes_alone() {
    let path = RequestPath::parse("/a/b%2Fc;d/").unwrap();
    assert_eq!(path.segments().collect::<Vec<_>>(), ["a", "b%2Fc;d", ""]);
    assert_eq!(RequestPath::root().segments().collect::<Vec<_>>(), [""]);
}

#[test]
fn bytes_outside_ascii_are_quoted_harmlessly() {
    let err = RequestPath::parse_bytes(b"/\xff").unwrap_err();
    assert_eq!(
        err.to_string(),
        r"the path `/\xff` is refused: it holds a byte outside ASCII; escape it with `%`"
    );
}

/// Text made of the pieces that attacks are made of.
fn nearly_a_path() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("/".to_owned()),
        Just("..".to_owned()),
        Just("%2e".to_owned()),
        Just("%2F".to_owned()),
        Just("%25".to_owned()),
        Just(";".to_owned()),
        Just("%C3%A9".to_owned()),
        "[a-zA-Z0-9]{1,3}",
        "%[0-9a-fA-F]{2}",
        "[!-~]",
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| format!("/{}", pieces.concat()))
}

/// How the laxest server reads a path: every escape decoded, parameters dropped.
fn laxly(path: &str) -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        (rest, _) = match escape(after).filter(|_| byte == b'%') {
            Some((byte, after)) => (after, bytes.push(byte)),
            None => (after, bytes.push(byte)),
        };
    }
    bytes
        .split(|b| matches!(b, b'/' | b'\\'))
        .map(|segment| segment.split(|b| *b == b';').next().unwrap().to_vec())
        .collect()
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_harmlessly(written in proptest::collection::vec(any::<u8>(), 0..100)) {
        if let Err(err) = RequestPath::parse_bytes(&written) {
            prop_assert!(crate::quoted_input::is_harmless(&err.to_string()));
        }
    }

    #[test]
    fn parse_is_idempotent(written in nearly_a_path()) {
        if let Ok(path) = RequestPath::parse(&written) {
            prop_assert_eq!(&RequestPath::parse(path.as_str()).unwrap(), &path);
        }
    }

    #[test]
    fn a_path_holds_only_its_alphabet(written in nearly_a_path()) {
        if let Ok(path) = RequestPath::parse(&written) {
            prop_assert!(path.as_str().starts_with('/'));
            prop_assert!(path.as_str().bytes().all(|b| b == b'%' || stands_for_itself(b, false)));
            prop_assert!(!path.as_str().contains("%2E"));
        }
    }

    /// No server, however much it decodes, can climb out of a path we accept.
    #[test]
    fn no_reading_of_a_path_climbs(written in nearly_a_path()) {
        if let Ok(path) = RequestPath::parse(&written) {
            for segment in laxly(path.as_str()) {
                prop_assert!(segment != b"." && segment != b"..", "{path}");
            }
        }
    }

    /// Respelling keeps the meaning: both decode to the same bytes.
    #[test]
    fn what_is_forwarded_means_what_was_written(written in nearly_a_path()) {
        if let Ok(path) = RequestPath::parse(&written) {
            prop_assert_eq!(laxly(path.as_str()), laxly(&written));
        }
    }
}

#[test]
fn a_path_has_a_longest_length_as_written_and_as_forwarded() {
    let fault = |path: String| RequestPath::parse(&path).err().map(|err| err.fault());
    let plain = |length: usize| format!("/{}", "a".repeat(length - 1));
    assert_eq!(fault(plain(MAX_PATH_BYTES)), None);
    assert_eq!(fault(plain(MAX_PATH_BYTES + 1)), Some(PathFault::Length));
    assert_eq!(fault(plain(MAX_PATH_BYTES + 9)), Some(PathFault::Length));
    // Longer as written than as forwarded.
    assert_eq!(fault(format!("/{}", "%61".repeat(MAX_PATH_BYTES / 2))), Some(PathFault::Length));
    // Longer as forwarded than as written: each of these becomes three bytes.
    let grown =
        |quotes: usize, letters: usize| format!("/{}{}", "\"".repeat(quotes), "a".repeat(letters));
    let quotes = MAX_PATH_BYTES / 4;
    assert_eq!(fault(grown(quotes, MAX_PATH_BYTES - 1 - 3 * quotes)), None);
    assert_eq!(fault(grown(quotes, MAX_PATH_BYTES - 3 * quotes)), Some(PathFault::Length));
    assert_eq!(fault(grown(MAX_PATH_BYTES / 2, 0)), Some(PathFault::Length));
}
