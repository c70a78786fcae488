//! The end of a relay that is in the sandbox: its doors.
//!
//! They are opened without any privilege: on loopback, and in a network where every user
//! may use every port. That happens before the first command exists, so nobody can have
//! a door's port before us; and since neither address nor port is shared, nobody gets
//! it beside us either, also not by listening on every address (`0.0.0.0`).
//!
//! When the channel ends the doors close and everything is reset: the sandbox goes on
//! without a network, and nothing opens them again. A command that takes a port then
//! talks to itself.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use protocol::launcher::{ListenerSpec, SocketKind};
use protocol::relay::{MAX_DATAGRAM_BYTES, MAX_STREAMS};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, accept_with, bind, getsockname,
    listen, recvfrom, sendto, socket_with,
};
use rustix::process::{Resource, getrlimit};

use super::event_loop::{RelayEnd, RelayRole, serve};
use super::local::LocalSocket;
use super::table::{RelayEvent, RelaySide, RelayTable};

/// Open doors, with nobody behind them yet.
#[derive(Debug)]
pub(crate) struct RelayDoors {
    doors: Vec<OpenDoor>,
    /// Who waits for an answer, and at which door they asked.
    askers: BTreeMap<u32, (usize, SocketAddrV4)>,
    /// Nothing is accepted before: there were no descriptors.
    pause: Option<Instant>,
    max_streams: usize,
}

#[derive(Debug)]
struct OpenDoor {
    socket: OwnedFd,
    address: SocketAddrV4,
    is_tcp: bool,
}

impl RelayDoors {
    /// Opens all of them, or says which cannot be.
    pub(crate) fn open(listeners: &[ListenerSpec]) -> io::Result<Self> {
        let opened = |listener: &ListenerSpec| {
            open(listener).map_err(|err| {
                let ListenerSpec { name, address, port, .. } = listener;
                io::Error::new(err.kind(), format!("{name} on {address}:{port}: {err}"))
            })
        };
        let doors = listeners.iter().map(opened).collect::<io::Result<_>>()?;
        Ok(Self { doors, askers: BTreeMap::new(), pause: None, max_streams: max_streams() })
    }

    /// Serves `channel` until it ends.
    pub(crate) fn serve(self, channel: OwnedFd) -> RelayEnd {
        let table = RelayTable::new(RelaySide::Inside, self.max_streams);
        serve(channel, None, table, self)
    }

    #[cfg(test)]
    pub(super) fn with_max_streams(self, max_streams: usize) -> Self {
        Self { max_streams, ..self }
    }

    #[cfg(test)]
    pub(super) fn addresses(&self) -> Vec<SocketAddrV4> {
        self.doors.iter().map(|door| door.address).collect()
    }

    fn accept(&mut self, number: u32, table: &mut RelayTable) -> Vec<(u32, LocalSocket)> {
        let mut accepted = Vec::new();
        let Some(door) = self.doors.get(number as usize) else { return accepted };
        while accepted.len() < PER_TURN && table.may_open() {
            match accept_with(&door.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    let socket = LocalSocket::accepted(socket);
                    // A door on every address is known by the one that was asked for.
                    let address = getsockname(socket.as_fd()).and_then(SocketAddrV4::try_from);
                    match address.ok().and_then(|address| table.open(address)) {
                        Some(id) => accepted.push((id, socket)),
                        None => socket.reset(),
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // No descriptors or no memory, for now.
                Err(_) => {
                    self.pause = Some(Instant::now() + ACCEPT_PAUSE);
                    break;
                }
            }
        }
        accepted
    }

    fn ask(&mut self, number: u32, table: &mut RelayTable) {
        let place = number as usize;
        let Some(door) = self.doors.get(place) else { return };
        // With room for one byte more, one that is too long shows.
        let mut question = [0; MAX_DATAGRAM_BYTES + 1];
        for _ in 0..PER_TURN {
            if !table.may_ask() {
                return;
            }
            let received = recvfrom(&door.socket, &mut question[..], RecvFlags::DONTWAIT);
            let Ok((length, _, Some(asker))) = received else { return };
            let Ok(asker) = SocketAddrV4::try_from(asker) else { continue };
            let question = question.get(..length).unwrap_or_default();
            if let Some(id) = table.ask(door.address, question) {
                self.askers.insert(id, (place, asker));
            }
        }
    }
}

/// Opens one door.
fn open(listener: &ListenerSpec) -> io::Result<OpenDoor> {
    let address = SocketAddrV4::new(listener.address, listener.port);
    let (kind, is_tcp) = match listener.kind {
        SocketKind::RawTcp | SocketKind::RawUdp => {
            return Err(io::Error::other("a relay has no door for packets"));
        }
        SocketKind::Tcp => (SocketType::STREAM, true),
        // Its answers would come from an address that nobody asked.
        SocketKind::Udp if address.ip().is_unspecified() => {
            return Err(io::Error::other("a relay's door for datagrams has one address"));
        }
        SocketKind::Udp => (SocketType::DGRAM, false),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, kind, flags, None)?;
    // Without SO_REUSEADDR and SO_REUSEPORT: the door is ours alone.
    bind(&socket, &address)?;
    if is_tcp {
        listen(&socket, BACKLOG)?;
    }
    let address = getsockname(&socket).and_then(SocketAddrV4::try_from)?;
    Ok(OpenDoor { socket, address, is_tcp })
}

/// At most half of the descriptors: the rest of the first process needs some too, to
/// serve the host whatever commands connect to.
fn max_streams() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / 2).map_or(MAX_STREAMS, |half| half.clamp(1, MAX_STREAMS))
}

impl RelayRole for RelayDoors {
    fn wanted(&self, table: &RelayTable) -> Vec<(u32, BorrowedFd<'_>)> {
        let may_open = table.may_open() && self.pause.is_none();
        let may_ask = table.may_ask();
        let numbered = (0..).zip(&self.doors);
        let wanted = numbered.filter(|(_, door)| if door.is_tcp { may_open } else { may_ask });
        wanted.map(|(number, door)| (number, door.socket.as_fd())).collect()
    }

    fn ready(&mut self, number: u32, table: &mut RelayTable) -> Vec<(u32, LocalSocket)> {
        match self.doors.get(number as usize) {
            Some(door) if door.is_tcp => self.accept(number, table),
            Some(_) | None => {
                self.ask(number, table);
                Vec::new()
            }
        }
    }

    fn receive(&mut self, event: RelayEvent<'_>, _: &mut RelayTable) -> Option<LocalSocket> {
        match event {
            RelayEvent::Answered { id, bytes } => {
                let (place, asker) = self.askers.remove(&id)?;
                let door = self.doors.get(place)?;
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                // A datagram may be lost: whoever cares asks again.
                sendto(&door.socket, bytes, flags, &asker).ok();
            }
            RelayEvent::Unanswered { id } => drop(self.askers.remove(&id)),
            _ => {}
        }
        None
    }

    fn deadline(&self) -> Option<Instant> {
        self.pause
    }

    fn expire(&mut self, now: Instant, _: &mut RelayTable) {
        self.pause = self.pause.filter(|until| *until > now);
    }
}

const BACKLOG: i32 = 4096;
/// From one door, before others get their turn.
const PER_TURN: usize = 16;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rustix::net::sockopt;

    use super::*;

    fn door(kind: SocketKind, address: Ipv4Addr) -> ListenerSpec {
        ListenerSpec { name: "tls".to_owned(), address, port: 0, kind }
    }

    #[test]
    fn nobody_gets_the_port_of_a_door_beside_it() {
        for (kind, theirs) in
            [(SocketKind::Tcp, SocketType::STREAM), (SocketKind::Udp, SocketType::DGRAM)]
        {
            let doors = RelayDoors::open(&[door(kind, Ipv4Addr::LOCALHOST)]).unwrap();
            let at = doors.addresses()[0];
            // The door's own address, every address, and whatever a program may ask for.
            for address in [at, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, at.port())] {
                for (shares_address, shares_port) in
                    [(false, false), (true, false), (false, true), (true, true)]
                {
                    let socket = rustix::net::socket(AddressFamily::INET, theirs, None).unwrap();
                    sockopt::set_socket_reuseaddr(&socket, shares_address).unwrap();
                    sockopt::set_socket_reuseport(&socket, shares_port).unwrap();
                    assert_eq!(bind(&socket, &address), Err(Errno::ADDRINUSE), "{address}");
                }
            }
        }
    }

    #[test]
    fn a_door_that_cannot_be_is_named() {
        for (kind, address, why) in [
            (SocketKind::RawTcp, Ipv4Addr::LOCALHOST, "no door for packets"),
            (SocketKind::Udp, Ipv4Addr::UNSPECIFIED, "one address"),
            (SocketKind::Tcp, Ipv4Addr::new(192, 0, 2, 1), "requested address"),
        ] {
            let refused = RelayDoors::open(&[door(kind, address)]).unwrap_err().to_string();
            let name = format!("tls on {address}:0: ");
            assert!(refused.starts_with(&name) && refused.contains(why), "{refused}");
        }
    }
}
