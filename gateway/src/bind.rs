//! Opens the listeners that the settings name.
//!
//! An inherited socket is checked: it must be a listening TCP socket, or for names
//! a TCP or UDP one. The network it listens on is not checked: whoever opened the
//! socket has chosen that network, often one that only they can reach.

mod inherited;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::config::{self, CapturedPort, Door, Fd, HostDoor, Listen};
use crate::dns::NameServer;
use crate::listen::ListenerKind;
pub use inherited::Inherited;
use inherited::{InheritedError, InheritedSocket};

/// Every listener of a gateway, bound and not yet accepting.
#[derive(Debug, Default)]
pub(crate) struct BoundListeners {
    pub(crate) connections: Vec<(ListenerKind, TcpListener)>,
    pub(crate) names_tcp: Vec<TcpListener>,
    pub(crate) names_udp: Vec<UdpSocket>,
    /// See what none of the others answers.
    pub(crate) unanswered: Vec<Socket>,
}

/// Why a listener cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("cannot listen on {address}")]
    Bind { address: SocketAddr, source: io::Error },
    #[error(transparent)]
    Inherited(#[from] InheritedError),
    #[error(
        "names asked at {local} ({door}) have no IPv4 address to be answered with; write `dns: {{answer: ADDRESS}}`"
    )]
    NoAnswer { door: Door, local: SocketAddr },
    #[error("{fd} is a UDP socket, and connections come in over TCP")]
    NotForConnections { fd: Fd },
    #[error("{fd} is a TCP socket that does not listen; hand it over after `listen(2)`")]
    NotListening { fd: Fd },
}

/// Binds every listener, or names the one that cannot be bound.
pub(crate) fn bind(
    listen: &Listen,
    dns: &config::DnsSettings,
    inherited: &mut Inherited,
) -> Result<BoundListeners, BindError> {
    let mut bound = BoundListeners::default();
    for (kind, doors) in [
        (ListenerKind::Proxy, &listen.proxy),
        (ListenerKind::Socks, &listen.socks),
        (ListenerKind::CapturedHttp, &listen.http),
        (ListenerKind::CapturedHttps, &listen.https),
    ] {
        for door in doors {
            bound.bind_for_connections(&kind, door, inherited)?;
        }
    }
    for CapturedPort { port, at } in &listen.ports {
        bound.bind_for_connections(&ListenerKind::CapturedPort(*port), at, inherited)?;
    }
    for HostDoor { to, at } in &listen.tcp {
        bound.bind_for_connections(&ListenerKind::Tcp(Arc::clone(to)), at, inherited)?;
    }
    if let Some(fd) = &listen.unanswered {
        bound.unanswered = inherited.take_raw(fd)?;
    }
    for door in &listen.dns {
        bound.bind_for_names(door, dns, inherited)?;
    }
    Ok(bound)
}

impl BoundListeners {
    fn bind_for_connections(
        &mut self,
        kind: &ListenerKind,
        door: &Door,
        inherited: &mut Inherited,
    ) -> Result<(), BindError> {
        match door {
            Door::Address(address) => self.connections.push((kind.clone(), tcp(*address)?)),
            Door::Inherited(fd) => {
                for socket in inherited.take(fd)? {
                    match socket {
                        InheritedSocket::Tcp(listener) => {
                            self.connections.push((kind.clone(), listening(fd, listener)?));
                        }
                        InheritedSocket::Udp(_) => {
                            return Err(BindError::NotForConnections { fd: fd.clone() });
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn bind_for_names(
        &mut self,
        door: &Door,
        dns: &config::DnsSettings,
        inherited: &mut Inherited,
    ) -> Result<(), BindError> {
        let answerable = |local: io::Result<SocketAddr>| {
            let local = local.unwrap_or_else(|_| (Ipv4Addr::UNSPECIFIED, 0).into());
            match NameServer::answer_at(dns, local) {
                Some(_) => Ok(()),
                None => Err(BindError::NoAnswer { door: door.clone(), local }),
            }
        };
        match door {
            Door::Address(address) => {
                let (by_udp, by_tcp, local) = udp_and_tcp(*address)?;
                answerable(Ok(local))?;
                self.names_tcp.push(by_tcp);
                self.names_udp.push(by_udp);
            }
            Door::Inherited(fd) => {
                for socket in inherited.take(fd)? {
                    match socket {
                        InheritedSocket::Tcp(listener) => {
                            answerable(listener.local_addr())?;
                            self.names_tcp.push(listening(fd, listener)?);
                        }
                        InheritedSocket::Udp(socket) => {
                            answerable(socket.local_addr())?;
                            self.names_udp.push(socket);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// UDP and TCP on one port. Where the kernel chooses the port, it chooses for UDP
/// alone, and the port may be taken for TCP; so a few ports are tried.
fn udp_and_tcp(address: SocketAddr) -> Result<(UdpSocket, TcpListener, SocketAddr), BindError> {
    let tries = if address.port() == 0 { 16 } else { 1 };
    let mut last = None;
    for _ in 0..tries {
        let by_udp = udp(address)?;
        let local = by_udp.local_addr().unwrap_or(address);
        match tcp(local) {
            Ok(by_tcp) => return Ok((by_udp, by_tcp, local)),
            Err(err) => last = Some(err),
        }
    }
    Err(last.expect("there is at least one try"))
}

fn listening(fd: &Fd, listener: TcpListener) -> Result<TcpListener, BindError> {
    match SockRef::from(&listener).is_listener() {
        Ok(true) => Ok(listener),
        Ok(false) | Err(_) => Err(BindError::NotListening { fd: fd.clone() }),
    }
}

fn tcp(address: SocketAddr) -> Result<TcpListener, BindError> {
    let open = || {
        let socket = socket(address, Type::STREAM, Protocol::TCP)?;
        // A gateway that restarts must not wait for the connections of the last.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(TcpListener::from(socket))
    };
    open().map_err(|source| BindError::Bind { address, source })
}

fn udp(address: SocketAddr) -> Result<UdpSocket, BindError> {
    let open = || {
        let socket = socket(address, Type::DGRAM, Protocol::UDP)?;
        socket.bind(&address.into())?;
        Ok(UdpSocket::from(socket))
    };
    open().map_err(|source| BindError::Bind { address, source })
}

fn socket(address: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if address.is_ipv6() {
        // `[::]` is every IPv6 address, not every address.
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Connections that the kernel queues while every slot is taken.
const BACKLOG: i32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const DNS: config::DnsSettings = config::DnsSettings {
        answer: None,
        hosts: std::collections::BTreeMap::new(),
        ttl: std::time::Duration::from_secs(5),
        queries_per_second: 10,
    };

    fn door(written: &str) -> Vec<Door> {
        vec![Door::try_from(written.to_owned()).expect("it is a door")]
    }

    #[test]
    fn names_are_answered_on_one_port_over_both_protocols() {
        let listen = Listen { dns: door("127.0.0.1:0"), ..Listen::default() };
        let bound = bind(&listen, &DNS, &mut Inherited::nothing()).expect("the port is free");
        let tcp = bound.names_tcp.first().and_then(|socket| socket.local_addr().ok());
        let udp = bound.names_udp.first().and_then(|socket| socket.local_addr().ok());
        assert_eq!(tcp, udp);
        assert!(tcp.is_some_and(|address| address.port() != 0));
    }

    #[test]
    fn a_taken_address_is_named() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = taken.local_addr().expect("it is bound").to_string();
        let listen = Listen { proxy: door(&address), ..Listen::default() };
        let err = bind(&listen, &DNS, &mut Inherited::nothing()).expect_err("it is taken");
        assert_eq!(err.to_string(), format!("cannot listen on {address}"));
    }

    #[test]
    fn a_socket_that_was_not_inherited_is_not_found() {
        let listen = Listen { https: door("fd:https"), ..Listen::default() };
        let err = bind(&listen, &DNS, &mut Inherited::nothing()).expect_err("nothing is there");
        assert_eq!(
            err.to_string(),
            "fd:https was not inherited; LISTEN_FDS names no sockets, so the gateway was started with none"
        );
    }
}
