//! What finds no door: packets that the sandbox's kernel refuses, as records.
//!
//! A sandbox's network has nothing in it but our listeners. Whatever goes to
//! another port or over UDP is refused by the kernel, and nobody would know that a
//! program tried. So whoever opens the doors also hands us raw sockets of that
//! network, and each packet that no listener of ours is for becomes one record.
//!
//! Nothing depends on it: it answers nobody, and when the socket fails, connections
//! go on. A sandbox can send faster than anyone can read, so beyond a bound packets
//! are counted, and one record a second says how many.

mod packet;
#[cfg(test)]
mod testing;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use audit::{
    ClientRecord, ConnectionFacts, DecisionRecord, DestinationRecord, EntryOutcome, LimitEvent,
    Text, Timing, VerdictRecord,
};
use nix::sys::socket::{MsgFlags, recv};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::task;
use tracing::{debug, error};

use crate::gateway::Gateway;
use crate::rate_limit::RateLimit;
use packet::{Carrier, Packet};

/// Everything that has a listener of ours, as the sandbox's network sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnsweredPlaces {
    pub(crate) tcp: Vec<SocketAddr>,
    pub(crate) udp: Vec<SocketAddr>,
}

/// Records what finds no door.
#[derive(Debug)]
pub(crate) struct UnansweredPackets {
    gateway: Arc<Gateway>,
    answered: AnsweredPlaces,
    rate_limit: RateLimit,
}

impl UnansweredPackets {
    pub(crate) fn new(gateway: Arc<Gateway>, answered: AnsweredPlaces) -> Self {
        Self { gateway, answered, rate_limit: RateLimit::new(MAX_RECORDS_PER_SECOND) }
    }

    /// Reads packets until the socket fails.
    pub(crate) async fn watch(&self, socket: impl Into<OwnedFd>) {
        // Of the sockets that the runtime knows, this is the one that asks least of
        // its descriptor. It is read with a call of ours alone.
        let err = match UnixDatagram::from_std(socket.into().into()) {
            Ok(socket) => self.read(&socket).await,
            Err(err) => err,
        };
        error!(%err, "what finds no door is no longer recorded; connections go on");
    }

    async fn read(&self, socket: &UnixDatagram) -> io::Error {
        let mut bytes = [0; MAX_PACKET_BYTES];
        for count in 1u64.. {
            let read =
                socket.async_io(Interest::READABLE, || read_one(socket.as_raw_fd(), &mut bytes));
            match read.await {
                Ok(length) => self.see(bytes.get(..length).unwrap_or_default()),
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return err,
            }
            // A flood must not keep its thread from everything else.
            if count % PACKETS_BETWEEN_YIELDS == 0 {
                task::yield_now().await;
            }
        }
        io::ErrorKind::Other.into()
    }

    /// Records a packet, unless somebody answers it.
    fn see(&self, bytes: &[u8]) {
        let Some(packet) = Packet::parse(bytes) else { return };
        if self.answered.has(&packet) || !self.rate_limit.admits() {
            return;
        }
        if let Err(err) = self.gateway.log.record(self.refused(&packet)) {
            debug!(%err, "a packet without a door is not recorded");
        }
    }

    fn refused(&self, packet: &Packet) -> ConnectionFacts {
        let Packet { carrier, from, to } = packet;
        ConnectionFacts {
            outcome: EntryOutcome::Refused,
            client: ClientRecord {
                address: Some(format_args!("{}", from.ip()).into()),
                port: Some(from.port()),
                way_in: None,
            },
            destination: DestinationRecord::new(format_args!("{}", to.ip()), to.port()),
            transport: Some(Text::constant(carrier.name())),
            decision: DecisionRecord {
                verdict: Some(VerdictRecord::Deny),
                reason: Some(Text::constant("no_door")),
                detail: Some(Text::constant(match carrier {
                    Carrier::Tcp => {
                        "no door of the gateway is there; no rule names this port, or the rule came after the start"
                    }
                    Carrier::Udp => "nothing leaves over UDP; a program that can should use TCP",
                })),
                policy: Some(self.gateway.policy.load().hash.clone()),
                ..DecisionRecord::default()
            },
            // It ended as it began.
            timing: Timing { total: Some(Duration::ZERO.into()), ..Timing::default() },
            ..ConnectionFacts::default()
        }
    }

    /// Says, once a second while it happens, how many packets were only counted.
    pub(crate) async fn report_drops(&self) {
        loop {
            self.report(self.rate_limit.dropped().await);
        }
    }

    fn report(&self, dropped: u64) {
        let bound = u64::from(MAX_RECORDS_PER_SECOND);
        let limit = LimitEvent {
            name: Text::constant("unanswered.packets_per_second"),
            value: bound,
            reached: bound.saturating_add(dropped),
            ..LimitEvent::default()
        };
        if let Err(err) = self.gateway.log.record(limit) {
            debug!(%err, dropped, "packets without a door are not recorded");
        }
    }

    /// Records what has come by now and was not read, and what was only counted. For the
    /// end: the last that a sandbox tried is as good as the first.
    pub(crate) fn finish(&self, sockets: &[OwnedFd]) {
        let mut bytes = [0; MAX_PACKET_BYTES];
        for socket in sockets {
            for _ in 0..MAX_LAST_PACKETS {
                match read_one(socket.as_raw_fd(), &mut bytes) {
                    Ok(length) => self.see(bytes.get(..length).unwrap_or_default()),
                    Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                    // There is nothing more, or never will be.
                    Err(_) => break,
                }
            }
        }
        match self.rate_limit.take_dropped() {
            0 => {}
            dropped => self.report(dropped),
        }
    }
}

impl AnsweredPlaces {
    /// Whether somebody is there for it: a listener, or the sandbox itself. An answer
    /// of ours to a question over UDP is no question.
    fn has(&self, packet: &Packet) -> bool {
        let listens = |places: &[SocketAddr], at: &SocketAddrV4| {
            places.iter().any(|place| {
                place.port() == at.port() && stands_for(place.ip().to_canonical(), *at.ip())
            })
        };
        let Packet { carrier, from, to } = packet;
        to.ip().is_loopback()
            || *to.ip() == protocol::doors::OWN
            || match carrier {
                Carrier::Tcp => listens(&self.tcp, to),
                Carrier::Udp => listens(&self.udp, to) || listens(&self.udp, from),
            }
    }
}

/// Whether a listener on `place` is asked when `address` is.
fn stands_for(place: IpAddr, address: Ipv4Addr) -> bool {
    place.is_unspecified() || place == IpAddr::V4(address)
}

/// One packet, from its IP header on; its length, or that of what there was room for.
fn read_one(socket: RawFd, into: &mut [u8]) -> io::Result<usize> {
    Ok(recv(socket, into, MsgFlags::empty())?)
}

/// Enough for the longest header of IPv4 and what is read of the next.
const MAX_PACKET_BYTES: usize = 128;
/// More than anyone reads; a scan of every port is one number.
const MAX_RECORDS_PER_SECOND: u32 = 20;
const PACKETS_BETWEEN_YIELDS: u64 = 64;
/// More than a socket holds; whoever goes on sending is not waited for.
const MAX_LAST_PACKETS: usize = 16 * 1024;

#[cfg(test)]
mod tests;
