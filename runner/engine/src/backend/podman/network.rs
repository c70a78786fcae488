//! A sandbox's only network, and the one on which gateways meet the world.
//!
//! `internal` alone is no boundary here either: the bridge has an address on
//! which every service of the host answers, and a name server on it that asks
//! the host's. Without the name server the bridge gets no address, and both are
//! gone. What is left is IPv6, which every container switches off for itself.

use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::Podman;
use super::libpod::LibpodError;
use crate::backend::engine::labels::{MANAGED_BY, RunNames, US, labels};
use crate::backend::engine::subnet::Subnet;
use crate::backend::{BackendError, BackendStep, ListenerSource, Network};
use crate::plan::RunId;

pub(super) const EGRESS: &str = "sluice-egress";

/// Makes the network of `run` on the first subnet that is free.
pub(super) async fn make(podman: &Podman, run: &RunId) -> Result<Network, BackendError> {
    let names = RunNames::of(run);
    for subnet in Subnet::candidates(run).take(TRIES) {
        match podman.libpod.post("/networks/create", &wanted(podman, &names, run, subnet)).await {
            Ok(made) => {
                if !is_closed(&made) {
                    let why = format!("it is not the network that was asked for: {made}");
                    return Err(podman.broken(BackendStep::MakeNetwork, anyhow::anyhow!(why)));
                }
                return Ok(Network {
                    name: names.network,
                    gateway: subnet.gateway(),
                    sandbox: subnet.sandbox(),
                    listeners: ListenerSource::Own,
                });
            }
            Err(err) if is_taken(&err) => {}
            Err(err) => return Err(podman.broken(BackendStep::MakeNetwork, err)),
        }
    }
    Err(podman.broken(
        BackendStep::MakeNetwork,
        anyhow::anyhow!("{TRIES} subnets are taken; `sluice sweep` removes what crashed runs left"),
    ))
}

fn wanted(podman: &Podman, names: &RunNames, run: &RunId, subnet: Subnet) -> Value {
    json!({
        "name": names.network,
        "driver": "bridge",
        "network_interface": names.bridge,
        "internal": true,
        "dns_enabled": false,
        "ipv6_enabled": false,
        "subnets": [{"subnet": subnet.cidr()}],
        "labels": labels(run, &podman.engine.environment),
    })
}

/// A version that does not know a word of it would leave the bridge its address.
fn is_closed(made: &Value) -> bool {
    let addresses = made.pointer("/subnets/0/gateway").and_then(Value::as_str);
    let says = |name: &str| made.get(name).and_then(Value::as_bool);
    says("internal") == Some(true)
        && says("dns_enabled") != Some(true)
        && says("ipv6_enabled") != Some(true)
        && addresses.is_none_or(str::is_empty)
}

/// Makes sure that the gateways' network is there.
pub(super) async fn ensure_egress(podman: &Podman) -> Result<(), BackendError> {
    let broken = |err| podman.broken(BackendStep::MakeNetwork, err);
    if podman.libpod.exists(&format!("/networks/{EGRESS}")).await.map_err(broken)? {
        return Ok(());
    }
    for third in (0..=255_u8).rev().take(16) {
        match podman.libpod.post("/networks/create", &egress(third)).await {
            Ok(_) => return Ok(()),
            Err(err) if is_taken(&err) => {}
            // Another run was faster.
            Err(err) if err.status() == Some(409) => return Ok(()),
            Err(err) => return Err(broken(err)),
        }
    }
    let why = "no subnet of 198.19.240.0/20 is free for the network of the gateways";
    Err(podman.broken(BackendStep::MakeNetwork, anyhow::anyhow!(why)))
}

fn egress(third: u8) -> Value {
    json!({
        "name": EGRESS,
        "driver": "bridge",
        "network_interface": "sluice-egress",
        "internal": false,
        "dns_enabled": false,
        "ipv6_enabled": false,
        "subnets": [{"subnet": format!("198.19.{third}.0/24")}],
        // Nobody on other networks is any of their business.
        "options": {"isolate": "true"},
        "labels": {MANAGED_BY: US},
    })
}

/// Where gateways see this machine. Their network is in a namespace whose way out
/// is a process on the host, so it is the host's own address.
pub(super) async fn host(podman: &Podman) -> Result<IpAddr, BackendError> {
    ensure_egress(podman).await?;
    own_address()
        .context("this machine has no address that a gateway could see")
        .map_err(|err| podman.broken(BackendStep::MakeNetwork, err))
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing is sent: the kernel is asked which address it would be sent from"
)]
fn own_address() -> io::Result<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
    Ok(socket.local_addr()?.ip())
}

/// Somebody else has that subnet: another run, or a network of the host's. Or
/// Podman could not tell, because an interface went while it looked at all of
/// them.
fn is_taken(err: &LibpodError) -> bool {
    const SAID: [&str; 3] = ["already used", "overlap", "no such network interface"];
    let said = err.to_string();
    err.status().is_some() && SAID.iter().any(|one| said.contains(one))
}

/// Enough for a machine full of sandboxes, and an end.
const TRIES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_with_an_address_on_its_bridge_is_not_the_one_we_asked_for() {
        let closed = json!({"internal": true, "dns_enabled": false, "ipv6_enabled": false,
            "subnets": [{"subnet": "198.18.0.0/29"}]});
        assert!(is_closed(&closed));
        for (at, open) in [
            ("/internal", json!(false)),
            ("/dns_enabled", json!(true)),
            ("/ipv6_enabled", json!(true)),
            ("/subnets/0", json!({"subnet": "198.18.0.0/29", "gateway": "198.18.0.1"})),
        ] {
            let mut made = closed.clone();
            *made.pointer_mut(at).unwrap() = open;
            assert!(!is_closed(&made), "{made}");
        }
    }
}
