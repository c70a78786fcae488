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

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::collections::HashSet;

    use policies::Attachment;

    use super::*;
    use crate::plan::{DoorsPlan, HostDoorsPlan};

    fn opened(attach: Attachment) -> Vec<String> {
        let named = |host: &str, index, ports: &[u16]| HostDoorsPlan {
            host: host.to_owned(),
            address: protocol::doors::named(gateway_of(attach), index),
            ports: ports.to_vec(),
        };
        let network = NetworkPlan {
            gateway: Cow::Borrowed("gateway"),
            attach,
            interfaces: Cow::Borrowed("lo"),
            ports: Ports { dns: 53, http: 80, https: 443, proxy: 3128, socks: 1080 },
            doors: DoorsPlan {
                ports: vec![8443],
                hosts: vec![named("a.test", 0, &[443, 5432]), named("b.test", 1, &[5432])],
            },
            observe: false,
            rules: 3,
            trust: Cow::Borrowed("/etc/sluice/ca"),
            covered: Vec::new(),
        };
        let listeners = listeners(&network);
        let places: HashSet<_> =
            listeners.iter().map(|it| (it.kind, it.address, it.port)).collect();
        assert_eq!(places.len(), listeners.len(), "no two at the same place");
        let told =
            |it: &ListenerSpec| format!("{} {:?} {}:{}", it.name, it.kind, it.address, it.port);
        listeners.iter().map(told).collect()
    }

    #[test]
    fn every_address_leads_to_names_and_the_web_and_named_hosts_have_their_own() {
        assert_eq!(
            opened(Attachment::Sockets),
            [
                "dns Udp 0.0.0.0:53",
                "dns Tcp 0.0.0.0:53",
                "http Tcp 0.0.0.0:80",
                "https Tcp 0.0.0.0:443",
                "proxy Tcp 198.18.0.1:3128",
                "socks Tcp 198.18.0.1:1080",
                "unanswered RawTcp 0.0.0.0:0",
                "unanswered RawUdp 0.0.0.0:0",
                "port-8443 Tcp 198.18.0.1:8443",
                // That of port 443 is known by the address.
                "tcp-198.19.0.1-5432 Tcp 198.19.0.1:5432",
                "tcp-198.19.0.2-5432 Tcp 198.19.0.2:5432",
            ]
        );
    }

    #[test]
    fn a_relay_opens_nothing_that_takes_a_privilege() {
        assert_eq!(
            opened(Attachment::Relay),
            [
                "dns Udp 127.18.0.1:53",
                "dns Tcp 127.18.0.1:53",
                "http Tcp 127.18.0.1:80",
                "https Tcp 127.18.0.1:443",
                "proxy Tcp 127.18.0.1:3128",
                "socks Tcp 127.18.0.1:1080",
                "port-8443 Tcp 127.18.0.1:8443",
                "tcp-127.19.0.1-443 Tcp 127.19.0.1:443",
                "tcp-127.19.0.1-5432 Tcp 127.19.0.1:5432",
                "tcp-127.19.0.2-5432 Tcp 127.19.0.2:5432",
            ]
        );
    }
}
