use proptest::prelude::*;

use super::*;

macro_rules! verdict {
    ($claim:ident, $address:expr, $class:ident) => {
        #[test]
        fn $claim() {
            assert_eq!(AddressClass::of($address.parse().unwrap()), AddressClass::$class);
        }
    };
}

verdict!(public_v4, "93.184.216.34", Public);
verdict!(public_v6, "2606:2800:220:1::1", Public);
verdict!(the_first_public_v4, "1.0.0.0", Public);
verdict!(the_last_public_v4, "223.255.255.255", Public);

// The IANA IPv4 special-purpose registry, first and last of each block.
verdict!(this_network, "0.0.0.0", Unspecified);
verdict!(this_network_end, "0.255.255.255", Unspecified);
verdict!(private_10, "10.0.0.0", Private);
verdict!(private_10_end, "10.255.255.255", Private);
verdict!(after_private_10, "11.0.0.0", Public);
verdict!(before_shared_nat, "100.63.255.255", Public);
verdict!(shared_nat, "100.64.0.0", SharedNat);
verdict!(shared_nat_end, "100.127.255.255", SharedNat);
verdict!(after_shared_nat, "100.128.0.0", Public);
verdict!(loopback, "127.0.0.1", Loopback);
verdict!(loopback_end, "127.255.255.255", Loopback);
verdict!(link_local, "169.254.0.1", LinkLocal);
verdict!(before_private_172, "172.15.255.255", Public);
verdict!(private_172, "172.16.0.0", Private);
verdict!(private_172_end, "172.31.255.255", Private);
verdict!(after_private_172, "172.32.0.0", Public);
verdict!(protocol_assignments, "192.0.0.8", Reserved);
verdict!(documentation_1, "192.0.2.1", Documentation);
verdict!(relays_of_6to4, "192.88.99.1", Reserved);
verdict!(private_192, "192.168.255.255", Private);
verdict!(benchmark, "198.18.0.0", Benchmark);
verdict!(benchmark_end, "198.19.255.255", Benchmark);
verdict!(documentation_2, "198.51.100.1", Documentation);
verdict!(documentation_3, "203.0.113.255", Documentation);
verdict!(multicast, "224.0.0.1", Multicast);
verdict!(multicast_end, "239.255.255.255", Multicast);
verdict!(reserved, "240.0.0.1", Reserved);
verdict!(reserved_end, "255.255.255.254", Reserved);
verdict!(broadcast, "255.255.255.255", Broadcast);

// The IANA IPv6 special-purpose registry.
verdict!(unspecified_v6, "::", Unspecified);
verdict!(loopback_v6, "::1", Loopback);
verdict!(discard, "100::1", Reserved);
verdict!(dummy_prefix, "100:0:0:1::1", Reserved);
verdict!(anycast, "2001:1::1", Reserved);
verdict!(benchmark_v6, "2001:2::1", Benchmark);
verdict!(orchid, "2001:20::1", Reserved);
verdict!(drone_identities, "2001:30::1", Reserved);
verdict!(the_last_assignment, "2001:1ff:ffff::1", Reserved);
verdict!(after_the_assignments, "2001:200::1", Public);
verdict!(documentation_v6, "2001:db8::1", Documentation);
verdict!(more_documentation_v6, "3fff:fff::1", Documentation);
verdict!(after_documentation_v6, "3fff:1000::1", Public);
verdict!(segment_routing, "5f00::1", Reserved);
verdict!(unassigned_v6, "4000::1", Reserved);
verdict!(unique_local, "fd12:3456::1", Private);
verdict!(unique_local_unassigned_half, "fc00::1", Private);
verdict!(link_local_v6, "fe80::1", LinkLocal);
verdict!(link_local_v6_end, "febf::1", LinkLocal);
verdict!(site_local, "fec0::1", Reserved);
verdict!(multicast_v6, "ff02::1", Multicast);

// D7: every cloud's metadata address.
verdict!(metadata_of_nearly_everyone, "169.254.169.254", Metadata);
verdict!(metadata_alibaba, "100.100.100.200", Metadata);
verdict!(metadata_alibaba_v6, "fd00:100::100:200", Metadata);
verdict!(metadata_akamai_v6, "fd00:a9fe:a9fe::1", Metadata);
verdict!(metadata_amazon_ecs, "169.254.170.2", Metadata);
verdict!(metadata_amazon_eks, "169.254.170.23", Metadata);
verdict!(metadata_amazon_eks_v6, "fd00:ec2::23", Metadata);
verdict!(metadata_amazon_resolver, "169.254.169.253", Metadata);
verdict!(metadata_amazon_v6, "fd00:ec2::254", Metadata);
verdict!(metadata_azure_wire_server, "168.63.129.16", Metadata);
verdict!(metadata_google_v6, "fd20:ce::254", Metadata);
verdict!(metadata_openstack_v6, "fe80::a9fe:a9fe", Metadata);
verdict!(metadata_oracle, "192.0.0.192", Metadata);
verdict!(metadata_oracle_v6, "fd00:c1::a9fe:a9fe", Metadata);
verdict!(metadata_scaleway, "169.254.42.42", Metadata);
verdict!(metadata_scaleway_v6, "fd00:42::42", Metadata);
verdict!(metadata_tencent, "169.254.0.23", Metadata);

// A10: an address that carries IPv4 is judged as what it carries.
verdict!(mapped_metadata, "::ffff:169.254.169.254", Metadata);
verdict!(mapped_private, "::ffff:10.0.0.1", Private);
verdict!(mapped_public, "::ffff:93.184.216.34", Public);
verdict!(compatible_loopback, "::127.0.0.1", Loopback);
verdict!(compatible_public, "::93.184.216.34", Reserved);
verdict!(translated_private, "::ffff:0:10.0.0.1", Private);
verdict!(translated_public, "::ffff:0:93.184.216.34", Reserved);
verdict!(nat64_metadata, "64:ff9b::a9fe:a9fe", Metadata);
verdict!(nat64_private, "64:ff9b::a00:1", Private);
verdict!(nat64_public, "64:ff9b::5db8:d822", Public);
verdict!(local_nat64_metadata, "64:ff9b:1::a9fe:a9fe", Metadata);
verdict!(local_nat64_metadata_after_48_bits, "64:ff9b:1:a9fe:a9:fe00::", Metadata);
verdict!(local_nat64_metadata_after_56_bits, "64:ff9b:1:a9:fe:a9fe::", Metadata);
verdict!(local_nat64_metadata_after_64_bits, "64:ff9b:1:0:a9:fea9:fe00:0", Metadata);
verdict!(local_nat64_private, "64:ff9b:1::a00:1", Private);
verdict!(local_nat64_private_after_48_bits, "64:ff9b:1:a00:0:100::", Private);
verdict!(local_nat64_public, "64:ff9b:1::5db8:d822", Reserved);
verdict!(outside_both_nat64_prefixes, "64:ff9b:2::a00:1", Reserved);
verdict!(six_to_four_loopback, "2002:7f00:1::", Loopback);
verdict!(six_to_four_private, "2002:a00:1::1", Private);
verdict!(six_to_four_public, "2002:5db8:d822::1", Reserved);
verdict!(teredo_loopback, "2001:0:4136:e378:8000:63bf:80ff:fffe", Loopback);
verdict!(teredo_public, "2001:0:4136:e378:8000:63bf:a247:27dd", Reserved);
verdict!(isatap_private, "2606:2800::5efe:a00:1", Private);
verdict!(isatap_with_the_global_bit, "2606:2800::200:5efe:7f00:1", Loopback);
verdict!(isatap_public, "2606:2800::5efe:5db8:d822", Reserved);
verdict!(isatap_private_on_the_link, "fe80::5efe:a00:1", LinkLocal);

#[test]
fn what_an_address_carries() {
    let carried = |a: &str| embedded_v4(a.parse().unwrap()).map(|v4| v4.to_string());
    assert_eq!(carried("64:ff9b::a00:1").as_deref(), Some("10.0.0.1"));
    assert_eq!(carried("64:ff9b:1:a00:0:100::").as_deref(), Some("10.0.0.1"));
    assert_eq!(carried("2001:0:4136:e378:8000:63bf:3fff:fdd2").as_deref(), Some("192.0.2.45"));
    assert_eq!(carried("2606:2800::1"), None);
}

proptest! {
    /// Every carrier of an address that is not public is as forbidden as it is.
    #[test]
    fn no_carrier_makes_an_address_more_reachable(v4: Ipv4Addr, form in 0..8usize) {
        let [a, b, c, d] = v4.octets();
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let carrier = [
            Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
            Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
            Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
            Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            Ipv6Addr::new(0x2001, 0, 0x4136, 0xe378, 0x8000, 0x63bf, !high, !low),
            Ipv6Addr::new(0x2606, 0x2800, 0, 0, 0, 0x5efe, high, low),
            Ipv6Addr::new(0x2606, 0x2800, 0, 0, 0x200, 0x5efe, high, low),
        ][form];
        prop_assert_eq!(embedded_v4(carrier), Some(v4));
        let (inner, outer) = (AddressClass::of(v4.into()), AddressClass::of(carrier.into()));
        match (inner, form) {
            (AddressClass::Public, 0 | 1) => prop_assert_eq!(outer, AddressClass::Public),
            (AddressClass::Public, _) => prop_assert_eq!(outer, AddressClass::Reserved),
            (inner, _) => prop_assert_eq!(outer, inner),
        }
    }

    #[test]
    fn ipv6_is_public_only_where_the_internet_is(address: Ipv6Addr) {
        if AddressClass::of(address.into()) == AddressClass::Public {
            let first = address.segments()[0];
            prop_assert!(first >> 13 == 1 || embedded_v4(address).is_some());
        }
    }
}
