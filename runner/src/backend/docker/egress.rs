//! The network on which gateways meet the world; one for all runs.
//!
//! Gateways do not need each other, so it does not let them talk.

use std::collections::HashMap;

use bollard::models::{Ipam, IpamConfig, NetworkCreateRequest};

use super::labels::{MANAGED_BY, US};
use super::{Docker, broken, status};
use crate::backend::{BackendError, Step};

pub(super) const NAME: &str = "sluice-egress";

/// Makes sure that it is there.
pub(super) async fn ensure(docker: &Docker) -> Result<(), BackendError> {
    if docker.engine.api.inspect_network(NAME, None).await.is_ok() {
        return Ok(());
    }
    for third in (0..=255_u8).rev().take(16) {
        match docker.engine.api.create_network(wanted(third)).await {
            Ok(_) => return Ok(()),
            // Another run was faster.
            Err(err) if status(&err) == Some(409) || err.to_string().contains("same bridge") => {
                return Ok(());
            }
            Err(err) if err.to_string().contains("overlap") => {}
            Err(err) => return Err(broken(Step::MakeNetwork, err)),
        }
    }
    let why = "no subnet of 198.19.240.0/20 is free for the network of the gateways";
    Err(broken(Step::MakeNetwork, anyhow::anyhow!(why)))
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
