//! The sandbox's network: loopback, and every address leads to it.
//!
//! There is no other device, so there is nowhere for a packet to go. The
//! gateway's sockets are opened in here, on every address, and handed out to a
//! gateway that lives outside: whatever a program connects to on their ports is
//! accepted by it, and whatever it connects to elsewhere is refused by the
//! kernel. When the gateway is gone its sockets are gone, and with them the
//! network.

use std::fs;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use protocol::doors;
use protocol::launcher::{ListenerSpec, SocketKind};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, listen, recv, send,
    socket_with,
};

use super::packets;

/// Makes this network namespace's loopback the end of every way.
pub(super) fn lead_everything_here() -> io::Result<()> {
    let routing = routing()?;
    ask(&routing, &loopback_up())?;
    ask(&routing, &an_address())?;
    ask(&routing, &everything_is_local())
}

/// Brings loopback up, with the addresses that it has by itself: 127.0.0.0/8.
pub(super) fn raise_loopback() -> io::Result<()> {
    ask(&routing()?, &loopback_up())
}

fn routing() -> io::Result<OwnedFd> {
    // The kernel's number for routes is zero, which is what nothing means.
    let flags = SocketFlags::CLOEXEC;
    socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None).map_err(Into::into)
}

/// With the last version's addresses alone there is one set of rules. To be
/// called before loopback is up, which would get one of the other kind.
pub(super) fn without_ipv6() -> io::Result<()> {
    for which in ["all", "default", "lo"] {
        let setting = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        if fs::read(&setting).is_ok_and(|is| is.starts_with(b"1")) {
            continue;
        }
        match fs::write(&setting, "1") {
            // A kernel without it has none to switch off.
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Opens one of the gateway's sockets.
pub(super) fn open(listener: &ListenerSpec) -> io::Result<OwnedFd> {
    let kind = match listener.kind {
        SocketKind::RawTcp => return packets::open(libc::IPPROTO_TCP),
        SocketKind::RawUdp => return packets::open(libc::IPPROTO_UDP),
        SocketKind::Tcp => SocketType::STREAM,
        SocketKind::Udp => SocketType::DGRAM,
    };
    let socket = socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrV4::new(listener.address, listener.port))?;
    if listener.kind == SocketKind::Tcp {
        listen(&socket, BACKLOG)?;
    }
    Ok(socket)
}

/// The devices of this network, by name.
pub(super) fn devices() -> io::Result<Vec<String>> {
    let table = fs::read_to_string("/proc/self/net/dev")?;
    let names = table.lines().skip(2).filter_map(|line| line.split(':').next());
    Ok(names.map(|name| name.trim().to_owned()).collect())
}

/// Sends one message to the kernel and reads what it says to it.
fn ask(routing: &OwnedFd, message: &[u8]) -> io::Result<()> {
    send(routing, message, SendFlags::empty())?;
    let mut answer = [0_u8; 4096];
    let (length, _) = recv(routing, &mut answer, RecvFlags::empty())?;
    let answer = answer.get(..length).unwrap_or_default();
    match code_of(answer) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::Error::other("the kernel's answer about its routes is not one")),
    }
}

/// The number in an acknowledgement: zero, or an error below it.
fn code_of(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let code = i32::from_ne_bytes(answer.get(16..20)?.try_into().ok()?);
    (kind == ERROR).then_some(code)
}

fn loopback_up() -> Vec<u8> {
    let mut body = vec![0, 0, 0, 0];
    body.extend(LOOPBACK.to_ne_bytes());
    body.extend(UP.to_ne_bytes());
    // Only this flag changes.
    body.extend(UP.to_ne_bytes());
    message(NEW_LINK, 0, &body)
}

/// `address 198.18.255.1/32 dev lo`: a machine that has 127.0.0.1 alone is taken
/// for one without a network, and programs that ask for addresses they could
/// reach (`AI_ADDRCONFIG`) are told none.
fn an_address() -> Vec<u8> {
    let mut body = vec![FAMILY_INET, 32, 0, SCOPE_EVERYWHERE];
    body.extend(LOOPBACK.to_ne_bytes());
    for kind in [ADDRESS, ADDRESS_LOCAL] {
        body.extend(8_u16.to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(doors::OWN.octets());
    }
    message(NEW_ADDRESS, CREATE, &body)
}

/// `local 0.0.0.0/0 dev lo`: every address is one of our own.
fn everything_is_local() -> Vec<u8> {
    let mut body = vec![FAMILY_INET, 0, 0, 0, TABLE_LOCAL, BY_STATIC, SCOPE_HOST, LOCAL];
    body.extend(0_u32.to_ne_bytes());
    body.extend(8_u16.to_ne_bytes());
    body.extend(OUTPUT_DEVICE.to_ne_bytes());
    body.extend(LOOPBACK.to_ne_bytes());
    message(NEW_ROUTE, CREATE, &body)
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    let mut message = Vec::from(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((REQUEST | ACKNOWLEDGE | flags).to_ne_bytes());
    // Its number, and who asks: there is one question at a time.
    message.extend([0; 8]);
    message.extend(body);
    message
}

const BACKLOG: i32 = 4096;

// From `linux/netlink.h`, `linux/rtnetlink.h` and `linux/if.h`.
const HEADER: usize = 16;
const ERROR: u16 = 2;
const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const CREATE: u16 = 0x400;
const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
/// The first device of every network namespace.
const LOOPBACK: u32 = 1;
const UP: u32 = 0x1;
const FAMILY_INET: u8 = 2;
const TABLE_LOCAL: u8 = 255;
const BY_STATIC: u8 = 4;
const SCOPE_EVERYWHERE: u8 = 0;
const SCOPE_HOST: u8 = 254;
const ADDRESS: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;
const LOCAL: u8 = 2;
const OUTPUT_DEVICE: u16 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_as_long_as_they_say() {
        for (made, long) in [(loopback_up(), 32), (an_address(), 40), (everything_is_local(), 36)] {
            assert_eq!(made.len(), long);
            assert_eq!(u32::from_ne_bytes(made[..4].try_into().unwrap()) as usize, long);
        }
    }

    #[test]
    fn an_answer_is_an_acknowledgement_or_none() {
        let mut answer = vec![0; 36];
        answer[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        assert_eq!(code_of(&answer), Some(0));
        answer[16..20].copy_from_slice(&(-17_i32).to_ne_bytes());
        assert_eq!(code_of(&answer), Some(-17));
        assert_eq!(code_of(&answer[..18]), None);
        answer[4] = 3;
        assert_eq!(code_of(&answer), None);
    }
}
