//! What goes into a sandbox and a gateway: content, wherever they are made.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::plan::UserIds;

/// Files by their path below the folder that they are for.
#[derive(Clone, Debug, Default)]
pub struct ContentFiles(BTreeMap<String, Vec<u8>>);

impl ContentFiles {
    pub fn add(&mut self, path: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.0.insert(path.into(), bytes.into());
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice()))
    }
}

/// What a gateway is made of. Its settings follow when its network is known.
#[derive(Clone, Debug)]
pub struct GatewayContent {
    /// The program, static.
    pub program: PathBuf,
    /// Where its log is to be, on this machine.
    pub audit: PathBuf,
    pub user: UserIds,
}

/// What is put into a sandbox besides its image.
#[derive(Clone, Debug, Default)]
pub struct SandboxContent {
    /// Our first process, static.
    pub init: PathBuf,
    /// The program that tries a sandbox, where one is to be tried.
    pub probe: Option<PathBuf>,
    pub workspace: WorkspaceMount,
    /// Paths below the workspace that are covered: read-only from the host, or
    /// hidden.
    pub protected: Vec<(PathBuf, String)>,
    pub masked: Vec<Masked>,
}

/// How the project gets into the sandbox.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum WorkspaceMount {
    Bind {
        source: PathBuf,
        read_only: bool,
    },
    #[default]
    None,
    /// The options of the mount.
    Overlay {
        options: String,
    },
}

/// A path of the workspace that the sandbox cannot read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Masked {
    /// As the sandbox sees it.
    pub path: String,
    /// An empty file or directory of ours that stands in for it.
    pub with: PathBuf,
}
