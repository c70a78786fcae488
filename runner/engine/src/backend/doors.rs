//! A gateway's listening sockets, opened in its sandbox's network.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::Path;

use protocol::launcher::{DoorsSpec, LauncherMessage, ListenerSpec, SocketKind};

use super::launcher::Launcher;
use crate::door_places::{UNANSWERED, door_of_host, door_of_port, listens_everywhere, own_ports};
use crate::plan::{NetworkPlan, Ports, gateway_of};

/// The sockets, and what the gateway's settings call them.
#[derive(Debug, Default)]
pub struct OpenDoors {
    pub(in crate::backend) names: Vec<String>,
    pub(in crate::backend) sockets: Vec<OwnedFd>,
}

impl OpenDoors {
    /// The sockets that were opened for these listeners, in the same order.
    pub(in crate::backend) fn opened(
        listeners: &[ListenerSpec],
        sockets: Vec<OwnedFd>,
    ) -> io::Result<Self> {
        if sockets.len() != listeners.len() {
            let (wanted, got) = (listeners.len(), sockets.len());
            return Err(io::Error::other(format!("{got} sockets were opened, and not {wanted}")));
        }
        Ok(Self {
            names: listeners.iter().map(|listener| listener.name.clone()).collect(),
            sockets,
        })
    }

    /// Opens them in the network of process `pid`, which must have no device but loopback.
    pub(in crate::backend) async fn open_in(
        launcher: &Path,
        pid: i32,
        listeners: Vec<ListenerSpec>,
    ) -> io::Result<Self> {
        let mut launcher = Launcher::start(launcher, "doors")?;
        let spec = DoorsSpec { pid, listeners };
        launcher.voice.say(&spec).await?;
        Self::received(&mut launcher, &spec.listeners).await
    }

    /// Those that a launcher was told to open, and hands over.
    pub(in crate::backend) async fn received(
        launcher: &mut Launcher,
        listeners: &[ListenerSpec],
    ) -> io::Result<Self> {
        match launcher.hear().await? {
            Some((LauncherMessage::ListenersOpened, sockets)) => Self::opened(listeners, sockets),
            Some((LauncherMessage::Failed { step, why }, _)) => {
                Err(io::Error::other(format!("cannot {step}: {why}")))
            }
            Some((other, _)) => Err(io::Error::other(format!("the launcher said {other:?}"))),
            None => Err(io::Error::other("the launcher is gone")),
        }
    }
}

/// Everything the gateway listens on, in the order in which it is opened.
///
/// Names, HTTP and TLS at every address where that is possible, since a program may have its
/// own idea of where a host is. The rest at the gateway's own address, and at those of hosts
/// that have one: what a sandbox serves on loopback is not in the way.
pub(in crate::backend) fn listeners(network: &NetworkPlan) -> Vec<ListenerSpec> {
    let Ports { dns, http, https, proxy, socks } = network.ports;
    let listener = |name: &str, address, port, kind| ListenerSpec {
        name: name.to_owned(),
        address,
        port,
        kind,
    };
    let gateway = gateway_of(network.attach);
    let captured = if listens_everywhere(network) { Ipv4Addr::UNSPECIFIED } else { gateway };
    let mut listeners = vec![
        listener("dns", captured, dns, SocketKind::Udp),
        listener("dns", captured, dns, SocketKind::Tcp),
        listener("http", captured, http, SocketKind::Tcp),
        listener("https", captured, https, SocketKind::Tcp),
        listener("proxy", gateway, proxy, SocketKind::Tcp),
        listener("socks", gateway, socks, SocketKind::Tcp),
    ];
    if listens_everywhere(network) {
        let raw = [SocketKind::RawTcp, SocketKind::RawUdp];
        listeners.extend(raw.map(|kind| listener(UNANSWERED, Ipv4Addr::UNSPECIFIED, 0, kind)));
    }
    for port in &network.doors.ports {
        listeners.push(listener(&door_of_port(*port), gateway, *port, SocketKind::Tcp));
    }
    for named in &network.doors.hosts {
        listeners.extend(own_ports(network, named).map(|port| {
            listener(&door_of_host(named, port), named.address, port, SocketKind::Tcp)
        }));
    }
    listeners
}
