//! A socket that sees what the sandbox sends to where nobody listens.
//!
//! The kernel refuses a connection to a port without a door by itself, and tells nobody.
//! A raw socket sees the attempt, since every address leads to this network itself. It is
//! opened in the sandbox's network and handed to the gateway, which records what it sees;
//! nothing can be sent through the network with it that the sandbox could not send itself.
//!
//! A packet socket would do as well, but to close one makes the kernel wait for all
//! processors, ten milliseconds in which a run could have ended.
//!
//! The kernel filters for it, so that a busy connection costs little: what passes is the
//! first packet of a TCP connection and every datagram, except those to the sandbox itself
//! (127.0.0.0/8 and its own address) and the answers of the gateway's name server.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use protocol::doors::OWN;

/// Opens one for what this protocol carries.
pub(super) fn open(protocol: i32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // Nothing is sent here before the sandbox's first process, so it misses nothing until it
    // has its filter, and what it got before that is read with the same care.
    // SAFETY: takes numbers alone.
    let socket = unsafe { libc::socket(libc::AF_INET, kind, protocol) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it, and nobody else knows of it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let mut program = program();
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let filter = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    set(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)?;
    Ok(socket)
}

fn set<T>(socket: &OwnedFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: the value is the option's own type, as long as we say; the kernel only reads
    // it, and what it points to lives in the caller.
    let done = unsafe {
        let length = size_of::<T>() as libc::socklen_t;
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            length,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The filter, over an IPv4 packet from its first byte on.
fn program() -> Vec<libc::sock_filter> {
    let own = u32::from_be_bytes(OWN.octets());
    // Where each jump leads, counted from the instruction after it.
    vec![
        /*  0 */ load(WORD, 16), // whereto
        /*  1 */ jump_if(EQUAL, own, 14, 0),
        /*  2 */ load(BYTE, 16),
        /*  3 */ jump_if(EQUAL, 127, 12, 0),
        /*  4 */ load(HALF, 6), // a later fragment has no ports
        /*  5 */ jump_if(ANY_BIT, 0x1fff, 10, 0),
        /*  6 */ load_header_length(),
        /*  7 */ load(BYTE, 9),
        /*  8 */ jump_if(EQUAL, 17, 4, 0), // UDP
        /*  9 */ jump_if(EQUAL, 6, 0, 6), // TCP
        /* 10 */ load_after_header(BYTE, 13), // its flags: SYN and not ACK
        /* 11 */ and(0x12),
        /* 12 */ jump_if(EQUAL, 0x02, 2, 3),
        /* 13 */ load_after_header(HALF, 0), // an answer about names
        /* 14 */ jump_if(EQUAL, 53, 1, 0),
        /* 15 */ give(SNAPSHOT_BYTES),
        /* 16 */ give(0),
    ]
}

const fn load(size: u16, at: u32) -> libc::sock_filter {
    instruction(LD | ABS | size, 0, 0, at)
}

/// Relative to the end of the IP header.
const fn load_after_header(size: u16, at: u32) -> libc::sock_filter {
    instruction(LD | IND | size, 0, 0, at)
}

/// Four times the lower half of the first byte.
const fn load_header_length() -> libc::sock_filter {
    instruction(LDX | BYTE | MSH, 0, 0, 0)
}

const fn and(bits: u32) -> libc::sock_filter {
    instruction(ALU | AND, 0, 0, bits)
}

const fn jump_if(test: u16, with: u32, then: u8, otherwise: u8) -> libc::sock_filter {
    instruction(JMP | test, then, otherwise, with)
}

/// Passes so many bytes of the packet; none means that it is not seen.
const fn give(bytes: u32) -> libc::sock_filter {
    instruction(RET, 0, 0, bytes)
}

const fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// The longest IP header and what says where a packet goes.
const SNAPSHOT_BYTES: u32 = 96;

// From `linux/bpf_common.h`.
const LD: u16 = 0x00;
const LDX: u16 = 0x01;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const RET: u16 = 0x06;
const WORD: u16 = 0x00;
const HALF: u16 = 0x08;
const BYTE: u16 = 0x10;
const ABS: u16 = 0x20;
const IND: u16 = 0x40;
const MSH: u16 = 0xa0;
const AND: u16 = 0x50;
const EQUAL: u16 = 0x10;
const ANY_BIT: u16 = 0x40;

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel does with the program, as far as it is used here.
    fn passes(packet: &[u8]) -> bool {
        let (program, mut a, mut x, mut at) = (program(), 0_u32, 0_u32, 0_usize);
        let read = |from: usize, size: u16| -> Option<u32> {
            let bytes = match size {
                WORD => 4,
                HALF => 2,
                _ => 1,
            };
            let bytes = packet.get(from..from + bytes)?;
            Some(bytes.iter().fold(0, |all, byte| all << 8 | u32::from(*byte)))
        };
        loop {
            let libc::sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            match code {
                RET => return k > 0,
                code if code & 7 == JMP => {
                    let holds = if code & 0xf0 == EQUAL { a == k } else { a & k != 0 };
                    at += usize::from(if holds { jt } else { jf });
                }
                code if code & 7 == ALU => a &= k,
                code if code & 7 == LDX => x = u32::from(packet[k as usize] & 0xf) * 4,
                code => {
                    let from = k + if code & 0xe0 == IND { x } else { 0 };
                    // The kernel drops a packet that is too short to be read.
                    let Some(value) = read(from as usize, code & 0x18) else { return false };
                    a = value;
                }
            }
        }
    }

    fn packet(protocol: u8, to: [u8; 4], rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1];
        packet.extend(to);
        packet.extend(rest);
        packet
    }

    fn tcp(to: [u8; 4], flags: u8) -> Vec<u8> {
        packet(6, to, &[0x9c, 0x40, 0x18, 0xeb, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0, 0])
    }

    const ELSEWHERE: [u8; 4] = [93, 184, 216, 34];

    #[test]
    fn the_first_packet_of_a_connection_is_seen_and_no_other() {
        assert!(passes(&tcp(ELSEWHERE, 0x02)), "SYN");
        assert!(passes(&tcp(ELSEWHERE, 0xc2)), "SYN with congestion marks");
        for other in [0x12, 0x10, 0x18, 0x11, 0x04, 0x14] {
            assert!(!passes(&tcp(ELSEWHERE, other)), "{other:#x}");
        }
    }

    #[test]
    fn what_a_sandbox_says_to_itself_is_not_seen() {
        assert!(!passes(&tcp([127, 0, 0, 1], 0x02)));
        assert!(!passes(&tcp([127, 9, 9, 9], 0x02)));
        assert!(!passes(&tcp(OWN.octets(), 0x02)));
    }

    #[test]
    fn datagrams_are_seen_but_answers_about_names() {
        assert!(passes(&packet(17, ELSEWHERE, &[0x9c, 0x40, 1, 0xbb, 0, 8, 0, 0])));
        assert!(!passes(&packet(17, ELSEWHERE, &[0, 53, 0x9c, 0x40, 0, 8, 0, 0])));
    }

    #[test]
    fn fragments_other_protocols_and_stubs_are_not_seen() {
        let mut later = tcp(ELSEWHERE, 0x02);
        later[7] = 1;
        assert!(!passes(&later));
        assert!(!passes(&packet(1, ELSEWHERE, &[8, 0, 0, 0])));
        for length in 0..34 {
            assert!(!passes(&tcp(ELSEWHERE, 0x02)[..length]), "{length}");
        }
    }
}
