//! Names, asked for as a program in a sandbox would.
//!
//! Not through the C library: whom we ask, and what exactly was answered, is the
//! point.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

/// The first address of `name`: from the table of hosts, else from the first
/// server that answers.
pub fn address_of(name: &str) -> io::Result<IpAddr> {
    if let Ok(address) = name.trim_matches(['[', ']']).parse() {
        return Ok(address);
    }
    if let Some(address) = in_hosts(name) {
        return Ok(address);
    }
    let mut last = io::Error::new(io::ErrorKind::NotFound, "there is no name server");
    for server in servers() {
        match ask(SocketAddr::new(server, 53), name) {
            Ok(addresses) => match addresses.first() {
                Some(address) => return Ok((*address).into()),
                None => last = io::Error::new(io::ErrorKind::NotFound, "it has no address"),
            },
            Err(err) => last = err,
        }
    }
    Err(last)
}

/// What the table of hosts says.
pub fn in_hosts(name: &str) -> Option<IpAddr> {
    let table = fs::read_to_string("/etc/hosts").ok()?;
    table.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|known| known == name).then_some(address)
    })
}

/// The servers that programs here ask.
pub fn servers() -> Vec<IpAddr> {
    let text = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let servers = text.lines().filter_map(|line| line.strip_prefix("nameserver"));
    servers.filter_map(|server| server.trim().parse().ok()).collect()
}

/// Asks `server` for the IPv4 addresses of `name`.
pub fn ask(server: SocketAddr, name: &str) -> io::Result<Vec<Ipv4Addr>> {
    ask_within(server, name, Duration::from_secs(2))
}

/// The same, for an answer that comes within `patience`.
pub fn ask_within(server: SocketAddr, name: &str, patience: Duration) -> io::Result<Vec<Ipv4Addr>> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.set_read_timeout(Some(patience))?;
    socket.send_to(&question(name), server)?;
    let mut answer = [0; 1500];
    let (length, _) = socket.recv_from(&mut answer)?;
    addresses(answer.get(..length).unwrap_or_default())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer cannot be read"))
}

/// A question for an A record, recursion wanted.
pub fn question(name: &str) -> Vec<u8> {
    let mut bytes = vec![0x51, 0x1c, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.trim_end_matches('.').split('.') {
        let label = label.as_bytes().get(..label.len().min(63)).unwrap_or_default();
        bytes.push(u8::try_from(label.len()).unwrap_or(63));
        bytes.extend_from_slice(label);
    }
    bytes.extend([0, 0, 1, 0, 1]);
    bytes
}

/// The A records of an answer; nothing if it is none.
fn addresses(answer: &[u8]) -> Option<Vec<Ipv4Addr>> {
    let count =
        |at: usize| Some(usize::from(u16::from_be_bytes([*answer.get(at)?, *answer.get(at + 1)?])));
    let (questions, answers) = (count(4)?, count(6)?);
    let mut at = 12;
    for _ in 0..questions {
        at = after_name(answer, at)? + 4;
    }
    let mut found = Vec::new();
    for _ in 0..answers {
        at = after_name(answer, at)?;
        let (kind, length) = (count(at)?, count(at + 8)?);
        let data = answer.get(at + 10..at + 10 + length)?;
        if let (1, &[a, b, c, d]) = (kind, data) {
            found.push(Ipv4Addr::new(a, b, c, d));
        }
        at += 10 + length;
    }
    Some(found)
}

fn after_name(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            length if length >= 0xc0 => return Some(at + 2),
            length => at += usize::from(length) + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_answer_is_read() {
        let mut answer = question("a.example");
        answer[7] = 1;
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
        assert_eq!(addresses(&answer), Some(vec![Ipv4Addr::new(192, 0, 2, 7)]));
    }

    proptest! {
        #[test]
        fn any_answer_is_read_or_refused(bytes: Vec<u8>) {
            addresses(&bytes);
        }
    }
}
