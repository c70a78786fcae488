//! `pbench dns`: a name server for one zone, over UDP.
//!
//! Every A question inside the zone has the same answer, other questions about it an
//! empty one, and every name outside does not exist.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result};
use tokio::net::UdpSocket;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value = "127.0.0.77:53")]
    listen: String,
    #[arg(long, default_value = "bench.test")]
    zone: String,
    #[arg(long, default_value = "127.0.0.77")]
    addr: Ipv4Addr,
    /// Seconds for which an answer may be kept
    #[arg(long, default_value_t = 300)]
    ttl: u32,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let socket = UdpSocket::bind(&args.listen).await.with_context(|| args.listen.clone())?;
    let mut packet = [0; 1500];
    loop {
        let (length, from) = socket.recv_from(&mut packet).await?;
        if let Some(reply) = answer(packet.get(..length).unwrap_or_default(), &args) {
            // Who asked may be gone.
            socket.send_to(&reply, from).await.ok();
        }
    }
}

/// The reply to a packet, if it is a question.
fn answer(packet: &[u8], args: &Args) -> Option<Vec<u8>> {
    let (id, flags) = (packet.get(..2)?, *packet.get(2)?);
    if flags & IS_REPLY != 0 {
        return None;
    }
    let (name, name_end) = question_name(packet)?;
    let kind = packet.get(name_end..name_end + 2)?;
    let question = packet.get(HEADER_BYTES..name_end + 4)?;
    let is_inside = name == args.zone || name.ends_with(&format!(".{}", args.zone));
    let has_address = is_inside && kind == TYPE_A;

    let mut reply = id.to_vec();
    reply.push(IS_REPLY | AUTHORITATIVE | flags & RECURSION_DESIRED);
    reply.push(RECURSION_AVAILABLE | if is_inside { 0 } else { NO_SUCH_NAME });
    reply.extend([0, 1, 0, u8::from(has_address), 0, 0, 0, 0]);
    reply.extend(question);
    if has_address {
        // The name is where the question has it; then type A, class IN.
        reply.extend([0xc0, HEADER_BYTES as u8, 0, 1, 0, 1]);
        reply.extend(args.ttl.to_be_bytes());
        reply.extend([0, 4]);
        reply.extend(args.addr.octets());
    }
    Some(reply)
}

/// The name that is asked for, in lower case, and where it ends in the packet.
fn question_name(packet: &[u8]) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    let mut at = HEADER_BYTES;
    loop {
        let length = usize::from(*packet.get(at)?);
        at += 1;
        match length {
            0 => return Some((labels.join("."), at)),
            1..=63 => {
                let label = packet.get(at..at + length)?;
                labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
                at += length;
            }
            // A question refers to no other name.
            _ => return None,
        }
    }
}

const HEADER_BYTES: usize = 12;
const IS_REPLY: u8 = 0x80;
const AUTHORITATIVE: u8 = 0x04;
const RECURSION_DESIRED: u8 = 0x01;
const RECURSION_AVAILABLE: u8 = 0x80;
const NO_SUCH_NAME: u8 = 3;
const TYPE_A: [u8; 2] = [0, 1];

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> Args {
        let addr = Ipv4Addr::new(127, 0, 0, 77);
        Args { listen: String::new(), zone: "bench.test".into(), addr, ttl: 300 }
    }

    fn question(name: &str, kind: u8) -> Vec<u8> {
        let mut packet = vec![7, 9, RECURSION_DESIRED, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            packet.push(label.len() as u8);
            packet.extend(label.as_bytes());
        }
        packet.extend([0, 0, kind, 0, 1]);
        packet
    }

    #[test]
    fn a_name_of_the_zone_has_the_one_address() {
        let asked = question("H12.Bench.test", 1);
        let reply = answer(&asked, &args()).unwrap();
        assert_eq!(reply[..4], [7, 9, 0x85, 0x80]);
        assert_eq!(reply[12..asked.len()], asked[12..]);
        assert_eq!(reply[reply.len() - 6..], [0, 4, 127, 0, 0, 77]);
        assert_eq!(reply[7], 1);
    }

    #[test]
    fn another_question_about_the_zone_is_answered_with_nothing() {
        let reply = answer(&question("a.bench.test", 28), &args()).unwrap();
        assert_eq!((reply[3], reply[7]), (RECURSION_AVAILABLE, 0));
    }

    #[test]
    fn a_name_outside_the_zone_does_not_exist() {
        for name in ["a.deny.test", "notbench.test"] {
            let reply = answer(&question(name, 1), &args()).unwrap();
            assert_eq!((reply[3] & 0x0f, reply[7]), (NO_SUCH_NAME, 0), "{name}");
        }
    }

    #[test]
    fn what_is_no_question_has_no_reply() {
        let whole = question("a.bench.test", 1);
        for length in 0..whole.len() {
            assert_eq!(answer(&whole[..length], &args()), None, "{length}");
        }
        let mut reply = whole.clone();
        reply[2] |= IS_REPLY;
        assert_eq!(answer(&reply, &args()), None);
        let mut pointer = whole;
        pointer[HEADER_BYTES] = 0xc0;
        assert_eq!(answer(&pointer, &args()), None);
    }
}
