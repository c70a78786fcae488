//! A sandbox's only network.
//!
//! `internal` alone is no boundary: engines before 25 give a default route, and
//! every service of the host answers on the bridge's address. So the bridge gets
//! no address at all, and whoever may add a firewall rule adds one.

use std::collections::HashMap;

use bollard::models::{Ipam, IpamConfig, NetworkCreateRequest};

use super::labels::{RunNames, labels};
use super::subnet::Subnet;
use super::{Docker, broken};
use crate::backend::engine::refusal::is_subnet_taken;
use crate::backend::{BackendError, BackendStep, ListenerSource, Network};
use crate::plan::RunId;

/// Makes the network of `run` on the first subnet that is free.
pub(super) async fn make(docker: &Docker, run: &RunId) -> Result<Network, BackendError> {
    let names = RunNames::of(run);
    for subnet in Subnet::candidates(run).take(TRIES) {
        match docker.engine.api.create_network(wanted(docker, &names, run, subnet)).await {
            Ok(_) => {
                return Ok(Network {
                    name: names.network,
                    gateway: subnet.gateway(),
                    sandbox: subnet.sandbox(),
                    listeners: ListenerSource::Own,
                });
            }
            Err(err) if is_subnet_taken(&err) => {}
            Err(err) => return Err(broken(BackendStep::MakeNetwork, err)),
        }
    }
    Err(broken(
        BackendStep::MakeNetwork,
        anyhow::anyhow!("{TRIES} subnets are taken; `sluice sweep` removes what crashed runs left"),
    ))
}

fn wanted(docker: &Docker, names: &RunNames, run: &RunId, subnet: Subnet) -> NetworkCreateRequest {
    let options = [
        ("com.docker.network.bridge.inhibit_ipv4", "true"),
        ("com.docker.network.bridge.enable_ip_masquerade", "false"),
        // Engines from 28 on know this one; older ones ignore it silently,
        // which is why nothing relies on it.
        ("com.docker.network.bridge.gateway_mode_ipv4", "isolated"),
        ("com.docker.network.bridge.name", &names.bridge),
    ];
    let options: HashMap<_, _> =
        options.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let addresses = IpamConfig {
        subnet: Some(subnet.cidr()),
        gateway: Some(subnet.bridge().to_string()),
        ..IpamConfig::default()
    };
    NetworkCreateRequest {
        name: names.network.clone(),
        driver: Some("bridge".to_owned()),
        internal: Some(true),
        enable_ipv6: Some(false),
        ipam: Some(Ipam { config: Some(vec![addresses]), ..Ipam::default() }),
        options: Some(options),
        labels: Some(labels(run, &docker.engine.environment)),
        ..NetworkCreateRequest::default()
    }
}

/// Enough for a machine full of sandboxes, and an end.
const TRIES: usize = 512;
