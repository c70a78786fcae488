//! What kind of address an address is.
//!
//! A sandbox chooses host names, and whoever runs the DNS zone chooses what they
//! resolve to. So the check that counts is on the address, after resolution, and
//! it starts by naming the address's class. [`crate::Reach`] then says which
//! classes may be dialled.
//!
//! The classes follow the IANA special-purpose registries for IPv4 and IPv6.
//! IPv6 is read the other way round than IPv4: only `2000::/3` is in public use,
//! so whatever is not known to be public is [`AddressClass::Reserved`].

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A class of addresses. Each name is also the audit code.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum AddressClass {
    Benchmark,
    Broadcast,
    Documentation,
    LinkLocal,
    Loopback,
    Metadata,
    Multicast,
    Private,
    Public,
    Reserved,
    SharedNat,
    Unspecified,
}

impl AddressClass {
    /// The class of an address.
    ///
    /// An IPv6 address that carries an IPv4 address is judged as that address,
    /// because that is where its packets end up.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => of_v6(address),
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Benchmark => "benchmark",
            Self::Broadcast => "broadcast",
            Self::Documentation => "documentation",
            Self::LinkLocal => "link_local",
            Self::Loopback => "loopback",
            Self::Metadata => "metadata",
            Self::Multicast => "multicast",
            Self::Private => "private",
            Self::Public => "public",
            Self::Reserved => "reserved",
            Self::SharedNat => "shared_nat",
            Self::Unspecified => "unspecified",
        }
    }

    /// Whether no rule can make us dial such an address, however wide the range
    /// it names. These reach the gateway itself, its host, or the credentials of
    /// the cloud account it runs in; or, as `benchmark`, they are what sandboxes
    /// are given for names, and lead to a door of the gateway.
    pub fn is_never_dialled(self) -> bool {
        match self {
            Self::Benchmark
            | Self::Broadcast
            | Self::LinkLocal
            | Self::Loopback
            | Self::Metadata
            | Self::Multicast
            | Self::Unspecified => true,
            Self::Documentation
            | Self::Private
            | Self::Public
            | Self::Reserved
            | Self::SharedNat => false,
        }
    }
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The IPv4 address an IPv6 address carries, if it is of a form that carries one:
/// mapped, compatible, translated, NAT64, 6to4, Teredo or ISATAP.
pub fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let readings = embedded_readings(address);
    let is_host = |reading: &&Ipv4Addr| reading.octets()[0] != 0;
    readings.iter().find(is_host).or(readings.first()).copied()
}

/// Every IPv4 address a translator could take an IPv6 address for.
///
/// More than one only under the local-use NAT64 prefix, whose operator chooses
/// where in the address the IPv4 bits stand (RFC 6052, 2.2).
pub(crate) fn embedded_readings(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let last = from_segments(g, h);
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0 | 0xffff] => vec![last],
        [0, 0, 0, 0, 0xffff, 0] => vec![last],
        [0x64, 0xff9b, 0, 0, 0, 0] => vec![last],
        [0x64, 0xff9b, 1, ..] => {
            // Byte 8 is always zero and never part of the address.
            let [_, _, _, _, _, _, o6, o7, _, o9, o10, o11, o12, ..] = address.octets();
            vec![
                last,
                Ipv4Addr::new(o6, o7, o9, o10),
                Ipv4Addr::new(o7, o9, o10, o11),
                Ipv4Addr::new(o9, o10, o11, o12),
            ]
        }
        [0x2002, ..] => vec![from_segments(b, c)],
        // The client's address, stored with every bit flipped.
        [0x2001, 0, ..] => vec![from_segments(!g, !h)],
        [_, _, _, _, 0 | 0x0200, 0x5efe] => vec![last],
        _ => Vec::new(),
    }
}

fn from_segments(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))
}

fn of_v4(address: Ipv4Addr) -> AddressClass {
    // Before all else: some of these lie in ranges that a rule may name.
    if METADATA_V4.contains(&address) {
        return AddressClass::Metadata;
    }
    match address.octets() {
        [0, ..] => AddressClass::Unspecified,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => AddressClass::Private,
        [100, 64..=127, ..] => AddressClass::SharedNat,
        [127, ..] => AddressClass::Loopback,
        [169, 254, ..] => AddressClass::LinkLocal,
        // Protocol assignments, and the relays of 6to4.
        [192, 0, 0, _] | [192, 88, 99, _] => AddressClass::Reserved,
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => AddressClass::Documentation,
        [198, 18 | 19, ..] => AddressClass::Benchmark,
        [224..=239, ..] => AddressClass::Multicast,
        [255, 255, 255, 255] => AddressClass::Broadcast,
        [240..=255, ..] => AddressClass::Reserved,
        _ => AddressClass::Public,
    }
}

fn of_v6(address: Ipv6Addr) -> AddressClass {
    let outer = of_plain_v6(address);
    if outer.is_never_dialled() {
        return outer;
    }
    let readings = embedded_readings(address).into_iter().map(of_v4);
    // A reading in 0.0.0.0/8 is a reading at the wrong place.
    let is_wrong = |class: &AddressClass| *class == AddressClass::Unspecified;
    let forbidden = readings.clone().filter(|c| !is_wrong(c)).find(|c| c.is_never_dialled());
    match forbidden.or(embedded_v4(address).map(of_v4)) {
        None => outer,
        // The well-known prefix is the only carrier of IPv4 still in use; the
        // others are relays that nobody should be running.
        Some(AddressClass::Public) if is_well_known_nat64(address) => AddressClass::Public,
        Some(AddressClass::Public) => AddressClass::Reserved,
        Some(inner) => inner,
    }
}

fn is_well_known_nat64(address: Ipv6Addr) -> bool {
    matches!(address.segments(), [0x64, 0xff9b, 0, 0, 0, 0, ..])
}

/// The class of an IPv6 address, whatever it carries.
fn of_plain_v6(address: Ipv6Addr) -> AddressClass {
    if is_metadata_v6(address) {
        return AddressClass::Metadata;
    }
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => AddressClass::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressClass::Loopback,
        [0x2001, 2, 0, ..] => AddressClass::Benchmark,
        // Protocol assignments: Teredo, ORCHID, drone identities, anycast.
        [0x2001, 0..=0x01ff, ..] => AddressClass::Reserved,
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0x0fff, ..] => AddressClass::Documentation,
        [0x2002, ..] => AddressClass::Reserved,
        [0x2000..=0x3fff, ..] => AddressClass::Public,
        [0xfc00..=0xfdff, ..] => AddressClass::Private,
        [0xfe80..=0xfebf, ..] => AddressClass::LinkLocal,
        [0xff00..=0xffff, ..] => AddressClass::Multicast,
        _ => AddressClass::Reserved,
    }
}

/// Where clouds hand credentials to whoever asks from inside.
///
/// Most are link-local and would be refused anyway; the list is for those that
/// are not, and for the name in the audit log.
const METADATA_V4: [Ipv4Addr; 9] = [
    Ipv4Addr::new(100, 100, 100, 200), // Alibaba
    Ipv4Addr::new(168, 63, 129, 16),   // Azure's wire server, a public address
    Ipv4Addr::new(169, 254, 0, 23),    // Tencent
    Ipv4Addr::new(169, 254, 42, 42),   // Scaleway
    Ipv4Addr::new(169, 254, 169, 253), // Amazon's resolver
    Ipv4Addr::new(169, 254, 169, 254), // nearly everyone
    Ipv4Addr::new(169, 254, 170, 2),   // Amazon ECS
    Ipv4Addr::new(169, 254, 170, 23),  // Amazon EKS
    Ipv4Addr::new(192, 0, 0, 192),     // Oracle
];

fn is_metadata_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        // Amazon keeps all its services under one prefix, and may add some.
        [0xfd00, 0xec2, ..] => true,
        // Akamai.
        [0xfd00, 0xa9fe, 0xa9fe, ..] => true,
        // Alibaba, Scaleway, Google.
        [0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200] => true,
        [0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42] => true,
        [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => true,
        // 169.254.169.254 spelt in the last bytes of a local address: Oracle,
        // OpenStack, and whoever copies them.
        [0xfc00..=0xfdff | 0xfe80..=0xfebf, .., 0xa9fe, 0xa9fe] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
