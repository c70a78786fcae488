//! Where a run executes.
//!
//! The trait is as small as the run's story needs and no smaller. Decisions are
//! made before it is called (see [`crate::plan`]): a backend carries out a
//! [`Plan`] and does not read policy, settings or the environment.
//!
//! Everything a backend makes is named after the run and labelled, so that
//! [`Backend::remove`] finds it even when making it failed half way, and
//! [`Backend::found`] finds what a crash left behind.

mod choose;
pub mod docker;
mod engine;
pub mod namespaces;
pub mod podman;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWrite;
use tokio::sync::Notify;

pub use crate::abilities::{Abilities, Enforcement, UserOf};
use crate::plan::{Plan, RunId};
use crate::resource::Resource;
pub use choose::{Opened, all, open};

/// A place that can hold sandboxes.
#[async_trait]
pub trait Backend: Send + Sync {
    fn name(&self) -> &'static str;

    /// What it can promise on this machine.
    fn abilities(&self) -> Abilities;

    async fn has_image(&self, image: &str) -> bool;

    /// Makes the usual image, under any name. Takes a minute or so.
    async fn build_image(&self, name: &str) -> Result<(), BackendError>;

    /// Where a gateway sees this machine, for servers that stand in for others.
    async fn host(&self) -> Result<IpAddr, BackendError>;

    /// What sandboxes of `image` are made of, and by whom, for the record.
    async fn used(&self, image: &str) -> Provenance {
        let _ = image;
        Provenance::default()
    }

    /// Whether the sandbox can be made while its gateway starts.
    fn starts_gateway_concurrently(&self) -> bool {
        false
    }

    /// How many sandboxes it makes well at the same time; nothing means any number.
    fn max_concurrent_starts(&self) -> Option<usize> {
        None
    }

    /// What this run will make, in the order it is made: the sandbox last.
    fn resources(&self, plan: &Plan) -> Vec<Resource>;

    /// Makes the run's only network, on which its gateway will be; and of the
    /// gateway what does not have to wait for that.
    async fn connect(&self, plan: &Plan, files: &GatewayFiles) -> Result<Network, BackendError>;

    /// Starts the gateway on it. It ends with the returned handle, and with us.
    async fn start_gateway(
        &self,
        plan: &Plan,
        network: &Network,
        files: &GatewayFiles,
    ) -> Result<GatewayHandle, BackendError>;

    /// Builds the sandbox, which does not run yet.
    async fn create(
        &self,
        plan: &Plan,
        inside: &SandboxFiles,
        network: Option<&Network>,
    ) -> Result<Sandbox, BackendError>;

    /// Starts its first process, which connects to us.
    async fn start(&self, sandbox: &Sandbox) -> Result<(), BackendError>;

    /// Ends everything in it at once.
    async fn kill(&self, sandbox: &Sandbox) -> Result<(), BackendError>;

    /// Waits until it has ended.
    async fn ended(&self, sandbox: &Sandbox) -> Result<Ended, BackendError>;

    /// What it takes at this moment; nothing when it does not run.
    async fn stats(&self, run: &RunId) -> Result<Option<Stats>, BackendError>;

    /// Everything that bears our label, by run.
    async fn found(&self) -> Result<Vec<LabelledResource>, BackendError>;

    /// Removes one thing. That it is gone already counts as removed.
    async fn remove(&self, resource: &Resource) -> Result<(), BackendError>;
}

/// What a sandbox shares with its user.
fn shared_inotify() -> Enforcement {
    let why = "the sandbox's user is also who starts it, and instances of inotify are counted for \
               everything that this user does on this machine";
    Enforcement::Unavailable { why: why.to_owned() }
}

/// The same, of what no user namespace can bound.
fn shared_pipes() -> Enforcement {
    let why = "the sandbox's user is also who starts it, and pages of pipes, watches of epoll and \
               descriptors in flight are counted for everything that this user does on this \
               machine; only root can give a sandbox a user of its own";
    Enforcement::Unavailable { why: why.to_owned() }
}

/// What a sandbox was made of, as far as the backend knows.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Provenance {
    /// The engine and its version.
    pub engine: Option<String>,
    /// What the image's name meant at that moment.
    pub image_id: Option<String>,
    /// What registries call it.
    pub image_digests: Vec<String>,
}

/// A sandbox that was made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sandbox {
    pub name: String,
}

/// A run's only network, and who is where on it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Network {
    pub name: String,
    pub gateway: Ipv4Addr,
    pub sandbox: Ipv4Addr,
    pub listeners: Listeners,
}

/// How a gateway comes by its listening sockets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Listeners {
    /// It opens them at its address.
    Own,
    /// They were opened in the sandbox's network, and it is handed them.
    Inherited,
}

/// A gateway that was started.
pub struct GatewayHandle {
    /// Its standard input. The gateway ends when this end of it is gone.
    pub lifeline: Pin<Box<dyn AsyncWrite + Send>>,
    pub log: GatewayLog,
}

impl fmt::Debug for GatewayHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayHandle").field("log", &self.log).finish_non_exhaustive()
    }
}

/// The last that a gateway said, and whether it is gone.
#[derive(Clone, Debug, Default)]
pub struct GatewayLog(Arc<(Mutex<Log>, Notify)>);

#[derive(Debug, Default)]
struct Log {
    text: String,
    gone: bool,
}

impl GatewayLog {
    pub fn add(&self, bytes: &[u8]) {
        let mut log = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.text.push_str(&String::from_utf8_lossy(bytes));
        // Its end is what explains its end.
        while log.text.len() > LOG_BYTES {
            let line = log.text.find('\n').map_or(log.text.len(), |at| at + 1);
            log.text.drain(..line);
        }
        self.0.1.notify_one();
    }

    pub fn end(&self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).gone = true;
        self.0.1.notify_one();
    }

    /// Waits until it says something more, or is gone.
    pub async fn changed(&self) {
        self.0.1.notified().await;
    }

    pub fn is_gone(&self) -> bool {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).gone
    }

    /// The last lines of what it said, in one.
    pub fn last_words(&self) -> String {
        let text = self.text();
        let mut lines: Vec<&str> = text.lines().rev().take(4).collect();
        lines.reverse();
        if lines.is_empty() { "nothing".to_owned() } else { lines.join(" / ") }
    }

    pub fn text(&self) -> String {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).text.clone()
    }
}

const LOG_BYTES: usize = 64 * 1024;

/// What the gateway is given, on the host.
#[derive(Clone, Debug)]
pub struct GatewayFiles {
    /// The program, static.
    pub program: PathBuf,
    /// Settings and policy, read-only for it.
    pub settings: PathBuf,
    /// Its control socket's folder.
    pub control: PathBuf,
    /// Where it writes its log.
    pub audit: PathBuf,
    pub user: crate::plan::UserIds,
}

/// What is put into a sandbox besides its image.
#[derive(Clone, Debug, Default)]
pub struct SandboxFiles {
    /// Our first process, and the socket it speaks to us on.
    pub init: PathBuf,
    pub socket: PathBuf,
    /// The program that tries a sandbox, where one is to be tried.
    pub probe: Option<PathBuf>,
    /// The trust kit, where there is a gateway.
    pub trust: Option<PathBuf>,
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

/// A piece of what a command printed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Chunk {
    pub to: Side,
    pub bytes: Bytes,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    Err,
    Out,
}

/// How a sandbox ended, as the engine tells it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ended {
    pub code: i64,
    pub oom_killed: bool,
}

/// What a sandbox takes at one moment.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Stats {
    pub cpu_nanoseconds: u64,
    pub memory: u64,
    pub memory_limit: u64,
    pub pids: u64,
    pub pids_limit: u64,
    pub received: u64,
    pub sent: u64,
}

/// One thing with our label on it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LabelledResource {
    pub run: RunId,
    pub resource: Resource,
    pub owner: u32,
    /// For containers.
    pub running: bool,
    /// Where its run's folder is, if it says so: see [`crate::environment::Environment::runtime`].
    pub runtime: Option<PathBuf>,
}

/// To hold a run's folder takes a moment, even on a busy machine.
pub const LONGEST_BEGINNING: Duration = Duration::from_secs(60);

/// A backend step that failed, and which one.
#[derive(Debug, thiserror::Error)]
#[error("{backend}: cannot {step}")]
pub struct BackendError {
    pub backend: &'static str,
    pub step: Step,
    #[source]
    pub source: anyhow::Error,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Step {
    #[error("build the image")]
    BuildImage,
    #[error("reach the engine")]
    Connect,
    #[error("create the sandbox")]
    Create,
    #[error("find the image")]
    FindImage,
    #[error("kill the sandbox")]
    Kill,
    #[error("list what is there")]
    List,
    #[error("make the sandbox's network")]
    MakeNetwork,
    #[error("make the workspace's volume")]
    MakeVolume,
    #[error("measure the sandbox")]
    Measure,
    #[error("remove what was made")]
    Remove,
    #[error("start the sandbox")]
    Start,
    #[error("start the gateway")]
    StartGateway,
    #[error("wait for the sandbox")]
    Wait,
}
