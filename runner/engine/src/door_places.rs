//! The doors of a sandbox: what they are called, and where they are.
//!
//! Pure. Whoever opens them and whoever tells the gateway of them read it here.

use policies::Attachment;

use crate::plan::{HostDoorsPlan, NetworkPlan};

/// What the socket of a further port is called.
pub(crate) fn door_of_port(port: u16) -> String {
    format!("port-{port}")
}

/// What the socket of a host is called.
pub(crate) fn door_of_host(named: &HostDoorsPlan, port: u16) -> String {
    format!("tcp-{}-{port}", named.address)
}

/// Whether every address of the sandbox's network leads to the gateway, and what finds no
/// door there is seen. It takes a privilege to make a network so.
pub(crate) fn listens_everywhere(network: &NetworkPlan) -> bool {
    network.attach == Attachment::Sockets
}

/// The ports of a host that have sockets of their own. Those that are listened on at every
/// address tell it by the address.
pub(crate) fn own_ports(network: &NetworkPlan, named: &HostDoorsPlan) -> impl Iterator<Item = u16> {
    let everywhere = if listens_everywhere(network) { EVERYWHERE.as_slice() } else { &[] };
    named.ports.iter().copied().filter(move |port| !everywhere.contains(port))
}

/// Names, HTTP and TLS are answered at every address.
const EVERYWHERE: [u16; 3] = [53, 80, 443];

/// What the sockets are called that see what nobody answers.
pub(crate) const UNANSWERED: &str = "unanswered";
