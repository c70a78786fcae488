//! From the bytes of a packet to what it wants.
//!
//! Pure. The packets are a sandbox's, so any byte may be anything: what is not the
//! beginning of a connection over TCP, or a datagram over UDP, is nothing.

use std::net::{Ipv4Addr, SocketAddrV4};

/// A packet that asks for an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Packet {
    pub(super) carrier: Carrier,
    pub(super) from: SocketAddrV4,
    pub(super) to: SocketAddrV4,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Carrier {
    Tcp,
    Udp,
}

impl Carrier {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

impl Packet {
    /// Reads an IPv4 packet, of which the first bytes are enough.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let header: &[u8; IPV4_BYTES] = bytes.first_chunk()?;
        let words = usize::from(header[0] & 0x0f);
        if header[0] >> 4 != 4 || words < 5 {
            return None;
        }
        // Only the first piece of a packet in pieces has the ports in it.
        if u16::from_be_bytes([header[6], header[7]]) & FRAGMENT_OFFSET != 0 {
            return None;
        }
        let carried = bytes.get(words * 4..)?;
        let carrier = match header[9] {
            6 if begins_connection(carried)? => Carrier::Tcp,
            17 => Carrier::Udp,
            _ => return None,
        };
        let [f0, f1, t0, t1] = *carried.first_chunk()?;
        let address = |at: usize| -> Option<Ipv4Addr> {
            Some(Ipv4Addr::from(*header.get(at..)?.first_chunk::<4>()?))
        };
        Some(Self {
            carrier,
            from: SocketAddrV4::new(address(12)?, u16::from_be_bytes([f0, f1])),
            to: SocketAddrV4::new(address(16)?, u16::from_be_bytes([t0, t1])),
        })
    }
}

/// SYN, and neither an answer to one nor the end.
fn begins_connection(tcp: &[u8]) -> Option<bool> {
    let flags = tcp.get(13)?;
    Some(flags & (SYN | ACK | RST) == SYN)
}

const IPV4_BYTES: usize = 20;
const FRAGMENT_OFFSET: u16 = 0x1fff;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::unanswered::testing::{tcp, udp};

    fn parse(bytes: &[u8]) -> Option<String> {
        Packet::parse(bytes)
            .map(|packet| format!("{} {} {}", packet.carrier.name(), packet.from, packet.to))
    }

    #[test]
    fn the_beginning_of_a_connection_and_a_datagram_are_read() {
        let (from, to) = ("10.0.0.1:4000", "192.0.2.7:8443");
        assert_eq!(parse(&tcp(from, to, SYN)), Some(format!("tcp {from} {to}")));
        assert_eq!(parse(&udp(from, to)), Some(format!("udp {from} {to}")));
        // Flags that say nothing of who began.
        assert_eq!(parse(&tcp(from, to, SYN | 0xc0)), Some(format!("tcp {from} {to}")));
    }

    #[test]
    fn what_begins_nothing_is_nothing() {
        let (from, to) = ("10.0.0.1:4000", "192.0.2.7:8443");
        for flags in [ACK, SYN | ACK, RST, SYN | RST, 0, ACK | 0x01] {
            assert_eq!(parse(&tcp(from, to, flags)), None, "{flags:#x}");
        }
        let whole = udp(from, to);
        let changed = |at: usize, to: u8| {
            let mut bytes = whole.clone();
            bytes[at] = to;
            parse(&bytes)
        };
        assert_eq!(changed(0, 0x65), None, "IPv6");
        assert_eq!(changed(0, 0x44), None, "a header shorter than any");
        assert_eq!(changed(0, 0x4f), None, "a header longer than the packet");
        assert_eq!(changed(9, 1), None, "ICMP");
        assert_eq!(changed(7, 1), None, "a later piece");
    }

    #[test]
    fn options_of_the_header_are_passed_over() {
        let plain = udp("10.0.0.1:4000", "192.0.2.7:443");
        let mut with = plain[..20].to_vec();
        with[0] = 0x46;
        with.extend([1; 4]);
        with.extend(&plain[20..]);
        assert_eq!(parse(&with), parse(&plain));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Packet::parse(&bytes);
        }

        #[test]
        fn nor_does_a_packet_that_is_cut_or_changed(
            cut in 0usize..60, at in 0usize..40, to: u8, flags: u8,
        ) {
            let mut bytes = tcp("10.0.0.1:1", "192.0.2.7:2", flags);
            if let Some(byte) = bytes.get_mut(at) { *byte = to; }
            bytes.truncate(cut);
            let _ = Packet::parse(&bytes);
        }
    }
}
