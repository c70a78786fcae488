use proptest::prelude::*;

use super::*;

fn reach(ranges: &[&str]) -> Reach {
    Reach::with_ranges(ranges.iter().map(|r| AddressRange::parse(r).unwrap()).collect())
}

fn check(reach: &Reach, address: &str) -> Result<String, AddressClass> {
    let address: IpAddr = address.parse().unwrap();
    reach.check(SocketAddr::new(address, 443)).map(|d| d.get().to_string()).map_err(|f| f.class)
}

#[test]
fn without_ranges_only_public_addresses_pass() {
    let public = Reach::public();
    assert_eq!(check(&public, "93.184.216.34"), Ok("93.184.216.34:443".into()));
    for (address, class) in [
        ("10.0.0.1", AddressClass::Private),
        ("100.64.0.1", AddressClass::SharedNat),
        ("198.18.0.1", AddressClass::Benchmark),
        ("192.0.2.1", AddressClass::Documentation),
        ("240.0.0.1", AddressClass::Reserved),
        ("fd12::1", AddressClass::Private),
        ("127.0.0.1", AddressClass::Loopback),
    ] {
        assert_eq!(check(&public, address), Err(class), "{address}");
    }
}

#[test]
fn a_range_opens_itself_and_nothing_beside_it() {
    let office = reach(&["10.1.0.0/16", "fd12::/16"]);
    assert!(check(&office, "10.1.2.3").is_ok());
    assert!(check(&office, "fd12:1::1").is_ok());
    assert_eq!(check(&office, "10.2.0.1"), Err(AddressClass::Private));
    assert_eq!(check(&office, "fd13::1"), Err(AddressClass::Private));
}

// D7: not overridable by a wide range.
#[test]
fn the_widest_range_does_not_open_what_is_never_dialled() {
    let everything = reach(&["0.0.0.0/0", "::/0"]);
    for (address, class) in [
        ("169.254.169.254", AddressClass::Metadata),
        ("100.100.100.200", AddressClass::Metadata),
        ("168.63.129.16", AddressClass::Metadata),
        ("192.0.0.192", AddressClass::Metadata),
        ("fd00:ec2::254", AddressClass::Metadata),
        ("fd20:ce::254", AddressClass::Metadata),
        ("::ffff:169.254.169.254", AddressClass::Metadata),
        ("64:ff9b::a9fe:a9fe", AddressClass::Metadata),
        ("127.0.0.1", AddressClass::Loopback),
        ("::1", AddressClass::Loopback),
        ("2002:7f00:1::", AddressClass::Loopback),
        ("169.254.1.1", AddressClass::LinkLocal),
        ("fe80::1", AddressClass::LinkLocal),
        ("224.0.0.1", AddressClass::Multicast),
        ("ff02::1", AddressClass::Multicast),
        ("0.0.0.0", AddressClass::Unspecified),
        ("::", AddressClass::Unspecified),
        ("255.255.255.255", AddressClass::Broadcast),
        ("198.18.0.1", AddressClass::Benchmark),
        ("198.19.255.255", AddressClass::Benchmark),
        ("64:ff9b::c612:1", AddressClass::Benchmark),
    ] {
        assert_eq!(check(&everything, address), Err(class), "{address}");
    }
}

#[test]
fn a_range_covers_what_an_address_carries() {
    let office = reach(&["10.0.0.0/8"]);
    assert!(check(&office, "64:ff9b::a00:1").is_ok());
    assert!(check(&office, "64:ff9b:1::a00:1").is_ok());
    assert_eq!(check(&office, "64:ff9b::c0a8:1"), Err(AddressClass::Private));
    // 10.0.0.1 in the last bytes, 192.168.0.1 for a translator that reads
    // after 48 bits.
    assert_eq!(check(&office, "64:ff9b:1:c0a8:0:100:a00:1"), Err(AddressClass::Private));
}

#[test]
fn a_mapped_address_is_dialled_as_ipv4() {
    assert_eq!(check(&Reach::public(), "::ffff:93.184.216.34"), Ok("93.184.216.34:443".into()));
}

#[test]
fn a_refusal_says_whether_a_rule_could_help() {
    let refusal = |a: &str| {
        Reach::public().check(SocketAddr::new(a.parse().unwrap(), 1)).unwrap_err().to_string()
    };
    assert_eq!(
        refusal("10.0.0.1"),
        "`10.0.0.1` is a private address; a rule reaches it only if its `addresses` name it"
    );
    assert_eq!(refusal("::1"), "`::1` is a loopback address; no rule can reach it");
}

macro_rules! range {
    ($claim:ident, $written:expr, $expected:expr) => {
        #[test]
        fn $claim() {
            let shown = match AddressRange::parse($written) {
                Ok(range) => range.to_string(),
                Err(err) => err.fault().to_string(),
            };
            assert_eq!(shown, $expected);
        }
    };
}

const SYNTAX: &str = "write one such as `10.0.0.0/8`, `fd12:3456::/32` or `10.1.2.3`";

range!(a_range, "10.0.0.0/8", "10.0.0.0/8");
range!(a_single_address, "10.1.2.3", "10.1.2.3");
range!(a_single_address_as_a_range, "10.1.2.3/32", "10.1.2.3");
range!(an_ipv6_range, "FD12:3456::/32", "fd12:3456::/32");
range!(everything, "0.0.0.0/0", "0.0.0.0/0");
range!(more_than_multicast, "224.0.0.0/3", "224.0.0.0/3");
range!(host_bits, "10.1.2.3/8", "bits are set after the prefix; write `10.0.0.0/8`");
range!(host_bits_v6, "fd12::1/16", "bits are set after the prefix; write `fd12::/16`");
range!(mapped, "::ffff:10.0.0.0/104", "it is IPv4 written as IPv6; write `10.0.0.0/8`");
range!(a_name, "internal.example", SYNTAX);
range!(a_short_address, "10/8", SYNTAX);
range!(an_octal_address, "010.0.0.1", SYNTAX);
range!(a_prefix_too_long, "10.0.0.0/33", SYNTAX);
range!(a_mask, "10.0.0.0/255.0.0.0", SYNTAX);
range!(a_zone, "fe80::1%eth0", SYNTAX);
range!(nothing, "", SYNTAX);

macro_rules! useless {
    ($claim:ident, $written:expr, $class:ident) => {
        #[test]
        fn $claim() {
            let err = AddressRange::parse($written).unwrap_err();
            assert_eq!(err.fault(), RangeFault::NeverDialled(AddressClass::$class));
        }
    };
}

useless!(all_loopback, "127.0.0.0/8", Loopback);
useless!(one_loopback, "127.0.0.1", Loopback);
useless!(loopback_v6, "::1", Loopback);
useless!(part_of_link_local, "169.254.1.0/24", LinkLocal);
useless!(link_local_v6, "fe80::/64", LinkLocal);
useless!(one_metadata_address, "169.254.169.254/32", Metadata);
useless!(a_metadata_address_in_shared_nat, "100.100.100.200", Metadata);
useless!(the_services_of_amazon, "fd00:ec2::/64", Metadata);
useless!(multicast, "239.0.0.0/8", Multicast);
useless!(multicast_v6, "ff00::/8", Multicast);
useless!(this_network, "0.0.0.0/8", Unspecified);
useless!(what_names_are_answered_with, "198.18.0.0/15", Benchmark);
useless!(part_of_what_names_are_answered_with, "198.19.0.0/24", Benchmark);
useless!(one_address_of_a_name, "198.19.0.1", Benchmark);
useless!(benchmark_v6, "2001:2::/48", Benchmark);
useless!(broadcast, "255.255.255.255", Broadcast);
useless!(carried_loopback, "64:ff9b::7f00:1", Loopback);

#[test]
fn a_range_without_effect_says_so() {
    assert_eq!(
        AddressRange::parse("127.0.0.0/8").unwrap_err().to_string(),
        "`127.0.0.0/8` is not a range of addresses: loopback addresses are never dialled, \
         so it would have no effect; leave it out"
    );
}

proptest! {
    #[test]
    fn what_is_never_dialled_is_never_dialled(address: IpAddr, port: u16) {
        let class = AddressClass::of(address);
        let checked = reach(&["0.0.0.0/0", "::/0"]).check(SocketAddr::new(address, port));
        prop_assert_eq!(checked.is_ok(), !class.is_never_dialled());
    }

    #[test]
    fn ranges_only_ever_add(address: IpAddr, range in "(10|172|192|203)\\.0\\.0\\.0/(8|16)") {
        if let Ok(narrow) = Reach::public().check(SocketAddr::new(address, 1)) {
            prop_assert_eq!(reach(&[&range]).check(SocketAddr::new(address, 1)), Ok(narrow));
        }
    }

    #[test]
    fn a_range_reads_back_as_itself(address: IpAddr, prefix in 0u8..=128) {
        let Ok(net) = IpNet::new(address, prefix) else { return Ok(()) };
        if let Ok(range) = AddressRange::parse(&net.trunc().to_string()) {
            prop_assert_eq!(AddressRange::parse(&range.to_string()).unwrap(), range);
        }
    }

    #[test]
    fn any_text_is_read_or_refused_harmlessly(written in any::<String>()) {
        if let Err(err) = AddressRange::parse(&written) {
            prop_assert!(crate::quoted_input::is_harmless(&err.to_string()));
        }
    }
}

#[test]
fn a_range_is_the_network_that_was_written() {
    let range = AddressRange::parse("10.1.0.0/16").unwrap();
    assert_eq!(range.net().to_string(), "10.1.0.0/16");
}
