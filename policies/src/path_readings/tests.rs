use crate::{PathFault, RequestPath};

macro_rules! readings {
    ($claim:ident, $written:expr, $expected:expr) => {
        #[test]
        fn $claim() {
            let path = RequestPath::parse($written).unwrap();
            let mut readings: Vec<&str> = path.readings().collect();
            assert_eq!(readings.first(), Some(&path.as_str()), "what is sent comes first");
            let mut expected: Vec<&str> = $expected.to_vec();
            readings.sort_unstable();
            expected.sort_unstable();
            assert_eq!(readings, expected);
        }
    };
}

readings!(an_ordinary_path_has_one, "/repos/ok/readme.md", ["/repos/ok/readme.md"]);
readings!(hidden_files_and_colons_have_one, "/.git/x:delete/a%22b", ["/.git/x:delete/a%22b"]);
readings!(an_npm_scope_has_two, "/@scope%2fname", ["/@scope%2Fname", "/@scope/name"]);
readings!(a_final_escaped_slash, "/o/folder%2F", ["/o/folder%2F", "/o/folder/"]);
readings!(a_parameter, "/a;v=1/b", ["/a;v=1/b", "/a/b", "/a"]);
readings!(a_parameter_at_the_end, "/a/b;v=1", ["/a/b;v=1", "/a/b"]);
readings!(a_parameter_alone, "/a/;v=1", ["/a/;v=1", "/a/"]);
readings!(an_escaped_parameter, "/admin%3bx", ["/admin%3Bx", "/admin;x", "/admin"]);
readings!(a_parameter_and_an_escaped_one, "/a;b%3Bc", ["/a;b%3Bc", "/a;b;c", "/a"]);
readings!(a_space_before, "/%20admin/x", ["/%20admin/x", "/admin/x"]);
readings!(a_space_after, "/admin%20%20/x", ["/admin%20%20/x", "/admin/x"]);
readings!(a_space_within_is_text, "/a%20b", ["/a%20b"]);
readings!(a_plus, "/a+b", ["/a+b", "/a%20b"]);
readings!(an_escaped_plus, "/a%2bb", ["/a%2Bb", "/a+b", "/a%20b"]);
readings!(a_plus_at_the_end, "/c+", ["/c+", "/c%20", "/c"]);
readings!(a_dot_at_the_end, "/a./b..", ["/a./b..", "/a/b"]);
readings!(a_stream_of_a_file, "/a::$DATA", ["/a::$DATA", "/a"]);
readings!(a_stream_of_a_folder, "/a:$i30:$INDEX/b", ["/a:$i30:$INDEX/b", "/a/b"]);
readings!(an_escaped_question_mark, "/a%3Fb/c", ["/a%3Fb/c", "/a"]);
readings!(an_escaped_number_sign, "/a%23b", ["/a%23b", "/a"]);
readings!(a_full_width_slash, "/a%EF%BC%8Fb", ["/a%EF%BC%8Fb", "/a/b"]);
readings!(a_fraction_slash, "/a%E2%81%84b", ["/a%E2%81%84b", "/a/b"]);
readings!(a_division_slash, "/a%E2%88%95b", ["/a%E2%88%95b", "/a/b"]);
readings!(a_character_with_a_slash_in_it, "/%E2%84%85", ["/%E2%84%85", "/c/o"]);
readings!(full_width_letters, "/%EF%BD%81dmin", ["/%EF%BD%81dmin", "/admin"]);
readings!(a_kelvin_sign, "/%E2%84%AA", ["/%E2%84%AA", "/K"]);
readings!(a_greek_question_mark, "/a%CD%BEb", ["/a%CD%BEb", "/a;b", "/a"]);
readings!(a_full_width_semicolon, "/a%EF%BC%9Bb", ["/a%EF%BC%9Bb", "/a;b", "/a"]);
readings!(a_no_break_space, "/a%C2%A0", ["/a%C2%A0", "/a%20", "/a"]);
readings!(an_invisible_character, "/.g%E2%80%8Cit", ["/.g%E2%80%8Cit", "/.git"]);
readings!(a_decomposed_letter, "/cafe%CC%81", ["/cafe%CC%81", "/caf%C3%A9"]);
readings!(a_composed_letter_is_plain, "/caf%C3%A9", ["/caf%C3%A9"]);
readings!(a_mark_after_an_escape_leaves_the_escape, "/a%2F%CC%87b", ["/a%2F%CC%87b", "/a/%CC%87b"]);

macro_rules! refused {
    ($claim:ident, $written:expr, $fault:ident) => {
        #[test]
        fn $claim() {
            assert_eq!(RequestPath::parse($written).unwrap_err().fault(), PathFault::$fault);
        }
    };
}

refused!(nothing_but_a_parameter, "/;x/admin", HiddenSegment);
refused!(nothing_but_a_parameter_further_on, "/v1/;x/admin", HiddenSegment);
refused!(nothing_but_an_escaped_parameter, "/v1/%3Bx/admin", HiddenSegment);
refused!(nothing_but_a_space, "/v1/%20/admin", HiddenSegment);
refused!(nothing_but_a_plus, "/v1/+/admin", HiddenSegment);
refused!(nothing_but_dots, "/v1/.../admin", HiddenSegment);
refused!(nothing_but_an_ellipsis, "/v1/%E2%80%A6/admin", HiddenSegment);
refused!(nothing_but_something_invisible, "/v1/%E2%80%8B/admin", HiddenSegment);
refused!(two_slashes_one_of_them_wide, "/v1/%EF%BC%8Fadmin", HiddenSegment);
refused!(up_in_a_vertical_two_dot_leader, "/ok/%EF%B8%B0/gists", HiddenSegment);
refused!(up_in_small_full_stops, "/ok/%EF%B9%92%EF%B9%92/gists", HiddenSegment);
refused!(up_in_ideographic_full_stops, "/ok/%E3%80%82%E3%80%82/gists", HiddenSegment);
refused!(up_between_wide_slashes, "/ok%EF%BC%8F..%EF%BC%8Fgists", HiddenSegment);
refused!(up_with_something_invisible, "/ok/.%E2%80%8B./gists", HiddenSegment);
refused!(up_before_an_escaped_query, "/ok/..%3Fx", HiddenSegment);
refused!(up_as_a_stream, "/ok/..::$DATA/gists", HiddenSegment);
refused!(up_and_a_plus, "/ok/..+/gists", HiddenSegment);
refused!(a_full_width_backslash, "/ok%EF%BC%BCgists", Backslash);
refused!(a_small_backslash, "/ok%EF%B9%A8gists", Backslash);
refused!(a_set_minus, "/ok%E2%88%96gists", Backslash);
refused!(an_escape_behind_a_full_width_percent, "/a%EF%BC%852Fb", DoubleEscape);
refused!(
    more_ways_than_we_look_at,
    "/a%2Fb;c%3Bd/e+f%2Bg%20/h./%EF%BD%81%3Fj%2Fk;l/m%20",
    Readings
);

#[test]
fn a_refused_path_says_what_to_write() {
    let why = |written| RequestPath::parse(written).unwrap_err().to_string();
    assert_eq!(
        why("/v1/;x/admin"),
        "the path `/v1/;x/admin` is refused: some servers drop parameters, spaces or look-alikes \
         from it and then find an empty, `.` or `..` segment; send the path that is meant"
    );
}

#[test]
fn a_reading_has_a_longest_length_too() {
    // A server that reads `+` as a space sees three bytes for one.
    let path =
        |plus: usize, letters: usize| format!("/{}x{}", "x+".repeat(plus), "a".repeat(letters));
    let fault = |text: String| crate::RequestPath::parse(&text).err().map(|err| err.fault());
    let plus = crate::path_spelling::MAX_PATH_BYTES / 8;
    let rest = crate::path_spelling::MAX_PATH_BYTES - 2 - 4 * plus;
    assert_eq!(fault(path(plus, rest)), None);
    assert_eq!(fault(path(plus, rest + 1)), Some(PathFault::Length));
    assert_eq!(fault(path(plus, rest + 9)), Some(PathFault::Length));
}
