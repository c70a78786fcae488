//! Sandboxes in Docker, engine 20.10 and newer.
//!
//! One file a concern: [`network`] makes the sandbox's only network, [`gateway`]
//! starts what stands at its other end, [`sandbox`] says what a sandbox is made
//! of, [`users`] who it is.

mod egress;
mod firewall;
mod gateway;
mod network;
mod reach;
mod sandbox;
mod users;

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use bollard::errors::Error;

use policies::Attachment;

use super::doors::OpenDoors;
use super::engine::labels::RunNames;
use super::engine::{
    Engine, container_env, containers, in_its_words, labels, shared_terminals, stats, status,
    subnet, sweep,
};
use super::gateway_process::GatewayProcesses;
use super::{
    Abilities, Backend, BackendError, BackendStep, ContentFiles, CreatedGateway, CreatedSandbox,
    Ended, Enforcement, GatewayContent, GatewayHandle, LabelledResource, ListenerSource,
    MadeNetwork, Network, Provenance, Sandbox, SandboxContent, Stats, UserOf, is_attached_by,
    shared_inotify, shared_pipes,
};
use crate::connector::Connector;
use crate::environment::Environment;
use crate::image::agent;
use crate::plan::{Plan, RunId};
use crate::resource::{Resource, RunResources};
use crate::spec::AGENT_IMAGE;

/// A Docker engine that answers.
#[derive(Debug)]
pub struct Docker {
    engine: Engine,
    user: UserOf,
    gateways: GatewayProcesses,
    /// Why a gateway's sockets cannot be opened in a container, where that is so.
    no_sockets: Option<String>,
}

impl Docker {
    /// Whether the person names an engine, or a broken setting may do so.
    pub fn is_named(environment: &Environment) -> bool {
        !reach::socket(environment).is_ok_and(|socket| socket == Path::new(reach::USUAL))
    }

    /// Reaches the engine that the person's settings name, else the one at the usual socket.
    pub async fn connect(environment: &Environment) -> Result<Self, BackendError> {
        let unreachable = |why| broken(BackendStep::Connect, why);
        let socket = reach::socket(environment).map_err(unreachable)?;
        reach::knock(&socket).map_err(unreachable)?;
        let socket = socket.display().to_string();
        let api = bollard::Docker::connect_with_unix(&socket, 120, bollard::API_DEFAULT_VERSION)
            .map_err(failed(BackendStep::Connect))?;
        // The engine may speak an older version than we do; ask which.
        let api = api.negotiate_version().await.map_err(|err| {
            let advice =
                format!("what listens at {socket} does not answer as a Docker engine does");
            broken(BackendStep::Connect, anyhow::Error::new(err).context(advice))
        })?;
        // A busy engine makes networks one after the other.
        let api = api.with_timeout(REQUEST_TIMEOUT);
        let user = user(&api).await;
        let gateways = GatewayProcesses::here(environment).map_err(unreachable)?;
        let is_root = rustix::process::geteuid().is_root();
        let no_sockets = (!is_root).then(|| "only root may enter a container's network".to_owned());
        let environment = environment.clone();
        Ok(Self { engine: Engine { api, name: NAME, environment }, user, gateways, no_sockets })
    }
}

#[async_trait]
impl Backend for Docker {
    fn name(&self) -> &'static str {
        NAME
    }

    fn abilities(&self) -> Abilities {
        let own = self.user != UserOf::Caller;
        Abilities {
            backend: NAME,
            image: AGENT_IMAGE,
            attachments: match &self.no_sockets {
                None => Attachment::ALL.to_vec(),
                Some(_) => vec![Attachment::Relay, Attachment::Network],
            },
            no_sockets: self.no_sockets.clone(),
            cpus: Enforcement::Enforced,
            memory: Enforcement::Enforced,
            pids: Enforcement::Enforced,
            inotify: if own { Enforcement::Enforced } else { shared_inotify() },
            pipes: if own { Enforcement::Enforced } else { shared_pipes() },
            terminals: shared_terminals(),
            user: self.user,
        }
    }

    async fn has_image(&self, image: &str) -> bool {
        self.engine.api.inspect_image(image).await.is_ok()
    }

    async fn build_image(&self, name: &str) -> Result<(), BackendError> {
        let Engine { api, environment, .. } = &self.engine;
        let build =
            async { agent::build(api, name, agent::config(environment)?, environment).await };
        build.await.map_err(|err| broken(BackendStep::BuildImage, err))
    }

    async fn host_address(&self, attach: Attachment) -> Result<IpAddr, BackendError> {
        match attach {
            Attachment::Network => egress::host(self).await,
            Attachment::Relay | Attachment::Sockets => Ok(Ipv4Addr::LOCALHOST.into()),
        }
    }

    async fn provenance(&self, image: &str) -> Provenance {
        let api = &self.engine.api;
        let (version, image) = tokio::join!(api.version(), api.inspect_image(image));
        let image = image.ok();
        Provenance {
            engine: version.ok().and_then(|version| version.version).map(|v| format!("{NAME} {v}")),
            image_id: image.as_ref().and_then(|image| image.id.clone()),
            image_digests: image.and_then(|image| image.repo_digests).unwrap_or_default(),
        }
    }

    fn starts_gateway_concurrently(&self) -> bool {
        true
    }

    fn max_concurrent_starts(&self) -> Option<usize> {
        Some(super::max_concurrent_starts())
    }

    fn resources(&self, plan: &Plan) -> RunResources {
        RunNames::of(&plan.run).resources(plan)
    }

    async fn make_network(&self, plan: &Plan) -> Result<MadeNetwork, BackendError> {
        if !is_attached_by(plan, Attachment::Network) {
            let made = self.gateways.make_network(plan).await;
            return made.map_err(|err| broken(BackendStep::MakeNetwork, err));
        }
        // A rule we may not set is not relied upon.
        let environment = self.engine.environment.clone();
        let firewall = tokio::task::spawn_blocking(move || firewall::ensure(&environment));
        let network = tokio::join!(network::make(self, &plan.run), firewall).0?;
        Ok(MadeNetwork { network, doors: None })
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
        if is_attached_by(plan, Attachment::Network) {
            egress::ensure(self).await?;
            gateway::create(self, plan, content).await?;
        }
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
                started.map_err(|err| broken(BackendStep::StartGateway, err))
            }
            ListenerSource::Own => gateway::start(self, plan, &gateway.name, network).await,
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
        containers::start(&self.engine, sandbox).await
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
        stats::stats(&self.engine, run).await
    }

    async fn labelled(&self) -> Result<Vec<LabelledResource>, BackendError> {
        let mut found = sweep::found(&self.engine).await?;
        found.extend(self.gateways.found(NAME));
        Ok(found)
    }

    async fn remove(&self, resource: &Resource) -> Result<(), BackendError> {
        match resource {
            Resource::Process(name) => {
                self.gateways.end(name).await.map_err(|err| broken(BackendStep::Remove, err))
            }
            _ => sweep::remove(&self.engine, resource).await,
        }
    }
}

/// Root may make a sandbox anybody, unless the engine knows only some numbers: one
/// that is not root's, or that gives all containers other users.
async fn user(api: &bollard::Docker) -> UserOf {
    if !rustix::process::geteuid().is_root() {
        return UserOf::Caller;
    }
    let info = api.info().await;
    let options = info.ok().and_then(|info| info.security_options);
    let has = |options: &[String], name: &str| options.iter().any(|option| option.contains(name));
    match options {
        Some(options) if !has(&options, "name=userns") && !has(&options, "name=rootless") => {
            UserOf::Host
        }
        Some(_) | None => UserOf::Caller,
    }
}

const NAME: &str = "docker";
const REQUEST_TIMEOUT: Duration = Duration::from_secs(300);

/// An error of the engine's, and what it kept us from.
fn failed(step: BackendStep) -> impl FnOnce(Error) -> BackendError {
    move |err| broken(step, err)
}

fn broken(step: BackendStep, why: impl Into<anyhow::Error>) -> BackendError {
    BackendError { backend: NAME, step, source: in_its_words(why.into()) }
}
