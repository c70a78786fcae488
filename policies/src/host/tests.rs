use proptest::prelude::*;

use super::*;

macro_rules! name {
    ($claim:ident, $written:expr, Ok($canonical:expr)) => {
        #[test]
        fn $claim() {
            assert_eq!(HostName::parse($written).unwrap().as_str(), $canonical);
        }
    };
    ($claim:ident, $written:expr, Err($fault:expr)) => {
        #[test]
        fn $claim() {
            assert_eq!(HostName::parse($written).unwrap_err().fault(), $fault);
        }
    };
}

use HostFault::*;

name!(plain, "allowed.test", Ok("allowed.test"));
name!(one_label, "db", Ok("db"));
name!(localhost_is_a_name_and_the_address_check_decides, "LocalHost", Ok("localhost"));
name!(underscore, "_dmarc.example.com", Ok("_dmarc.example.com"));
name!(hyphens_in_the_third_and_fourth_place, "r3---sn-x.example.com", Ok("r3---sn-x.example.com"));
name!(a_label_of_63, &format!("{}.test", "a".repeat(63)), Ok(format!("{}.test", "a".repeat(63))));
name!(a_name_that_spells_an_address, "10-0-0-1.nip.test", Ok("10-0-0-1.nip.test")); // A13
name!(numbers_before_a_name, "10.0.0.1.nip.test", Ok("10.0.0.1.nip.test")); // A13

// A1, A2: bytes outside the alphabet.
name!(nul_inside, "evil.test\0.allowed.test", Err(Character('\0')));
name!(carriage_return, "allowed.test\r", Err(Character('\r')));
name!(line_feed, "allowed\n.test", Err(Character('\n')));
name!(tab, "allowed\t.test", Err(Character('\t')));
name!(space, "allowed.test ", Err(Character(' ')));
name!(delete, "allowed.test\x7f", Err(Character('\x7f')));
name!(percent, "allowed%2etest", Err(Character('%')));
name!(userinfo, "allowed.test@evil.test", Err(Character('@')));
name!(slash, "evil.test/.allowed.test", Err(Character('/')));
name!(backslash, "evil.test\\.allowed.test", Err(Character('\\')));
name!(port, "allowed.test:443", Err(Character(':')));
name!(wildcard, "*.allowed.test", Err(Character('*')));
name!(nothing, "", Err(Empty));

// A3: trailing dots.
name!(one_trailing_dot, "allowed.test.", Ok("allowed.test"));
name!(two_trailing_dots, "allowed.test..", Err(Label));
name!(an_empty_label, "allowed..test", Err(Label));
name!(a_leading_dot, ".allowed.test", Err(Label));
name!(the_root, ".", Err(Label));
name!(a_trailing_ideographic_stop, "allowed.test。", Ok("allowed.test"));
name!(a_trailing_dot_and_an_ideographic_stop, "allowed.test.。", Err(Label));

// A4: case.
name!(upper_case, "ALLOWED.test", Ok("allowed.test"));
name!(upper_case_punycode, "XN--BCHER-KVA.test", Ok("xn--bcher-kva.test"));

// A5: international names.
name!(ideographic_stop_is_a_dot, "evil。test", Ok("evil.test"));
name!(full_width_letters, "ａｌｌｏｗｅｄ.test", Ok("allowed.test"));
name!(a_cyrillic_look_alike_is_another_name, "аllowed.test", Ok("xn--llowed-2nf.test"));
name!(sharp_s_is_kept, "straße.test", Ok("xn--strae-oqa.test"));
name!(a_soft_hyphen_vanishes, "allo\u{ad}wed.test", Ok("allowed.test"));
name!(a_label_of_nothing_visible, "\u{ad}.test", Err(Label));
name!(invalid_punycode, "xn--a.test", Err(International));
name!(punycode_of_ascii, "xn--allowed-.test", Err(International));
name!(punycode_of_upper_case, "xn--bcher-2pa.test", Err(International));
name!(a_bidi_override, "a\u{202e}b.test", Err(International));
name!(a_character_that_becomes_a_slash, "a\u{2100}.test", Err(International));
name!(a_full_width_percent, "a\u{ff05}2e.test", Err(International));
name!(a_full_width_at, "allowed.test\u{ff20}evil.test", Err(International));

// A9: addresses are not names, in any spelling.
name!(dotted, "1.2.3.4", Err(Address));
name!(decimal, "2130706433", Err(Address));
name!(hexadecimal, "0x7f.1", Err(Address));
name!(octal, "0177.0.0.1", Err(Address));
name!(short, "127.1", Err(Address));
name!(with_a_trailing_dot, "127.0.0.1.", Err(Address));
name!(in_full_width_digits, "１２７.0.0.1", Err(Address));
name!(with_ideographic_stops, "127。0。0。1", Err(Address));
name!(upper_case_hexadecimal, "0X7F000001", Err(Address));
name!(ipv6, "::1", Err(Address));
name!(a_number_at_the_end, "example.1", Err(Number));
name!(too_many_numbers, "1.2.3.4.5", Err(Number));

name!(a_label_of_64, &format!("{}.test", "a".repeat(64)), Err(Label));
name!(a_name_of_254, &format!("{}aaaaa", "a.".repeat(124) + "a"), Err(Length));
name!(a_leading_hyphen, "-a.test", Err(Hyphen));
name!(a_trailing_hyphen, "a-.test", Err(Hyphen));

#[test]
fn the_longest_name_is_253_bytes() {
    let longest = format!("{}a", "a.".repeat(126));
    assert_eq!(longest.len(), 253);
    assert!(HostName::parse(&longest).is_ok());
    assert!(HostName::parse(&format!("{longest}.")).is_ok());
    assert_eq!(HostName::parse(&format!("{longest}a")).unwrap_err().fault(), Length);
}

#[test]
fn bytes_that_are_not_text_are_not_a_name() {
    let err = HostName::parse_bytes(b"evil\xff.test").unwrap_err();
    assert_eq!(
        err.to_string(),
        r"`evil\xff.test` is not a host name: it is not UTF-8; write it in punycode (`xn--…`)"
    );
}

#[test]
fn an_error_cannot_be_used_to_forge_a_line() {
    let err = HostName::parse("a\r\nHost: evil").unwrap_err();
    assert_eq!(
        err.to_string(),
        r"`a\r\nHost: evil` is not a host name: `\r` cannot stand in one; use letters, digits, `-`, `_` and `.`"
    );
}

#[test]
fn parents_are_whole_labels() {
    let host = HostName::parse("a.bc.test").unwrap();
    assert_eq!(host.parents().collect::<Vec<_>>(), ["bc.test", "test"]);
    assert_eq!(HostName::parse("test").unwrap().parents().count(), 0);
}

#[test]
fn names_of_the_machine_itself_are_known() {
    for (name, is) in [
        ("localhost", true),
        ("a.localhost", true),
        ("notlocalhost", false),
        ("localhost.a", false),
    ] {
        assert_eq!(HostName::parse(name).unwrap().is_loopback(), is, "{name}");
    }
}

/// Text that comes close to being a name, in all the ways the table above does.
fn nearly_a_name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[A-Za-z0-9._-]{1,80}",
        "(xn--)?[a-z0-9-]{1,20}(\\.|。)(XN--)?[a-z0-9ü-]{0,20}\\.?",
        "[\\PC.]{0,40}",
        "[0-9xXa-f.]{1,20}",
        any::<String>(),
    ]
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_harmlessly(written in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Err(err) = HostName::parse_bytes(&written) {
            prop_assert!(crate::quoted_input::is_harmless(&err.to_string()));
        }
    }

    /// Reading is idempotent, so a name can be stored and read back freely.
    #[test]
    fn parse_is_idempotent(written in nearly_a_name()) {
        if let Ok(host) = HostName::parse(&written) {
            prop_assert_eq!(&HostName::parse(host.as_str()).unwrap(), &host);
        }
    }

    #[test]
    fn a_name_holds_only_its_alphabet(written in nearly_a_name()) {
        if let Ok(host) = HostName::parse(&written) {
            let name = host.as_str();
            prop_assert!((1..=253).contains(&name.len()));
            prop_assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b)));
            prop_assert!(name.split('.').all(|label| (1..=63).contains(&label.len())));
        }
    }

    /// The same four bytes, however spelt, are never a name.
    #[test]
    fn no_spelling_of_an_address_is_a_name(address: u32, form in 0..5) {
        let [a, b, c, d] = address.to_be_bytes();
        let written = match form {
            0 => format!("{address}"),
            1 => format!("{address:#x}"),
            2 => format!("0{address:o}"),
            3 => format!("{a:#x}.0{b:o}.{c}.{d}"),
            _ => format!("{a}.{}", address & 0x00ff_ffff),
        };
        prop_assert_eq!(HostName::parse(&written).unwrap_err().fault(), Address);
    }
}

/// Mapping costs time, so its input is bounded; the bound is the longest text
/// that can still map to a name.
#[test]
fn a_text_that_is_too_long_is_refused_before_it_is_mapped() {
    let wide = |letters: usize| "\u{1d41a}".repeat(letters);
    let name = [wide(63), wide(63), wide(63), wide(61)].join("\u{ff0e}");
    let longest = format!("{name}\u{200b}");
    assert_eq!(longest.len(), 4 * MAX_HOST_BYTES);
    assert_eq!(HostName::parse(&longest).unwrap().as_str().len(), MAX_HOST_BYTES);
    let longer = format!("{name}\u{ad}\u{ad}");
    assert_eq!(longer.len(), 4 * MAX_HOST_BYTES + 1);
    assert_eq!(HostName::parse(&longer).unwrap_err().fault(), HostFault::Length);
}

#[test]
fn a_number_of_any_size_is_no_name() {
    for number in ["0x100000000", "0x100000000.", "0x1.0x100000000", "4294967296", "a.0xfffffffff"]
    {
        assert_eq!(HostName::parse(number).unwrap_err().fault(), HostFault::Number, "{number}");
    }
    for name in ["0xg", "0x1g", "1.0xg"] {
        assert_eq!(HostName::parse(name).unwrap().as_str(), name);
    }
}

#[test]
fn a_name_is_its_text_wherever_it_is_compared() {
    let name = HostName::parse("API.example").unwrap();
    assert_eq!(AsRef::<str>::as_ref(&name), "api.example");
    assert_eq!(std::borrow::Borrow::<str>::borrow(&name), "api.example");
    assert_eq!(format!("{name:?}"), "\"api.example\"");
    let set = std::collections::BTreeSet::from([name]);
    assert!(set.contains("api.example") && !set.contains("xyzzy"));
}
