//! How a sandbox's doors reach its gateway.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The ways, from the weakest to the strongest. A policy that names one wants that one or a
/// stronger one.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Attachment {
    /// A network of its own, on which nobody is but the gateway.
    #[default]
    Network,
    /// No network: the first process passes on what is said at its doors.
    Relay,
    /// No network: the gateway's sockets were opened in the sandbox and handed to it.
    Sockets,
}

impl Attachment {
    pub const ALL: [Self; 3] = [Self::Network, Self::Relay, Self::Sockets];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|attachment| attachment.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Relay => "relay",
            Self::Sockets => "sockets",
        }
    }

    /// What a sandbox sees of it, and nothing else.
    pub fn interfaces(self) -> &'static str {
        match self {
            Self::Network => "eth0 lo",
            Self::Relay | Self::Sockets => "lo",
        }
    }
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
