//! The addresses of a sandbox's doors.
//!
//! They lie in 198.18.0.0/15, which is nobody's on the internet, and which no rule
//! of a policy can name: an address of a door is never dialled.

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

/// The address of the named host with this number, from 198.19.0.1 upwards. It is
/// that host's alone for as long as the sandbox lives.
pub const fn named(index: u16) -> Ipv4Addr {
    let [high, low] = index.saturating_add(1).to_be_bytes();
    Ipv4Addr::new(198, 19, high, low)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_doors_share_an_address() {
        assert_eq!(named(0), Ipv4Addr::new(198, 19, 0, 1));
        assert_eq!(named(255), Ipv4Addr::new(198, 19, 1, 0));
        assert_eq!(named(u16::MAX), Ipv4Addr::new(198, 19, 255, 255));
        let doors = u16::try_from(MAX_DOORS).unwrap();
        let addresses: BTreeSet<_> = (0..doors).map(named).chain([GATEWAY, OWN]).collect();
        assert_eq!(addresses.len(), MAX_DOORS + 2);
    }
}
