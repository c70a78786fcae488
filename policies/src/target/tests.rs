use proptest::prelude::*;

use super::*;

macro_rules! url {
    ($claim:ident, $written:expr, $expected:expr) => {
        #[test]
        fn $claim() {
            let shown = match Target::parse_url($written) {
                Ok(target) => target.to_string(),
                Err(err) => err.to_string(),
            };
            assert_eq!(shown, $expected);
        }
    };
}

url!(plain, "https://allowed.test/a?b=c", "https://allowed.test/a?b=c");
url!(no_path, "http://allowed.test", "http://allowed.test/");
url!(no_path_but_a_query, "http://allowed.test?q", "http://allowed.test/?q");
url!(an_empty_query_is_kept, "http://allowed.test/?", "http://allowed.test/?");
url!(a_default_port_is_left_out, "HTTP://allowed.test:80/", "http://allowed.test/");
url!(another_port_is_kept, "http://allowed.test:443/", "http://allowed.test:443/");
url!(an_address, "http://2130706433/", "http://127.0.0.1/"); // A9
url!(a_mapped_address, "http://[::ffff:a9fe:a9fe]/", "http://169.254.169.254/"); // A10
url!(a_query_may_hold_anything_visible, "http://a.test/?//../@:?", "http://a.test/?//../@:?");

// A7: which side of the `@` is the host?
url!(
    userinfo,
    "http://allowed.test@evil.test/",
    "`allowed.test@evil.test` is not a destination: a user name cannot stand in it; leave out what is before the `@`"
);
url!(
    a_backslash_before_userinfo,
    "http://evil.test\\@allowed.test/",
    r"`http://evil.test\@allowed.test/` is not a URL we can request: it holds a backslash, which some programs read as `/`"
);
url!(
    a_fragment_before_userinfo,
    "http://evil.test#@allowed.test/",
    "`http://evil.test#@allowed.test/` is not a URL we can request: it holds a fragment, which is never sent; leave out `#` and what follows"
);
url!(
    another_scheme,
    "file:///etc/passwd",
    "`file:///etc/passwd` is not a URL we can request: it does not start with `http://` or `https://`"
);
url!(
    too_few_slashes,
    "http:/allowed.test/",
    "`http:/allowed.test/` is not a URL we can request: it does not start with `http://` or `https://`"
);
url!(
    too_many_slashes,
    "http:///allowed.test/",
    "`` is not a destination: its host is wrong: it is empty"
);
url!(
    a_space_before,
    " http://allowed.test/",
    "` http://allowed.test/` is not a URL we can request: it does not start with `http://` or `https://`"
);
url!(
    a_dot_segment,
    "http://allowed.test/a/../b",
    "the path `/a/../b` is refused: it has a `.` or `..` segment; send the path it leads to"
);
url!(
    a_line_break_in_the_query,
    "http://allowed.test/?a\r\nb",
    r"the query `a\r\nb` is refused: it holds a control character or a space"
);

proptest! {
    #[test]
    fn any_text_is_read_or_refused_harmlessly(written in any::<String>()) {
        for written in [format!("http://{written}"), written] {
            if let Err(err) = Target::parse_url(&written) {
                prop_assert!(crate::quoted_input::is_harmless(&err.to_string()));
            }
        }
    }

    #[test]
    fn parse_is_idempotent(
        written in "(http|HTTPS)://[a-zA-Z0-9.-]{1,20}(:[0-9]{1,5})?(/[ -~]{0,20})?(\\?[!-~]{0,20})?"
    ) {
        if let Ok(target) = Target::parse_url(&written) {
            prop_assert_eq!(&Target::parse_url(&target.to_string()).unwrap(), &target);
        }
    }
}
