//! What the runner and the launcher say to each other.
//!
//! One line of JSON a message, over a socket that is the launcher's standard
//! input. The runner says what the [`NamespaceSpec`] is and, once it knows everything,
//! gives the [`SandboxSpec`]; the launcher answers with [`LauncherMessage`]s, some of which
//! bring descriptors along.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The first line: who, and on what network. Enough to plant the gateway's
/// sockets, which is needed before the rest can be known.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct NamespaceSpec {
    /// Whom the sandbox is inside.
    pub user: u32,
    pub group: u32,
    /// Whom it is to the host, if root starts it: the caller is who it is.
    pub host_user: u32,
    /// Control groups to enter, each made and limited already.
    pub groups: Vec<PathBuf>,
    /// Where the gateway listens. Nothing means no network at all.
    pub doors: Vec<ListenerSpec>,
    /// Goes on when the runner is gone.
    pub session: bool,
}

/// One of the gateway's sockets.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ListenerSpec {
    /// As the gateway's settings call it.
    pub name: String,
    /// Unspecified means every address.
    pub address: Ipv4Addr,
    pub port: u16,
    pub kind: SocketKind,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub enum SocketKind {
    /// Sees what comes in over TCP, to whichever address and port.
    RawTcp,
    /// The same over UDP.
    RawUdp,
    Tcp,
    Udp,
}

/// The order for `sluice-launch doors`: sockets in the network of a sandbox that somebody
/// else made.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct DoorsSpec {
    /// The sandbox's first process.
    pub pid: i32,
    pub listeners: Vec<ListenerSpec>,
}

/// The order for `sluice-launch relay`: a network that is a twin of a sandbox's, in
/// which the gateway's sockets are opened and the sandbox's connections are made again.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct RelaySpec {
    /// At the addresses and ports of the sandbox's doors.
    pub listeners: Vec<ListenerSpec>,
    /// Whom it becomes when we are root.
    pub user: u32,
    pub group: u32,
    /// Goes on when the runner is gone.
    pub session: bool,
}

/// The second line: the sandbox.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct SandboxSpec {
    /// A directory with an unpacked image; nothing means an empty root.
    pub image: Option<PathBuf>,
    /// What stands in the root, in the order it is put there.
    pub places: Vec<MountEntry>,
    pub limits: ProcessLimits,
    /// Bytes of memory that the launcher looks after, where no control group does.
    pub watched_memory: Option<u64>,
    /// What may be written to, for the second wall.
    pub writable: Vec<String>,
    pub hostname: String,
    pub directory: String,
    /// The first process; its path is one of the sandbox.
    pub program: String,
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
}

/// The order for a gateway on the host. Its sockets come with the line.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct GatewaySpec {
    /// Whom it becomes when we are root.
    pub user: u32,
    pub group: u32,
    /// What its sockets are called.
    pub names: Vec<String>,
    pub order: SandboxSpec,
}

/// Bounds that every process has for itself.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct ProcessLimits {
    pub open_files: u64,
    /// Bytes of one file.
    pub file_size: u64,
    /// Processes of the sandbox: the kernel counts them per user namespace.
    pub processes: u64,
    /// Bytes that a process may write to without a file.
    pub data: Option<u64>,
}

/// One thing in the sandbox's root.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "place")]
pub enum MountEntry {
    /// A file or directory of the host.
    Bind {
        at: String,
        source: PathBuf,
        read_only: bool,
        /// A device stays one.
        device: bool,
        /// That it is not there on the host is no error.
        optional: bool,
    },
    /// Nothing can be seen there. Skipped where there is nothing.
    Cover {
        at: String,
    },
    Directory {
        at: String,
    },
    File {
        at: String,
        text: String,
    },
    /// This sandbox's own control groups, to be read.
    Groups {
        at: String,
        kind: GroupKind,
    },
    Link {
        at: String,
        to: String,
    },
    /// The options are the kernel's.
    Overlay {
        at: String,
        options: String,
    },
    Proc {
        at: String,
    },
    /// Nothing can be written there. Skipped where there is nothing.
    ReadOnly {
        at: String,
    },
    /// Terminals of this sandbox alone.
    Terminals {
        at: String,
    },
    Tmpfs {
        at: String,
        bytes: u64,
        inodes: u64,
        mode: u32,
        executable: bool,
    },
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupKind {
    /// A controller of the first version.
    First(String),
    Second,
}

/// From the launcher.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "report")]
pub enum LauncherMessage {
    /// The sandbox has ended. The last line.
    Ended {
        code: i32,
        /// The launcher ended it, for want of memory.
        #[serde(default)]
        out_of_memory: bool,
    },
    /// There is no sandbox, and why. The last line.
    Failed { step: String, why: String },
    /// Brings the gateway's sockets, in the order they were asked for.
    ListenersOpened,
    /// The first process runs.
    Started {
        /// As the host calls it.
        pid: i32,
        /// What the second wall is made of.
        second_wall: String,
    },
}

/// From the runner, later.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LauncherCommand {
    /// End the sandbox. Once it runs.
    Kill,
    /// Serve the channel that comes with this line ([`crate::relay`]). Once, after
    /// [`LauncherMessage::ListenersOpened`] of a relay.
    Relay,
}
