use proptest::prelude::*;

use super::*;

macro_rules! host {
    ($claim:ident, $written:expr, Ok($canonical:expr)) => {
        #[test]
        fn $claim() {
            assert_eq!(Host::parse($written).unwrap().to_string(), $canonical);
        }
    };
    ($claim:ident, $written:expr, Err($fault:ident)) => {
        #[test]
        fn $claim() {
            assert_eq!(Host::parse($written).unwrap_err().fault(), HostFault::$fault);
        }
    };
}

host!(a_name, "Allowed.test.", Ok("allowed.test"));
host!(an_ipv4_address, "192.0.2.1", Ok("192.0.2.1"));
host!(an_ipv6_address, "[2001:DB8:0::1]", Ok("[2001:db8::1]"));

// A9: every spelling of an address is the address.
host!(one_number, "2130706433", Ok("127.0.0.1"));
host!(hexadecimal, "0x7f.1", Ok("127.0.0.1"));
host!(octal, "0177.0.0.1", Ok("127.0.0.1"));
host!(short, "127.1", Ok("127.0.0.1"));
host!(full_width, "１２７。１", Ok("127.0.0.1"));
host!(too_large, "4294967296", Err(Number));
host!(five_parts, "1.2.3.4.5", Err(Number));

// A10: a mapped address is the IPv4 address.
host!(mapped, "[::ffff:169.254.169.254]", Ok("169.254.169.254"));
host!(mapped_in_hexadecimal, "[::ffff:a9fe:a9fe]", Ok("169.254.169.254"));
host!(mapped_in_full, "[0:0:0:0:0:ffff:a9fe:a9fe]", Ok("169.254.169.254"));

host!(ipv6_without_brackets, "::1", Err(Brackets));
host!(an_open_bracket, "[::1", Err(Brackets));
host!(brackets_in_brackets, "[[::1]]", Err(Brackets));
host!(a_name_in_brackets, "[allowed.test]", Err(Brackets));
host!(ipv4_in_brackets, "[127.0.0.1]", Err(Brackets));
host!(nothing_in_brackets, "[]", Err(Brackets));
host!(a_zone, "[fe80::1%eth0]", Err(Zone));
host!(a_zone_without_brackets, "fe80::1%eth0", Err(Zone));
host!(an_escaped_zone, "[fe80::1%25eth0]", Err(Zone));

macro_rules! authority {
    ($claim:ident, $written:expr, Ok($canonical:expr)) => {
        #[test]
        fn $claim() {
            let written: &[u8] = $written.as_ref();
            assert_eq!(Authority::parse_bytes(written).unwrap().to_string(), $canonical);
        }
    };
    ($claim:ident, $written:expr, Err($fault:expr)) => {
        #[test]
        fn $claim() {
            let written: &[u8] = $written.as_ref();
            assert_eq!(Authority::parse_bytes(written).unwrap_err().fault(), $fault);
        }
    };
}

use AuthorityFault::{Host as InHost, Port, UserInfo};
use HostFault::{Brackets, Character, Empty, Encoding, Label};

authority!(without_a_port, "Allowed.test", Ok("allowed.test"));
authority!(with_a_port, "allowed.test.:443", Ok("allowed.test:443"));
authority!(the_highest_port, "allowed.test:65535", Ok("allowed.test:65535"));
authority!(ipv6_with_a_port, "[::1]:80", Ok("[::1]:80"));
authority!(ipv6_without_a_port, "[2001:db8::1]", Ok("[2001:db8::1]"));

// A1, A2: bytes that must never reach an upstream line.
authority!(nul, "evil.test\0.allowed.test:443", Err(InHost(Character('\0'))));
authority!(line_break, "allowed.test\r\nX:443", Err(InHost(Character('\r'))));
authority!(a_leading_space, " allowed.test:443", Err(InHost(Character(' '))));
authority!(a_space_before_the_port, "allowed.test: 443", Err(Port));
authority!(a_line_break_after_the_port, "allowed.test:443\r\n", Err(Port));
authority!(bytes_that_are_no_text, b"\xff.test:1", Err(InHost(Encoding)));

// A3: two trailing dots.
authority!(two_trailing_dots, "allowed.test..:443", Err(InHost(Label)));

// A7: userinfo.
authority!(a_user, "allowed.test@evil.test", Err(UserInfo));
authority!(a_user_and_password, "user:pass@evil.test:443", Err(UserInfo));
authority!(an_empty_user, "@evil.test", Err(UserInfo));
authority!(a_user_in_brackets, "[::1@evil.test]", Err(UserInfo));

// B6: an empty host.
authority!(nothing, "", Err(InHost(Empty)));
authority!(a_port_alone, ":443", Err(InHost(Empty)));

authority!(an_empty_port, "allowed.test:", Err(Port));
authority!(an_empty_port_after_ipv6, "[::1]:", Err(Port));
authority!(port_zero, "allowed.test:0", Err(Port));
authority!(a_port_too_high, "allowed.test:65536", Err(Port));
authority!(a_huge_port, "allowed.test:99999999999999999999", Err(Port));
authority!(a_signed_port, "allowed.test:+443", Err(Port));
authority!(a_padded_port, "allowed.test:0443", Err(Port));
authority!(a_hexadecimal_port, "allowed.test:0x1bb", Err(Port));
authority!(digits_of_another_script, "allowed.test:４４３", Err(Port));
authority!(text_after_brackets, "[::1]x:80", Err(Port));
authority!(two_ports, "allowed.test:80:443", Err(InHost(Brackets)));
authority!(ipv6_bare, "::1:443", Err(InHost(Brackets)));
authority!(a_path, "allowed.test/x", Err(InHost(Character('/'))));

#[test]
fn connect_needs_a_port() {
    let err = Destination::parse("allowed.test").unwrap_err();
    assert_eq!(err.fault(), AuthorityFault::NoPort);
    assert_eq!(
        err.to_string(),
        "`allowed.test` is not a destination: it has no port; write one, as in `example.com:443`"
    );
    assert_eq!(Destination::parse("[::1]:1").unwrap().to_string(), "[::1]:1");
}

#[test]
fn an_unwritten_port_is_the_default() {
    let to = |written| Authority::parse(written).unwrap().destination(443).to_string();
    assert_eq!(to("a.test"), "a.test:443");
    assert_eq!(to("a.test:8443"), "a.test:8443");
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_harmlessly(written in proptest::collection::vec(any::<u8>(), 0..100)) {
        if let Err(err) = Authority::parse_bytes(&written) {
            prop_assert!(crate::quoted_input::is_harmless(&err.to_string()));
        }
    }

    #[test]
    fn parse_is_idempotent(written in "\\[?[a-zA-Z0-9.:xü。-]{0,30}\\]?(:[0-9+]{0,6})?") {
        if let Ok(authority) = Authority::parse(&written) {
            prop_assert_eq!(&Authority::parse(&authority.to_string()).unwrap(), &authority);
        }
    }

    #[test]
    fn every_address_reads_back_as_itself(address: std::net::IpAddr, port in 1u16..) {
        let host = Host::from(address);
        prop_assert_eq!(&Host::parse(&host.to_string()).unwrap(), &host);
        let to = Destination { host, port };
        prop_assert_eq!(&Destination::parse(&to.to_string()).unwrap(), &to);
    }
}
