//! What a runner tells a gateway: `gateway.yaml`, as far as a runner writes it.
//!
//! The gateway reads more than this, and reads it with the line of every problem,
//! into types of its own; people write such files too. JSON is YAML, so what these
//! types are written as is what the gateway reads.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// All of it. Paths are the gateway's own.
#[derive(Clone, Debug, Serialize)]
pub struct GatewaySettings {
    pub run: String,
    pub policy: String,
    /// What stands in for `/` where policies are read.
    pub policy_root: String,
    pub control: String,
    pub audit: String,
    pub ca: CaPlace,
    pub limits: LimitSettings,
    pub topology: Topology,
    pub listen: ListenSettings,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<DnsAnswers>,
    pub origin: RunOrigin,
    /// Hosts that this run may reach beyond its policy.
    pub allow: Vec<String>,
    pub observe: bool,
    pub registries: RegistryUrls,
    pub upstream: UpstreamPlaces,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CaPlace {
    Memory,
}

#[derive(Clone, Debug, Serialize)]
pub struct LimitSettings {
    /// How long connections may go on once the gateway is told to end, such as `2s`.
    pub drain: String,
}

/// What the gateway stands between.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Topology {
    /// The sandbox's network and another one. A kernel that forwards packets
    /// would carry them past the gateway, so such a gateway does not start.
    DualHomed,
    /// Nothing: its sockets stand on loopback, or were opened by whoever
    /// started it. There is nothing to route.
    Host,
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DualHomed => "dual_homed",
            Self::Host => "host",
        })
    }
}

/// Where it listens: `ADDRESS:PORT`, or `fd:NAME` for a socket it is handed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ListenSettings {
    pub proxy: String,
    pub socks: String,
    pub http: String,
    pub https: String,
    pub dns: String,
    /// Ports beside 80 and 443 on which TLS and HTTP are captured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortDoor>,
    /// Doors of one host each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tcp: Vec<TcpDoor>,
    /// Raw sockets that see what no listener answers: always `fd:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<String>,
}

/// A further port, and where connections to it come in.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct PortDoor {
    pub port: u16,
    pub at: String,
}

/// Every connection that comes in there is for this host and port.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct TcpDoor {
    pub host: String,
    pub port: u16,
    pub at: String,
}

/// The addresses that names are answered with.
#[derive(Clone, Debug, Serialize)]
pub struct DnsAnswers {
    /// Every name but those of `hosts`.
    pub answer: Ipv4Addr,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<String, Ipv4Addr>,
}

/// Who started the run, for the first line of its log.
#[derive(Clone, Debug, Serialize)]
pub struct RunOrigin {
    pub user: String,
    pub host: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    pub backend: String,
    pub version: String,
}

/// What rules mean that name no registry.
#[derive(Clone, Debug, Serialize)]
pub struct RegistryUrls {
    pub npm: Vec<String>,
    pub pip: Vec<String>,
    pub pip_files: Vec<String>,
}

/// Where servers are, and whose certificates they may have.
#[derive(Clone, Debug, Serialize)]
pub struct UpstreamPlaces {
    pub roots: RootFiles,
    /// Addresses of hosts that are not asked of a name server.
    pub hosts: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct RootFiles {
    pub files: Vec<String>,
}
