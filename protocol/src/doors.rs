//! The addresses of a sandbox's doors.
//!
//! They lie in 198.18.0.0/15, which is nobody's on the internet, and which no rule
//! of a policy can name: an address of a door is never dialled. Where the sandbox's first
//! process opens the doors by itself it has no privilege, and so no addresses but those of
//! loopback: there they lie in 127.18.0.0/15.

use std::net::Ipv4Addr;

/// What a name is answered with that has no address of its own.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// What a sandbox's loopback device has beside 127.0.0.1.
pub const OWN: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 1);

/// Ports that have a door in every sandbox: names, HTTP, TLS, SOCKS and the proxy.
pub const FIXED_PORTS: [u16; 5] = [53, 80, 443, 1080, 3128];

/// How many doors policy may add to these: further ports and ports of named hosts
/// together.
pub const MAX_DOORS: usize = 128;

/// What a relayed sandbox's names are answered with that have no address of their own.
pub const RELAYED_GATEWAY: Ipv4Addr = Ipv4Addr::new(127, 18, 0, 1);

/// The address of the named host with this number, in the half above that of `gateway`, from
/// its first address upwards. It is that host's alone for as long as the sandbox lives.
pub const fn named(gateway: Ipv4Addr, index: u16) -> Ipv4Addr {
    let [network, half, ..] = gateway.octets();
    let [high, low] = index.saturating_add(1).to_be_bytes();
    Ipv4Addr::new(network, half + 1, high, low)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_doors_share_an_address() {
        assert_eq!(named(GATEWAY, 0), Ipv4Addr::new(198, 19, 0, 1));
        assert_eq!(named(GATEWAY, 255), Ipv4Addr::new(198, 19, 1, 0));
        assert_eq!(named(GATEWAY, u16::MAX), Ipv4Addr::new(198, 19, 255, 255));
        assert_eq!(named(RELAYED_GATEWAY, 0), Ipv4Addr::new(127, 19, 0, 1));
        let doors = u16::try_from(MAX_DOORS).unwrap();
        let named = (0..doors).map(|index| named(GATEWAY, index));
        let addresses: BTreeSet<_> = named.chain([GATEWAY, OWN]).collect();
        assert_eq!(addresses.len(), MAX_DOORS + 2);
    }
}
