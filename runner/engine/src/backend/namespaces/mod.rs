//! Sandboxes of Linux namespaces: no daemon, no image, no root.
//!
//! Our own launcher makes them ([`inside::launch`]); this is who tells it what to
//! make. [`layout`] decides what stands in a sandbox's root, [`groups`] what of
//! the machine it may take.
//!
//! Nothing here outlives its processes: mounts, networks and users are all in
//! namespaces, which the kernel removes with the last process in them. What can
//! be left over are empty control groups.

mod delegated;
mod groups;
mod layout;
mod stats;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use inside::launch::forbidden;
use policies::Attachment;
use protocol::launcher::{LauncherMessage, NamespaceSpec};
use tokio::sync::{Mutex, watch};
use tokio::time;

use super::doors::{self, OpenDoors};
use super::engine::labels::RunNames;
use super::gateway_process::GatewayProcesses;
use super::launcher::{Launcher, LauncherWriter};
use super::local::LocalFiles;
use super::processes::{self, Role};
use super::{
    Abilities, Backend, BackendError, BackendStep, ContentFiles, CreatedGateway, CreatedSandbox,
    Ended, GatewayContent, GatewayHandle, LabelledResource, MadeNetwork, Network, Sandbox,
    SandboxContent, Stats,
};
use crate::connector::Connector;
use crate::control::ControlClient;
use crate::environment::Environment;
use crate::plan::{Plan, RunId};
use crate::resource::{Resource, RunResources};
use groups::{Group, Groups};

/// This machine, if it lets us.
#[derive(Debug)]
pub struct Namespaces {
    launcher: PathBuf,
    groups: Groups,
    gateways: GatewayProcesses,
    /// Where the folders of runs are.
    runtime: PathBuf,
    /// The runs of this process, by their sandbox's name.
    runs: Mutex<HashMap<String, Run>>,
}

/// How far a run has come.
#[derive(Debug)]
enum Run {
    /// There is a network, and nobody in it.
    Begun {
        launcher: Launcher,
    },
    /// The sandbox is being built.
    Made {
        launcher: Launcher,
    },
    Running {
        voice: LauncherWriter,
        ended: watch::Receiver<Option<Ended>>,
    },
}

impl Namespaces {
    /// Finds our launcher, and whether this machine permits what it does.
    pub fn open(environment: &Environment) -> Result<Self, BackendError> {
        let launcher = environment
            .program("sluice-launch", "SLUICE_LAUNCH_PROGRAM")
            .map_err(|err| broken(BackendStep::Connect, err))?;
        if !rustix::process::geteuid().is_root()
            && let Some(advice) = forbidden::knob(&|path| fs::read_to_string(path).ok())
        {
            return Err(broken(BackendStep::Connect, anyhow::anyhow!(advice)));
        }
        let gateways = GatewayProcesses::here(environment);
        let gateways = gateways.map_err(|err| broken(BackendStep::Connect, err))?;
        let (runtime, runs) = (environment.runtime(), Mutex::default());
        Ok(Self { launcher, groups: Groups::here(), gateways, runtime, runs })
    }

    /// Files of a run that its processes mount.
    fn local(&self, run: &RunId) -> LocalFiles {
        LocalFiles::of(run, &self.runtime)
    }

    /// Starts a launcher and lets it make the namespaces of `plan`, with the gateway's
    /// sockets in them.
    async fn begin(
        &self,
        plan: &Plan,
        step: BackendStep,
    ) -> Result<(Run, Option<OpenDoors>), BackendError> {
        let failed = |err: io::Error| broken(step, err);
        let groups = self.groups.make(&plan.run, &plan.limits);
        let groups = groups.map_err(|err| broken(BackendStep::Create, err))?;
        let mut launcher = Launcher::start(&self.launcher, "sandbox").map_err(failed)?;
        processes::remember(&self.runtime, &plan.run, Role::Launcher, Some(launcher.pid))
            .map_err(failed)?;
        let listeners = plan.network.as_ref().map(doors::listeners);
        let ground = NamespaceSpec {
            user: plan.user.uid,
            group: plan.user.gid,
            host_user: plan.host_user.uid,
            groups,
            doors: listeners.unwrap_or_default(),
            session: plan.session.is_some(),
        };
        launcher.voice.say(&ground).await.map_err(failed)?;
        if ground.doors.is_empty() {
            return Ok((Run::Begun { launcher }, None));
        }
        match launcher.hear().await.map_err(failed)? {
            Some((LauncherMessage::ListenersOpened, sockets)) => {
                let doors = OpenDoors::opened(&ground.doors, sockets).map_err(failed)?;
                Ok((Run::Begun { launcher }, Some(doors)))
            }
            other => Err(unexpected(step, other)),
        }
    }
}

#[async_trait]
impl Backend for Namespaces {
    fn name(&self) -> &'static str {
        NAME
    }

    fn abilities(&self) -> Abilities {
        self.groups.abilities()
    }

    /// A directory is an image; and the host's own programs are always there.
    async fn has_image(&self, image: &str) -> bool {
        image == HOST || Path::new(image).is_dir()
    }

    async fn build_image(&self, name: &str) -> Result<(), BackendError> {
        let why = format!(
            "`{name}` is not an image that can be made here: it is `{HOST}`, for this machine's own \
             programs, or the directory of an unpacked one"
        );
        Err(broken(BackendStep::BuildImage, anyhow::anyhow!(why)))
    }

    async fn host_address(&self, _attach: Attachment) -> Result<IpAddr, BackendError> {
        Ok(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// The sockets are planted before either begins.
    fn starts_gateway_concurrently(&self) -> bool {
        true
    }

    fn max_concurrent_starts(&self) -> Option<usize> {
        Some(super::max_concurrent_starts())
    }

    fn resources(&self, plan: &Plan) -> RunResources {
        RunResources { others: Vec::new(), ..RunNames::of(&plan.run).resources(plan) }
    }

    async fn make_network(&self, plan: &Plan) -> Result<MadeNetwork, BackendError> {
        let (begun, doors) = self.begin(plan, BackendStep::MakeNetwork).await?;
        let network = Network::of_doors(plan);
        self.runs.lock().await.insert(network.name.clone(), begun);
        Ok(MadeNetwork { network, doors })
    }

    async fn create_gateway(
        &self,
        plan: &Plan,
        content: &GatewayContent,
    ) -> Result<CreatedGateway, BackendError> {
        self.local(&plan.run).make_gateway_folders(content).map_err(unwritten)?;
        Ok(CreatedGateway { name: RunNames::of(&plan.run).gateway, content: content.clone() })
    }

    async fn start_gateway(
        &self,
        plan: &Plan,
        gateway: CreatedGateway,
        _network: &Network,
        doors: OpenDoors,
        settings: &ContentFiles,
    ) -> Result<GatewayHandle, BackendError> {
        self.local(&plan.run).write_settings(settings).map_err(unwritten)?;
        let started = self.gateways.start(plan, &gateway.content, doors).await;
        started.map_err(|err| broken(BackendStep::StartGateway, err))
    }

    fn control(&self, run: &RunId) -> Connector {
        self.local(run).control()
    }

    async fn create_sandbox(
        &self,
        plan: &Plan,
        content: &SandboxContent,
        network: Option<&Network>,
    ) -> Result<CreatedSandbox, BackendError> {
        let failed = |err: io::Error| broken(BackendStep::Create, err);
        if !self.has_image(&plan.image).await {
            let why = format!(
                "there is no directory `{}`; an image is the directory of an unpacked one, or \
                 `{HOST}`",
                plan.image
            );
            return Err(broken(BackendStep::FindImage, anyhow::anyhow!(why)));
        }
        let name = RunNames::of(&plan.run).sandbox;
        let begun = self.runs.lock().await.remove(&name);
        let begun = match begun {
            Some(begun) => begun,
            None => self.begin(plan, BackendStep::Create).await?.0,
        };
        let Run::Begun { launcher } = begun else {
            return Err(failed(io::Error::other("there is one already")));
        };
        let local = self.local(&plan.run);
        if plan.network.is_some() {
            local.make_trust_kit().map_err(unwritten)?;
        }
        let link = local.listen().map_err(unwritten)?;
        let order = layout::order(plan, content, &local, network, &self.groups);
        launcher.voice.say(&order).await.map_err(failed)?;
        self.runs.lock().await.insert(name.clone(), Run::Made { launcher });
        Ok(CreatedSandbox { sandbox: Sandbox { name }, link })
    }

    async fn write_trust_kit(&self, run: &RunId, kit: &ContentFiles) -> Result<(), BackendError> {
        self.local(run).write_trust_kit(kit).map_err(unwritten)
    }

    async fn start_sandbox(&self, sandbox: &Sandbox) -> Result<(), BackendError> {
        let failed = |err: io::Error| broken(BackendStep::Start, err);
        let made = self.runs.lock().await.remove(&sandbox.name);
        let Some(Run::Made { mut launcher }) = made else {
            return Err(failed(io::Error::other("it was not made")));
        };
        match launcher.hear().await.map_err(failed)? {
            Some((LauncherMessage::Started { .. }, _)) => {}
            other => return Err(unexpected(BackendStep::Start, other)),
        }
        let (tell, ended) = watch::channel(None);
        let voice = launcher.voice.clone();
        tokio::spawn(async move {
            let ended = match launcher.hear().await {
                Ok(Some((LauncherMessage::Ended { code, out_of_memory }, _))) => {
                    Ended { code: code.into(), oom_killed: out_of_memory }
                }
                // It was killed, and took its sandbox along.
                Ok(_) | Err(_) => Ended { code: KILLED, oom_killed: false },
            };
            tell.send_replace(Some(ended));
        });
        let running = Run::Running { voice, ended };
        self.runs.lock().await.insert(sandbox.name.clone(), running);
        Ok(())
    }

    async fn kill(&self, sandbox: &Sandbox) -> Result<(), BackendError> {
        let voice = match self.runs.lock().await.get(&sandbox.name) {
            Some(Run::Running { voice, .. }) => Some(voice.clone()),
            Some(Run::Begun { launcher } | Run::Made { launcher }) => Some(launcher.voice.clone()),
            None => None,
        };
        if let Some(voice) = voice {
            voice.kill().await;
        }
        Ok(())
    }

    async fn wait_for_end(&self, sandbox: &Sandbox) -> Result<Ended, BackendError> {
        let ended = match self.runs.lock().await.get(&sandbox.name) {
            Some(Run::Running { ended, .. }) => Some(ended.clone()),
            Some(_) | None => None,
        };
        let gone = || broken(BackendStep::Wait, io::Error::other("there is no such sandbox"));
        let mut ended = ended.ok_or_else(gone)?;
        let ended = *ended.wait_for(Option::is_some).await.map_err(|_| gone())?;
        let Ended { code, oom_killed } = ended.ok_or_else(gone)?;
        let run = RunNames::run_of(&sandbox.name).ok_or_else(gone)?;
        Ok(Ended { code, oom_killed: oom_killed || self.groups.ran_out_of_memory(&run) })
    }

    async fn stats(&self, run: &RunId) -> Result<Option<Stats>, BackendError> {
        let Some(launcher) = processes::alive(&self.runtime, run, Role::Launcher) else {
            return Ok(None);
        };
        let mut stats = stats::stats(&self.groups, run, launcher);
        // The sandbox has no interface of its own: its gateway counts.
        let gateway = ControlClient::new(self.control(run));
        if let Ok(status) = gateway.status().await {
            (stats.sent, stats.received) = (status.counts.uploaded, status.counts.downloaded);
        }
        Ok(Some(stats))
    }

    async fn labelled(&self) -> Result<Vec<LabelledResource>, BackendError> {
        let runtime = &self.runtime;
        let mut found = self.gateways.found(NAME);
        for entry in fs::read_dir(runtime).into_iter().flatten().flatten() {
            let Some(Ok(run)) = entry.file_name().to_str().map(RunId::parse) else { continue };
            let Ok(owner) = entry.metadata().map(|seen| seen.uid()) else { continue };
            if processes::is_remembered(runtime, &run, Role::Launcher) {
                let running = processes::alive(runtime, &run, Role::Launcher).is_some();
                let resource = Resource::Container(RunNames::of(&run).sandbox);
                found.push(LabelledResource { run, resource, owner, running, runtime: None });
            }
        }
        for Group { run, owner, is_forsaken } in self.groups.found() {
            let resource = Resource::Container(RunNames::of(&run).sandbox);
            // Without a folder here it may be a run whose folder is elsewhere.
            let is_ours = is_forsaken || runtime.join(run.as_str()).exists();
            if is_ours && !found.iter().any(|known| known.resource == resource) {
                found.push(LabelledResource {
                    run,
                    resource,
                    owner,
                    running: false,
                    runtime: None,
                });
            }
        }
        Ok(found)
    }

    async fn remove(&self, resource: &Resource) -> Result<(), BackendError> {
        let failed = |err: io::Error| broken(BackendStep::Remove, err);
        let name = match resource {
            Resource::Container(name) => name,
            Resource::Process(gateway) => return self.gateways.end(gateway).await.map_err(failed),
            Resource::Folder(_) | Resource::Network(_) | Resource::Volume(_) => return Ok(()),
        };
        let Some(run) = RunNames::run_of(name) else { return Ok(()) };
        self.runs.lock().await.remove(name);
        processes::end(&self.runtime, &run, Role::Launcher).await.map_err(failed)?;
        let deadline = Instant::now() + EMPTYING;
        loop {
            match self.groups.remove(&run) {
                // The kernel is still ending what was in it.
                Err(err)
                    if err.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {}
                removed => return removed.map_err(failed),
            }
            time::sleep(END_POLL_INTERVAL).await;
        }
    }
}

/// Where this user can make control groups, for people.
pub fn control_groups() -> String {
    Groups::here().in_words()
}

fn unexpected(step: BackendStep, said: Option<(LauncherMessage, Vec<OwnedFd>)>) -> BackendError {
    let why = match said {
        Some((LauncherMessage::Failed { step, why }, _)) => format!("cannot {step}: {why}"),
        Some((other, _)) => format!("the launcher said {other:?}"),
        None => "the launcher is gone".to_owned(),
    };
    broken(step, anyhow::anyhow!(why))
}

fn unwritten(err: io::Error) -> BackendError {
    broken(BackendStep::WriteFiles, err)
}

fn broken(step: BackendStep, why: impl Into<anyhow::Error>) -> BackendError {
    BackendError { backend: NAME, step, source: why.into() }
}

const NAME: &str = "namespaces";
/// The image that is this machine's own programs.
pub const HOST: &str = "host";
const KILLED: i64 = 137;
const END_POLL_INTERVAL: Duration = Duration::from_millis(1);
const EMPTYING: Duration = Duration::from_secs(5);
