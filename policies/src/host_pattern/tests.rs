use expect_test::expect;
use proptest::prelude::*;

use super::*;

macro_rules! pattern {
    ($claim:ident, $written:expr, $canonical:expr) => {
        #[test]
        fn $claim() {
            assert_eq!(HostPattern::parse($written).unwrap().to_string(), $canonical);
        }
    };
}

pattern!(a_name, "API.GitHub.com.", "api.github.com");
pattern!(a_wildcard, "*.GitHub.com", "*.github.com");
pattern!(an_international_wildcard, "*.bücher.example", "*.xn--bcher-kva.example");
pattern!(a_single_label, "db", "db");
pattern!(a_public_suffix_itself, "github.io", "github.io");
pattern!(an_ipv4_address, "192.0.2.1", "192.0.2.1");
pattern!(an_ipv6_address, "2001:DB8:0::1", "[2001:db8::1]");
pattern!(an_ipv6_address_in_brackets, "[2001:db8::1]", "[2001:db8::1]");
pattern!(below_an_unknown_top_level, "*.wild.test", "*.wild.test");
pattern!(a_wildcard_on_shared_hosting_is_for_lint, "*.github.io", "*.github.io");

/// A6, and every other way to write more than was meant.
#[test]
fn what_is_refused_and_what_to_write_instead() {
    let refused = "
        * *.* ** *. *.com *.test *.co.uk *.公司.cn *.kawasaki.jp *.localhost
        *github.com foo*.example.com *foo.example.com
        api.*.example.com a.*.com *.*.example.com example.* *.exa*mple.com
        https://example.com https://*.example.com/ user@example.com
        example.com:8443 *.example.com:8443 [2001:db8::1]:443
        example.com/path *.example.com/v1 *.example.com/v1/* 10.0.0.0/8
        0x7f.1 127.1 ::ffff:10.0.0.1 [::ffff:a00:1] 1.2.3.4.5 *.1.2.3.4 fe80::1%eth0
        example..com .example.com example.com\0
    ";
    let mut messages = String::new();
    for written in refused.split_whitespace() {
        messages.push_str(&format!("{}\n", HostPattern::parse(written).unwrap_err()));
    }
    expect![[r#"
        `*` is not a host pattern: it would match every host; name the ones that are meant
        `*.*` is not a host pattern: it would match every host; name the ones that are meant
        `**` is not a host pattern: it would match every host; name the ones that are meant
        `*.` is not a host pattern: it would match every host; name the ones that are meant
        `*.com` is not a host pattern: `com` is a public suffix, under which names belong to anyone; write `*.name.com`
        `*.test` is not a host pattern: `test` is a public suffix, under which names belong to anyone; write `*.name.test`
        `*.co.uk` is not a host pattern: `co.uk` is a public suffix, under which names belong to anyone; write `*.name.co.uk`
        `*.公司.cn` is not a host pattern: `xn--55qx5d.cn` is a public suffix, under which names belong to anyone; write `*.name.xn--55qx5d.cn`
        `*.kawasaki.jp` is not a host pattern: `kawasaki.jp` is a public suffix, under which names belong to anyone; write `*.name.kawasaki.jp`
        `*.localhost` is not a host pattern: `localhost` is a public suffix, under which names belong to anyone; write `*.name.localhost`
        `*github.com` is not a host pattern: `*` stands for whole labels; write `*.github.com`, and `github.com` beside it if that is meant too
        `foo*.example.com` is not a host pattern: `*` stands for whole labels; write `*.example.com`, and `example.com` beside it if that is meant too
        `*foo.example.com` is not a host pattern: `*` stands for whole labels; write `*.foo.example.com`, and `foo.example.com` beside it if that is meant too
        `api.*.example.com` is not a host pattern: `*` can only be the whole of the first label, as in `*.example.com`
        `a.*.com` is not a host pattern: `*` can only be the whole of the first label, as in `*.example.com`
        `*.*.example.com` is not a host pattern: `*` can only be the whole of the first label, as in `*.example.com`
        `example.*` is not a host pattern: `*` can only be the whole of the first label, as in `*.example.com`
        `*.exa*mple.com` is not a host pattern: `*` can only be the whole of the first label, as in `*.example.com`
        `https://example.com` is not a host pattern: a scheme does not belong here; write the host alone, such as `example.com`
        `https://*.example.com/` is not a host pattern: a scheme does not belong here; write the host alone, such as `example.com`
        `user@example.com` is not a host pattern: a user name does not belong here; write the host alone, such as `example.com`
        `example.com:8443` is not a host pattern: a port does not belong here; write `port: 8443` beside `host: example.com`
        `*.example.com:8443` is not a host pattern: a port does not belong here; write `port: 8443` beside `host: *.example.com`
        `[2001:db8::1]:443` is not a host pattern: a port does not belong here; write `port: 443` beside `host: [2001:db8::1]`
        `example.com/path` is not a host pattern: a path does not belong here; write `paths:` beside `host: example.com`
        `*.example.com/v1` is not a host pattern: a path does not belong here; write `paths:` beside `host: *.example.com`
        `*.example.com/v1/*` is not a host pattern: a path does not belong here; write `paths:` beside `host: *.example.com`
        `10.0.0.0/8` is not a host pattern: a range does not belong here; write a host, and `addresses: [10.0.0.0/8]` beside it
        `0x7f.1` is not a host pattern: an IPv4 address has one spelling here; write `127.0.0.1`
        `127.1` is not a host pattern: an IPv4 address has one spelling here; write `127.0.0.1`
        `::ffff:10.0.0.1` is not a host pattern: an IPv4 address has one spelling here; write `10.0.0.1`
        `[::ffff:a00:1]` is not a host pattern: an IPv4 address has one spelling here; write `10.0.0.1`
        `1.2.3.4.5` is not a host pattern: it ends in a number but is no IPv4 address; write an address as `192.0.2.1`
        `*.1.2.3.4` is not a host pattern: `*` cannot stand before an address; write a host, and `addresses:` beside it
        `fe80::1%eth0` is not a host pattern: a zone such as `%eth0` has no meaning here; leave it out
        `example..com` is not a host pattern: a label is empty or longer than 63 bytes
        `.example.com` is not a host pattern: it starts with a dot; write `*.example.com`, and `example.com` beside it if that is meant too
        `example.com\u{0}` is not a host pattern: `\u{0}` cannot stand in one; use letters, digits, `-`, `_` and `.`
    "#]].assert_eq(&messages);
}

fn matches(pattern: &str, host: &str) -> bool {
    HostPattern::parse(pattern).unwrap().matches(&Host::parse(host).unwrap())
}

#[test]
fn a_wildcard_ends_at_a_label() {
    // A6.
    assert!(matches("*.wild.test", "a.wild.test"));
    assert!(matches("*.wild.test", "a.b.WILD.test."));
    assert!(!matches("*.wild.test", "wild.test"));
    assert!(!matches("*.wild.test", "evilwild.test"));
    assert!(!matches("*.wild.test", "wild.test.evil.test"));
    assert!(!matches("*.wild.test", "wildxtest"));
}

#[test]
fn a_name_matches_itself_alone() {
    // A4, A5.
    assert!(matches("allowed.test", "ALLOWED.test."));
    assert!(matches("evil.test", "evil。test"));
    assert!(!matches("allowed.test", "a.allowed.test"));
    assert!(!matches("allowed.test", "аllowed.test")); // Cyrillic.
}

#[test]
fn an_address_matches_every_spelling_of_itself() {
    assert!(matches("192.0.2.1", "0xc0000201"));
    assert!(matches("192.0.2.1", "[::ffff:192.0.2.1]"));
    assert!(!matches("192.0.2.1", "[64:ff9b::c000:201]"));
    assert!(!matches("192.0.2.1", "192.0.2.1.nip.test"));
    assert!(!matches("*.nip.test", "192.0.2.1"));
}

#[test]
fn shared_hosting_is_known() {
    for (pattern, shared) in [
        ("*.github.io", true),
        ("*.s3.amazonaws.com", true),
        ("*.compute.amazonaws.com", true),
        ("*.acme.github.io", false),
        ("*.github.com", false),
        ("github.io", false),
    ] {
        assert_eq!(HostPattern::parse(pattern).unwrap().is_shared_suffix(), shared, "{pattern}");
    }
}

#[test]
fn a_pattern_that_leads_nowhere_says_why() {
    for (pattern, class) in [
        ("localhost", Some(AddressClass::Loopback)),
        ("*.dev.localhost", Some(AddressClass::Loopback)),
        ("127.0.0.1", Some(AddressClass::Loopback)),
        ("169.254.169.254", Some(AddressClass::Metadata)),
        ("10.0.0.1", None),
        ("example.com", None),
    ] {
        assert_eq!(HostPattern::parse(pattern).unwrap().never_dialled(), class, "{pattern}");
    }
}

#[test]
fn the_error_of_a_document_says_what_to_write() {
    let err = serde_json::from_str::<HostPattern>(r#""*.com""#).unwrap_err();
    assert!(err.to_string().contains("`com` is a public suffix"), "{err}");
}

/// What the label rule means, said in the plainest way.
fn naive(suffix: &[String], host: &[String]) -> bool {
    host.len() > suffix.len() && host[host.len() - suffix.len()..] == *suffix
}

proptest! {
    #[test]
    fn a_wildcard_matches_by_whole_labels(
        suffix in proptest::collection::vec("[ab]{1,2}", 2..4),
        host in proptest::collection::vec("[ab]{1,2}", 1..6),
    ) {
        let pattern = HostPattern::Wildcard(HostName::parse(&suffix.join(".")).unwrap());
        let name = Host::parse(&host.join(".")).unwrap();
        prop_assert_eq!(pattern.matches(&name), naive(&suffix, &host));
    }

    #[test]
    fn any_text_is_read_or_refused_harmlessly(written in any::<String>()) {
        if let Err(err) = HostPattern::parse(&written) {
            prop_assert!(crate::quoted_input::is_harmless(&err.to_string()));
        }
    }

    #[test]
    fn parse_is_idempotent(written in "(\\*\\.)?[a-zA-Z0-9ü.:\\[\\]-]{1,30}") {
        if let Ok(pattern) = HostPattern::parse(&written) {
            prop_assert_eq!(&HostPattern::parse(&pattern.to_string()).unwrap(), &pattern);
        }
    }
}

#[test]
fn a_wildcard_is_told_what_is_wrong_with_its_host() {
    let why = |text: &str| HostPattern::parse(text).unwrap_err().to_string();
    let address = why("*.10.0.0.1");
    for host in ["*.a b.example", "*.-a.example", "*.a..example", "*.x.1"] {
        assert_ne!(why(host).replace(host, ""), address.replace("*.10.0.0.1", ""), "{host}");
    }
}
