//! The end of a relay that is outside: it makes the connections of a sandbox again.
//!
//! It runs in a network of its own, in which nobody listens but the gateway. What comes
//! over the channel is a sandbox's word, whatever says it over there: it may name a
//! door of the gateway, and anything else is refused before it is tried.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use protocol::launcher::{ListenerSpec, SocketKind};
use protocol::relay::{MAX_DATAGRAM_BYTES, MAX_STREAMS};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
};

use super::event_loop::{RelayEnd, RelayRole, serve};
use super::local::LocalSocket;
use super::table::{RelayEvent, RelaySide, RelayTable};

/// Where the gateway listens for what a sandbox calls by this kind and address, if it
/// does.
type Reach = Box<dyn Fn(SocketKind, SocketAddrV4) -> Option<SocketAddrV4> + Send>;

/// The end outside.
pub(crate) struct Twin {
    reach: Reach,
    /// A socket for each question: whatever comes back can only be its answer.
    questions: BTreeMap<u32, AskedQuestion>,
    question_life: Duration,
}

#[derive(Debug)]
struct AskedQuestion {
    socket: OwnedFd,
    until: Instant,
}

impl fmt::Debug for Twin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Twin").field("questions", &self.questions).finish_non_exhaustive()
    }
}

impl Twin {
    /// Reaches the gateway's sockets, at the addresses that the sandbox has for them.
    pub(crate) fn new(listeners: Vec<ListenerSpec>) -> Self {
        Self::with(
            QUESTION_LIFE,
            Box::new(move |kind, address| {
                let is_it = |listener: &ListenerSpec| {
                    let is_there =
                        listener.address.is_unspecified() || listener.address == *address.ip();
                    is_there && listener.port == address.port() && listener.kind == kind
                };
                listeners.iter().any(is_it).then_some(address)
            }),
        )
    }

    pub(super) fn with(question_life: Duration, reach: Reach) -> Self {
        Self { reach, questions: BTreeMap::new(), question_life }
    }

    /// Serves `channel` until it ends, or until `owner` can be read or ends.
    pub(crate) fn serve(self, channel: OwnedFd, owner: Option<BorrowedFd<'_>>) -> RelayEnd {
        serve(channel, owner, RelayTable::new(RelaySide::Outside, MAX_STREAMS), self)
    }

    fn connect(&self, address: SocketAddrV4) -> Option<LocalSocket> {
        let target = (self.reach)(SocketKind::Tcp, address)?;
        LocalSocket::connect(target).ok()
    }

    fn ask(&self, address: SocketAddrV4, question: &[u8]) -> Option<AskedQuestion> {
        let target = (self.reach)(SocketKind::Udp, address)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None).ok()?;
        connect(&socket, &target).ok()?;
        send(&socket, question, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).ok()?;
        Some(AskedQuestion { socket, until: Instant::now() + self.question_life })
    }
}

impl RelayRole for Twin {
    fn wanted(&self, table: &RelayTable) -> Vec<(u32, BorrowedFd<'_>)> {
        if !table.has_room() {
            return Vec::new();
        }
        self.questions.iter().map(|(id, question)| (*id, question.socket.as_fd())).collect()
    }

    fn ready(&mut self, id: u32, table: &mut RelayTable) -> Vec<(u32, LocalSocket)> {
        let Some(question) = self.questions.get(&id).filter(|_| table.has_room()) else {
            return Vec::new();
        };
        let mut answer = [0; MAX_DATAGRAM_BYTES + 1];
        let received = recv(&question.socket, &mut answer[..], RecvFlags::DONTWAIT);
        if let Err(Errno::AGAIN | Errno::INTR) = received {
            return Vec::new();
        }
        // An error is the kernel's word that nobody listens there.
        let answer = received.ok().and_then(|(length, _)| answer.get(..length));
        table.answer(id, answer);
        self.questions.remove(&id);
        Vec::new()
    }

    fn receive(&mut self, event: RelayEvent<'_>, table: &mut RelayTable) -> Option<LocalSocket> {
        match event {
            RelayEvent::Asked { id, address, bytes } => match self.ask(address, bytes) {
                Some(question) => drop(self.questions.insert(id, question)),
                None => table.answer(id, None),
            },
            RelayEvent::Opened { id, address } => {
                let socket = self.connect(address);
                if socket.is_none() {
                    table.reset(id);
                }
                return socket;
            }
            _ => {}
        }
        None
    }

    fn deadline(&self) -> Option<Instant> {
        // Numbers go upwards and all live equally long.
        self.questions.first_key_value().map(|(_, question)| question.until)
    }

    fn expire(&mut self, now: Instant, table: &mut RelayTable) {
        while let Some(oldest) = self.questions.first_entry() {
            if oldest.get().until > now {
                return;
            }
            table.answer(*oldest.key(), None);
            oldest.remove();
        }
    }
}

/// Whoever asked has asked again by then.
const QUESTION_LIFE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_gateway_listens_on_is_reached() {
        let listener = |address: [u8; 4], port, kind| ListenerSpec {
            name: "door".to_owned(),
            address: address.into(),
            port,
            kind,
        };
        let twin = Twin::new(vec![
            listener([127, 18, 0, 1], 443, SocketKind::Tcp),
            listener([127, 18, 0, 1], 53, SocketKind::Udp),
            listener([0, 0, 0, 0], 80, SocketKind::Tcp),
        ]);
        let reached = |kind, address: &str| {
            let address = address.parse().unwrap();
            let target = (twin.reach)(kind, address);
            assert!(target.is_none_or(|target| target == address));
            target.is_some()
        };
        for door in ["127.18.0.1:443", "127.18.0.1:80", "127.0.0.1:80"] {
            assert!(reached(SocketKind::Tcp, door), "{door}");
        }
        assert!(reached(SocketKind::Udp, "127.18.0.1:53"));
        for other in ["127.0.0.1:443", "127.18.0.1:53", "127.18.0.1:444", "0.0.0.0:443"] {
            assert!(!reached(SocketKind::Tcp, other), "{other}");
        }
        for other in ["127.18.0.1:443", "127.18.0.1:80", "127.0.0.1:53"] {
            assert!(!reached(SocketKind::Udp, other), "{other}");
        }
    }
}
