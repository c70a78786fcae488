//! A gateway's listening sockets, opened in its sandbox's network.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::Path;

use protocol::launcher::{DoorsSpec, LauncherMessage, ListenerSpec, SocketKind};

use super::launcher::Launcher;
use crate::plan::{NetworkPlan, Ports};

/// The sockets, and what the gateway's settings call them.
#[derive(Debug, Default)]
pub struct Doors {
    pub(in crate::backend) names: Vec<String>,
    pub(in crate::backend) sockets: Vec<OwnedFd>,
}

impl Doors {
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
        match launcher.hear().await? {
            Some((LauncherMessage::ListenersOpened, sockets)) => {
                Self::opened(&spec.listeners, sockets)
            }
            Some((LauncherMessage::Failed { step, why }, _)) => {
                Err(io::Error::other(format!("cannot {step}: {why}")))
            }
            Some((other, _)) => Err(io::Error::other(format!("the launcher said {other:?}"))),
            None => Err(io::Error::other("the launcher is gone")),
        }
    }
}

/// Everything the gateway listens on, in the order in which it is opened.
pub(in crate::backend) fn listeners(network: &NetworkPlan) -> Vec<ListenerSpec> {
    let Ports { dns, http, https, proxy, socks } = network.ports;
    let everywhere = |name: &str, port, kind| ListenerSpec {
        name: name.to_owned(),
        address: Ipv4Addr::UNSPECIFIED,
        port,
        kind,
    };
    vec![
        everywhere("dns", dns, SocketKind::Udp),
        everywhere("dns", dns, SocketKind::Tcp),
        everywhere("http", http, SocketKind::Tcp),
        everywhere("https", https, SocketKind::Tcp),
        everywhere("proxy", proxy, SocketKind::Tcp),
        everywhere("socks", socks, SocketKind::Tcp),
    ]
}

/// What every name is answered with. Any address would do, since all lead to the
/// gateway; this one is set aside for tests of networks (RFC 2544), so no program
/// has a reason to avoid it.
pub(in crate::backend) const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
