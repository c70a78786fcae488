//! The network on which gateways meet the world; one for all runs.
//!
//! Gateways do not need each other, so it does not let them talk.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use bollard::models::{Ipam, IpamConfig, NetworkCreateRequest};

use super::labels::{MANAGED_BY, US};
use super::{Docker, broken, failed};
use crate::backend::engine::refusal::{is_network_there, is_subnet_taken};
use crate::backend::{BackendError, BackendStep};

pub(super) const NAME: &str = "sluice-egress";

/// Makes sure that it is there.
pub(super) async fn ensure(docker: &Docker) -> Result<(), BackendError> {
    if docker.engine.api.inspect_network(NAME, None).await.is_ok() {
        return Ok(());
    }
    for third in (0..=255_u8).rev().take(16) {
        match docker.engine.api.create_network(wanted(third)).await {
            Ok(_) => return Ok(()),
            Err(err) if is_network_there(&err) => return Ok(()),
            Err(err) if is_subnet_taken(&err) => {}
            Err(err) => return Err(broken(BackendStep::MakeNetwork, err)),
        }
    }
    let why = "no subnet of 198.19.240.0/20 is free for the network of the gateways";
    Err(broken(BackendStep::MakeNetwork, anyhow::anyhow!(why)))
}

/// Where gateways see this machine: the address of their network's bridge.
pub(super) async fn host(docker: &Docker) -> Result<IpAddr, BackendError> {
    ensure(docker).await?;
    let found = docker.engine.api.inspect_network(NAME, None).await;
    let found = found.map_err(failed(BackendStep::MakeNetwork))?;
    let subnets = found.ipam.and_then(|ipam| ipam.config).unwrap_or_default();
    let address = subnets.iter().find_map(|subnet| first_host(subnet.subnet.as_deref()?));
    address.map(IpAddr::V4).ok_or_else(|| {
        broken(BackendStep::MakeNetwork, anyhow::anyhow!("the network {NAME} has no subnet"))
    })
}

/// The first address of a subnet after its own, which engines give the bridge.
fn first_host(subnet: &str) -> Option<Ipv4Addr> {
    let network: Ipv4Addr = subnet.split_once('/')?.0.parse().ok()?;
    network.to_bits().checked_add(1).map(Ipv4Addr::from_bits)
}

fn wanted(third: u8) -> NetworkCreateRequest {
    let option = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let addresses =
        IpamConfig { subnet: Some(format!("198.19.{third}.0/24")), ..IpamConfig::default() };
    NetworkCreateRequest {
        name: NAME.to_owned(),
        driver: Some("bridge".to_owned()),
        enable_ipv6: Some(false),
        ipam: Some(Ipam { config: Some(vec![addresses]), ..Ipam::default() }),
        options: Some(HashMap::from([
            option("com.docker.network.bridge.enable_icc", "false"),
            option("com.docker.network.bridge.name", "sluice-egress"),
        ])),
        labels: Some(HashMap::from([option(MANAGED_BY, US)])),
        ..NetworkCreateRequest::default()
    }
}
