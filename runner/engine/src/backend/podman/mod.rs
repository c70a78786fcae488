//! Sandboxes in Podman, without root.
//!
//! The promises are Docker's, and so is everything that happens to a container
//! once there is one ([`super::engine`]). Made they are through Podman's own
//! interface ([`libpod`]): [`network`] makes the sandbox's only network,
//! [`gateway`] and [`sandbox`] what stands on it. [`service`] finds somebody who
//! serves that interface, or serves it; [`about`] knows what this Podman can
//! promise here.

mod about;
mod about_cache;
mod container;
mod gateway;
mod libpod;
mod network;
mod pools;
mod sandbox;
mod service;
mod stats;

use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};

use async_trait::async_trait;
use bollard::query_parameters::InspectContainerOptions;
use policies::Attachment;
use serde_json::Value;
use tokio::task;

use super::doors::OpenDoors;
use super::engine::labels::RunNames;
use super::engine::{self, Engine, containers, sweep};
use super::gateway_process::GatewayProcesses;
use super::{
    Abilities, Backend, BackendError, BackendStep, ContentFiles, CreatedGateway, CreatedSandbox,
    Ended, Enforcement, GatewayContent, GatewayHandle, LabelledResource, ListenerSource,
    MadeNetwork, Network, Provenance, Sandbox, SandboxContent, Stats, is_attached_by,
};
use crate::connector::Connector;
use crate::environment::Environment;
use crate::image::agent;
use crate::plan::{Plan, RunId};
use crate::resource::{Resource, RunResources};
use about::About;
use about_cache::AboutCache;
use libpod::Libpod;
use service::Service;

/// A Podman that answers.
#[derive(Debug)]
pub struct Podman {
    engine: Engine,
    libpod: Libpod,
    about: About,
    gateways: GatewayProcesses,
    /// Ends with us, where it is ours.
    _service: Option<Service>,
}

impl Podman {
    /// Reaches the Podman that `CONTAINER_HOST` names, else the one at the usual
    /// socket, else one that we start.
    pub async fn connect(environment: &Environment) -> Result<Self, BackendError> {
        let served = service::reach(environment).await.map_err(unreachable)?;
        let (libpod, service) = served.split();
        Self::at(libpod, service, environment.clone()).await
    }

    /// Whether there is one to ask: somebody serves it, or this user, who is not
    /// root, has its program.
    pub fn is_here(environment: &Environment) -> bool {
        let is_named = environment.variable("CONTAINER_HOST").is_some_and(|told| !told.is_empty());
        is_named || (!rustix::process::geteuid().is_root() && environment.has_program("podman"))
    }

    /// Whether this user has ever kept anything in it.
    pub fn is_used(environment: &Environment) -> bool {
        let store = match environment.absolute("HOME") {
            Some(home) if !rustix::process::geteuid().is_root() => home.join(".local/share"),
            Some(_) | None => "/var/lib".into(),
        };
        store.join("containers/storage").exists()
            || environment.variable("CONTAINER_HOST").is_some()
    }

    async fn at(
        libpod: Libpod,
        service: Option<Service>,
        environment: Environment,
    ) -> Result<Self, BackendError> {
        let broken = unreachable;
        // Of one that somebody else serves we do not know what it depends on.
        let cache = service.as_ref().map(|_| AboutCache::of(&environment));
        let about = match cache.as_ref().and_then(AboutCache::read) {
            Some(about) => about,
            None => {
                let said = libpod.get("/info").await.map_err(|err| broken(err.into()))?;
                let about = serde_json::from_value(said).map_err(|err| broken(err.into()))?;
                if let Some(cache) = cache {
                    cache.keep(&about);
                }
                about
            }
        };
        if let Some(why) = about.unfit() {
            return Err(broken(anyhow::anyhow!(why)));
        }
        let socket = libpod.socket().display().to_string();
        let version = libpod.docker_version().await.map_err(|err| broken(err.into()))?;
        let api = bollard::Docker::connect_with_unix(&socket, REQUEST_TIMEOUT_SECONDS, &version)
            .map_err(|err| broken(err.into()))?;
        let gateways = GatewayProcesses::here(&environment).map_err(broken)?;
        Ok(Self {
            engine: Engine { api, name: NAME, environment },
            libpod,
            about,
            gateways,
            _service: service,
        })
    }

    fn broken(&self, step: BackendStep, why: impl Into<anyhow::Error>) -> BackendError {
        self.engine.broken(step, why)
    }

    /// Where the kernel kept what it needed for a sandbox's overlay.
    async fn work_of(&self, container: &str) -> Option<String> {
        let found = self.engine.api.inspect_container(container, None::<InspectContainerOptions>);
        found.await.ok()?.config?.labels?.remove(WORK)
    }
}

#[async_trait]
impl Backend for Podman {
    fn name(&self) -> &'static str {
        NAME
    }

    fn abilities(&self) -> Abilities {
        self.about.abilities()
    }

    async fn has_image(&self, image: &str) -> bool {
        self.libpod.exists(&format!("/images/{image}")).await.unwrap_or_default()
    }

    async fn build_image(&self, name: &str) -> Result<(), BackendError> {
        let name = our_own(name);
        // It takes a list of several lines for one. What a run needs it says itself.
        let built =
            agent::build(&self.engine.api, &name, Vec::new(), &self.engine.environment).await;
        built.map_err(|err| self.broken(BackendStep::BuildImage, err))
    }

    async fn host_address(&self, attach: Attachment) -> Result<IpAddr, BackendError> {
        match attach {
            Attachment::Network => network::host(self).await,
            Attachment::Relay | Attachment::Sockets => Ok(Ipv4Addr::LOCALHOST.into()),
        }
    }

    async fn provenance(&self, image: &str) -> Provenance {
        let found = self.libpod.get(&format!("/images/{image}/json")).await.unwrap_or_default();
        let digests = found.get("RepoDigests").and_then(Value::as_array).into_iter().flatten();
        Provenance {
            engine: Some(format!("{NAME} {}", self.about.version())),
            image_id: found.get("Id").and_then(Value::as_str).map(|id| format!("sha256:{id}")),
            image_digests: digests.filter_map(|one| Some(one.as_str()?.to_owned())).collect(),
        }
    }

    fn max_concurrent_starts(&self) -> Option<usize> {
        Some(super::max_concurrent_starts())
    }

    fn resources(&self, plan: &Plan) -> RunResources {
        let mut made = RunNames::of(&plan.run).resources(plan);
        // An overlay is part of its container here.
        made.others.retain(|resource| !matches!(resource, Resource::Volume(_)));
        made
    }

    async fn make_network(&self, plan: &Plan) -> Result<MadeNetwork, BackendError> {
        if is_attached_by(plan, Attachment::Network) {
            let network = network::make(self, &plan.run).await?;
            return Ok(MadeNetwork { network, doors: None });
        }
        let made = self.gateways.make_network(plan).await;
        made.map_err(|err| self.broken(BackendStep::MakeNetwork, err))
    }

    async fn open_doors(&self, plan: &Plan, first_process: i32) -> Result<OpenDoors, BackendError> {
        containers::open_doors(&self.engine, &self.gateways, plan, first_process).await
    }

    async fn create_gateway(
        &self,
        plan: &Plan,
        content: &GatewayContent,
    ) -> Result<CreatedGateway, BackendError> {
        let made = self.engine.local(&plan.run).make_gateway_folders(content);
        made.map_err(self.engine.unwritten())?;
        Ok(CreatedGateway { name: RunNames::of(&plan.run).gateway, content: content.clone() })
    }

    async fn start_gateway(
        &self,
        plan: &Plan,
        gateway: CreatedGateway,
        network: &Network,
        doors: OpenDoors,
        settings: &ContentFiles,
    ) -> Result<GatewayHandle, BackendError> {
        let written = self.engine.local(&plan.run).write_settings(settings);
        written.map_err(self.engine.unwritten())?;
        match network.listeners {
            ListenerSource::Inherited => {
                let started = self.gateways.start(plan, &gateway.content, doors).await;
                started.map_err(|err| self.broken(BackendStep::StartGateway, err))
            }
            ListenerSource::Own => gateway::start(self, plan, &gateway, network).await,
        }
    }

    fn control(&self, run: &RunId) -> Connector {
        self.engine.local(run).control()
    }

    async fn create_sandbox(
        &self,
        plan: &Plan,
        content: &SandboxContent,
        network: Option<&Network>,
    ) -> Result<CreatedSandbox, BackendError> {
        let link = containers::expect_link(&self.engine, &self.gateways, plan).await?;
        let sandbox = sandbox::create(self, plan, content, network).await?;
        Ok(CreatedSandbox { sandbox, link })
    }

    async fn start_sandbox(&self, sandbox: &Sandbox) -> Result<(), BackendError> {
        containers::start(&self.engine, sandbox).await?;
        // Nothing runs in there yet but our own first process.
        pools::bound(self, sandbox).await
    }

    async fn write_trust_kit(&self, run: &RunId, kit: &ContentFiles) -> Result<(), BackendError> {
        self.engine.local(run).write_trust_kit(kit).map_err(self.engine.unwritten())
    }

    async fn kill(&self, sandbox: &Sandbox) -> Result<(), BackendError> {
        containers::kill(&self.engine, sandbox).await
    }

    async fn wait_for_end(&self, sandbox: &Sandbox) -> Result<Ended, BackendError> {
        containers::ended(&self.engine, sandbox).await
    }

    async fn stats(&self, run: &RunId) -> Result<Option<Stats>, BackendError> {
        match self.about.limits("memory") {
            Enforcement::Enforced => engine::stats::stats(&self.engine, run).await,
            Enforcement::Unavailable { .. } | Enforcement::Watched { .. } => {
                stats::stats(self, run).await
            }
        }
    }

    async fn labelled(&self) -> Result<Vec<LabelledResource>, BackendError> {
        let mut found = sweep::found(&self.engine).await?;
        found.extend(self.gateways.found(NAME));
        Ok(found)
    }

    async fn remove(&self, resource: &Resource) -> Result<(), BackendError> {
        let work = match resource {
            Resource::Container(name) => self.work_of(name).await,
            Resource::Process(name) => {
                let ended = self.gateways.end(name).await;
                return ended.map_err(|err| self.broken(BackendStep::Remove, err));
            }
            Resource::Folder(_) | Resource::Network(_) | Resource::Volume(_) => None,
        };
        sweep::remove(&self.engine, resource).await?;
        if let Some(work) = work {
            empty(&work, &self.engine.environment).await;
        }
        Ok(())
    }
}

/// Removes what the kernel left in an overlay's working folder. It belongs to
/// the sandbox's root, which is nobody on the host, so it takes a process in the
/// same user namespace. What stays keeps nobody from anything but tidiness.
async fn empty(work: &str, environment: &Environment) {
    let environment = environment.clone();
    let inner = format!("{work}/work");
    let emptying = task::spawn_blocking(move || {
        Command::new("podman")
            .args(["unshare", "rm", "-rf", "--", &inner])
            .env_clear()
            .envs(environment.variables())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
    });
    drop(emptying.await);
}

/// An image that was made here; else Podman takes a name without a registry for
/// one of the world's.
fn our_own(name: &str) -> String {
    let (first, rest) = name.split_once('/').unwrap_or(("", name));
    let registry = !rest.is_empty() && (first.contains(['.', ':']) || first == "localhost");
    if registry { name.to_owned() } else { format!("{OUR_OWN}{name}") }
}

fn unreachable(source: anyhow::Error) -> BackendError {
    BackendError { backend: NAME, step: BackendStep::Connect, source }
}

const OUR_OWN: &str = "localhost/";
const NAME: &str = "podman";
/// A label on a sandbox whose workspace is an overlay.
const WORK: &str = "dev.sluice.overlay-work";
/// Seconds.
const REQUEST_TIMEOUT_SECONDS: u64 = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_a_registry_is_our_own() {
        for (name, whole) in [
            ("sluice/agent:latest", "localhost/sluice/agent:latest"),
            ("agent", "localhost/agent"),
            ("localhost/agent", "localhost/agent"),
            ("registry.example/a/b:1", "registry.example/a/b:1"),
            ("host:5000/a", "host:5000/a"),
        ] {
            assert_eq!(our_own(name), whole);
        }
    }
}
