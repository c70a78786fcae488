//! What a backend makes for a run, and what has to go with it.

use std::fmt;
use std::path::PathBuf;

/// One thing that has to go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Resource {
    Container(String),
    /// A folder of ours on the host, with what is in it; what is mounted there
    /// is unmounted.
    Folder(PathBuf),
    Network(String),
    /// A gateway on this machine.
    Process(String),
    Volume(String),
}

/// What one run makes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RunResources {
    pub sandbox: Resource,
    pub gateway: Option<Resource>,
    /// What these two are made of: a network, a volume.
    pub others: Vec<Resource>,
}

impl RunResources {
    pub fn all(&self) -> impl Iterator<Item = &Resource> {
        self.others.iter().chain(&self.gateway).chain([&self.sandbox])
    }
}

impl Resource {
    /// What goes at once: first who uses something, then what they used.
    pub(crate) fn wave(&self) -> u8 {
        match self {
            Self::Container(_) | Self::Process(_) => 0,
            Self::Network(_) | Self::Volume(_) => 1,
            Self::Folder(_) => 2,
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Container(name) => write!(f, "container {name}"),
            Self::Folder(path) => write!(f, "folder {}", path.display()),
            Self::Network(name) => write!(f, "network {name}"),
            Self::Process(name) => write!(f, "process {name}"),
            Self::Volume(name) => write!(f, "volume {name}"),
        }
    }
}
