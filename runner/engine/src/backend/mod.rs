//! Where a run executes.
//!
//! The trait is as small as the run's story needs and no smaller. Decisions are
//! made before it is called (see [`crate::plan`]): a backend carries out a
//! [`Plan`] and does not read policy, settings or the environment.
//!
//! Everything a backend makes is named after the run and labelled, so that
//! [`Backend::remove`] finds it even when making it failed half way, and
//! [`Backend::labelled`] finds what a crash left behind.

mod choose;
mod content;
pub mod docker;
mod doors;
mod engine;
mod gateway_process;
mod launcher;
mod local;
mod mount_entries;
pub mod namespaces;
pub mod podman;
mod processes;
mod relay;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use policies::Attachment;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWrite;
use tokio::sync::Notify;

pub use crate::abilities::{Abilities, Enforcement, UserOf};
use crate::connector::Connector;
use crate::link::PendingLink;
use crate::plan::{Plan, RunId, gateway_of};
use crate::resource::{Resource, RunResources};
pub use choose::{OpenedBackend, all, open};
pub use content::{ContentFiles, GatewayContent, Masked, SandboxContent, WorkspaceMount};
pub use doors::OpenDoors;

/// A place that can hold sandboxes.
#[async_trait]
pub trait Backend: Send + Sync {
    fn name(&self) -> &'static str;

    /// What it can promise on this machine.
    fn abilities(&self) -> Abilities;

    async fn has_image(&self, image: &str) -> bool;

    /// Makes the usual image, under any name. Takes a minute or so.
    async fn build_image(&self, name: &str) -> Result<(), BackendError>;

    /// The address at which a gateway that is attached like this reaches this machine, for
    /// stand-in servers here.
    async fn host_address(&self, attach: Attachment) -> Result<IpAddr, BackendError>;

    /// What sandboxes of `image` are made of, and by whom, for the record.
    async fn provenance(&self, image: &str) -> Provenance {
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

    /// What this run will make.
    fn resources(&self, plan: &Plan) -> RunResources;

    /// Makes the run's only network, on which its gateway will be.
    async fn make_network(&self, plan: &Plan) -> Result<MadeNetwork, BackendError>;

    /// Opens the gateway's sockets in the network of a sandbox that has started, where
    /// [`Backend::make_network`] could not. `first_process` is its number on this machine.
    async fn open_doors(&self, plan: &Plan, first_process: i32) -> Result<OpenDoors, BackendError> {
        let _ = (plan, first_process);
        Ok(OpenDoors::default())
    }

    /// Makes of the gateway what does not have to wait for the network.
    async fn create_gateway(
        &self,
        plan: &Plan,
        content: &GatewayContent,
    ) -> Result<CreatedGateway, BackendError>;

    /// Starts the gateway on `network`, or with its sockets in there. It ends with the
    /// returned handle, and with us.
    async fn start_gateway(
        &self,
        plan: &Plan,
        gateway: CreatedGateway,
        network: &Network,
        doors: OpenDoors,
        settings: &ContentFiles,
    ) -> Result<GatewayHandle, BackendError>;

    /// Leads to the control socket of a run's gateway.
    fn control(&self, run: &RunId) -> Connector;

    /// Builds the sandbox, which does not run yet.
    async fn create_sandbox(
        &self,
        plan: &Plan,
        content: &SandboxContent,
        network: Option<&Network>,
    ) -> Result<CreatedSandbox, BackendError>;

    /// Starts its first process, which speaks on the sandbox's link.
    async fn start_sandbox(&self, sandbox: &Sandbox) -> Result<(), BackendError>;

    /// Fills the trust kit that the sandbox has in view, once it is known.
    async fn write_trust_kit(&self, run: &RunId, kit: &ContentFiles) -> Result<(), BackendError>;

    /// Ends everything in it at once.
    async fn kill(&self, sandbox: &Sandbox) -> Result<(), BackendError>;

    /// Waits until it has ended.
    async fn wait_for_end(&self, sandbox: &Sandbox) -> Result<Ended, BackendError>;

    /// What it takes at this moment; nothing when it does not run.
    async fn stats(&self, run: &RunId) -> Result<Option<Stats>, BackendError>;

    /// Everything that bears our label, by run.
    async fn labelled(&self) -> Result<Vec<LabelledResource>, BackendError>;

    /// Removes one thing. That it is gone already counts as removed.
    async fn remove(&self, resource: &Resource) -> Result<(), BackendError>;
}

/// How many sandboxes are made well at once. More at once take turns in each of their steps,
/// so that all are done when the last one is.
fn max_concurrent_starts() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (4 * processors).max(8)
}

/// Whether the sandbox of `plan` is attached to its gateway in this way.
fn is_attached_by(plan: &Plan, way: Attachment) -> bool {
    plan.network.as_ref().is_some_and(|network| network.attach == way)
}

/// Why inotify instances cannot be limited for one sandbox.
fn shared_inotify() -> Enforcement {
    let why = "the sandbox's user is also who starts it, and instances of inotify are counted for \
               everything that this user does on this machine";
    Enforcement::Unavailable { why: why.to_owned() }
}

/// Why pipes, epoll watches and descriptors in flight cannot be limited for one sandbox.
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

/// A sandbox, by what its backend calls it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Sandbox {
    pub name: String,
}

/// A sandbox that was made and not started, and the way to its first process.
#[derive(Debug)]
pub struct CreatedSandbox {
    pub sandbox: Sandbox,
    pub link: PendingLink,
}

/// A gateway that was made as far as it could be without its network.
#[derive(Clone, Debug)]
pub struct CreatedGateway {
    pub name: String,
    pub content: GatewayContent,
}

/// A run's only network, and who is where on it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Network {
    pub name: String,
    pub gateway: Ipv4Addr,
    pub sandbox: Ipv4Addr,
    pub listeners: ListenerSource,
}

impl Network {
    /// Of a sandbox that has no network but the gateway's sockets: every address in there
    /// leads to them.
    fn of_doors(plan: &Plan) -> Self {
        let attach = plan.network.as_ref().map(|network| network.attach).unwrap_or_default();
        Self {
            name: engine::labels::RunNames::of(&plan.run).sandbox,
            gateway: gateway_of(attach),
            sandbox: match attach {
                Attachment::Network | Attachment::Sockets => protocol::doors::OWN,
                Attachment::Relay => Ipv4Addr::LOCALHOST,
            },
            listeners: ListenerSource::Inherited,
        }
    }
}

/// A network, and the gateway's sockets in it where they are open already.
#[derive(Debug)]
pub struct MadeNetwork {
    pub network: Network,
    pub doors: Option<OpenDoors>,
}

/// How a gateway comes by its listening sockets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ListenerSource {
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
    /// Leads to its control socket.
    pub control: Connector,
}

impl fmt::Debug for GatewayHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayHandle").field("log", &self.log).finish_non_exhaustive()
    }
}

/// The last that a gateway said, and whether it is gone.
#[derive(Clone, Debug, Default)]
pub struct GatewayLog(Arc<(Mutex<GatewayLogText>, Notify)>);

#[derive(Debug, Default)]
struct GatewayLogText {
    text: String,
    gone: bool,
}

impl GatewayLog {
    pub fn add(&self, bytes: &[u8]) {
        let mut log = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.text.push_str(&String::from_utf8_lossy(bytes));
        // Only the last lines are kept: they explain why it ended.
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

/// A piece of what a command printed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Chunk {
    pub to: OutputSide,
    pub bytes: Bytes,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OutputSide {
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

/// A run locks what it has just made within this time. What is older and not locked was
/// left by a crash.
pub const MAX_BEGINNING_AGE: Duration = Duration::from_secs(60);

/// A backend step that failed, and which one.
#[derive(Debug, thiserror::Error)]
#[error("{backend}: cannot {step}")]
pub struct BackendError {
    pub backend: &'static str,
    pub step: BackendStep,
    #[source]
    pub source: anyhow::Error,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BackendStep {
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
    #[error("open the sandbox's doors")]
    OpenDoors,
    #[error("make the workspace's volume")]
    MakeVolume,
    #[error("write the files of the run")]
    WriteFiles,
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
