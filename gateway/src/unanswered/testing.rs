//! Packets, made by hand.

use std::net::SocketAddrV4;

fn ipv4(protocol: u8, from: &SocketAddrV4, to: &SocketAddrV4) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, protocol, 0, 0];
    bytes.extend(from.ip().octets());
    bytes.extend(to.ip().octets());
    bytes.extend(from.port().to_be_bytes());
    bytes.extend(to.port().to_be_bytes());
    bytes
}

pub(super) fn tcp(from: &str, to: &str, flags: u8) -> Vec<u8> {
    let mut bytes = ipv4(6, &from.parse().unwrap(), &to.parse().unwrap());
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes
}

pub(super) fn udp(from: &str, to: &str) -> Vec<u8> {
    let mut bytes = ipv4(17, &from.parse().unwrap(), &to.parse().unwrap());
    bytes.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    bytes
}
