//! `listen.ports`, `listen.tcp` and `listen.unanswered`: the doors that a policy's
//! rules ask for beside ports 80 and 443.

use std::sync::Arc;

use policies::{Destination, HostError, HostName};

use super::door::{Door, Fd};

/// A further port on which TLS and HTTP are captured.
#[derive(Clone, Debug, Eq, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapturedPort {
    /// The port that clients connect to, which need not be that of `at`.
    #[serde(deserialize_with = "port")]
    pub port: u16,
    pub at: Door,
}

/// The door of one host: a connection that comes in there is for it.
#[derive(Clone, Debug, Eq, PartialEq, serde::Deserialize)]
#[serde(from = "TcpSection")]
pub struct HostDoor {
    pub to: Arc<Destination>,
    pub at: Door,
}

/// A name, written out.
#[derive(Debug, Eq, Ord, PartialEq, PartialOrd, serde::Deserialize)]
#[serde(try_from = "String")]
pub(super) struct WrittenHost(pub(super) HostName);

impl TryFrom<String> for WrittenHost {
    type Error = HostError;

    fn try_from(written: String) -> Result<Self, Self::Error> {
        HostName::parse(&written).map(Self)
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct TcpSection {
    host: WrittenHost,
    #[serde(deserialize_with = "port")]
    port: u16,
    at: Door,
}

impl From<TcpSection> for HostDoor {
    fn from(TcpSection { host: WrittenHost(host), port, at }: TcpSection) -> Self {
        Self { to: Arc::new(Destination { host: host.into(), port }), at }
    }
}

/// Raw sockets, which only somebody else can open.
#[derive(Clone, Debug, Eq, PartialEq, serde::Deserialize)]
#[serde(try_from = "Door")]
pub(super) struct PacketFd(pub(super) Fd);

impl TryFrom<Door> for PacketFd {
    type Error = String;

    fn try_from(door: Door) -> Result<Self, Self::Error> {
        match door {
            Door::Inherited(fd) => Ok(Self(fd)),
            Door::Address(address) => {
                Err(format!("`{address}` is no raw socket; hand one over, and write `fd:NAME`"))
            }
        }
    }
}

fn port<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    match serde::Deserialize::deserialize(deserializer)? {
        0 => Err(serde::de::Error::custom("it must be at least 1")),
        port => Ok(port),
    }
}
