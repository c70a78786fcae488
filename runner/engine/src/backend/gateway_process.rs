//! A gateway as a process of this machine, shut in.
//!
//! For sandboxes without a network: the gateway holds the sockets that were opened in
//! there. It needs no container, no network and no image. What belongs to it is
//! remembered in its run's folder, where a sweep finds it.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use policies::Attachment;
use protocol::launcher::{GatewaySpec, MountEntry, ProcessLimits, SandboxSpec};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::Mutex;

use super::doors::{self, OpenDoors};
use super::engine::labels::RunNames;
use super::launcher::{say, start};
use super::local::LocalFiles;
use super::mount_entries::{devices, optional};
use super::processes::{self, Role};
use super::relay::RelayTwin;
use super::{GatewayContent, GatewayHandle, GatewayLog, LabelledResource, MadeNetwork, Network};
use crate::environment::Environment;
use crate::image::gateway::PLAIN_COPIES;
use crate::plan::{NetworkPlan, Plan, RunId};
use crate::resource::Resource;
use crate::run_lock;

/// Starts, finds and ends gateways that are processes.
#[derive(Debug)]
pub(in crate::backend) struct GatewayProcesses {
    /// `sluice-launch`.
    launcher: PathBuf,
    /// Where the folders of runs are.
    runtime: PathBuf,
    /// Of runs whose sandbox is not there yet.
    twins: Mutex<HashMap<RunId, RelayTwin>>,
}

impl GatewayProcesses {
    pub(in crate::backend) fn here(environment: &Environment) -> anyhow::Result<Self> {
        let launcher = environment.program("sluice-launch", "SLUICE_LAUNCH_PROGRAM")?;
        Ok(Self { launcher, runtime: environment.runtime(), twins: Mutex::default() })
    }

    /// Opens the gateway's sockets in the network of a sandbox whose first process this is.
    pub(in crate::backend) async fn open_doors(
        &self,
        network: &NetworkPlan,
        first_process: i32,
    ) -> io::Result<OpenDoors> {
        OpenDoors::open_in(&self.launcher, first_process, doors::listeners(network)).await
    }

    /// Makes the network of a sandbox without one. The gateway's sockets come with it where
    /// they need not wait for the sandbox.
    pub(in crate::backend) async fn make_network(&self, plan: &Plan) -> io::Result<MadeNetwork> {
        let network = Network::of_doors(plan);
        let doors = match &plan.network {
            Some(planned) if planned.attach == Attachment::Relay => {
                let (twin, doors) = RelayTwin::make(&self.launcher, plan, planned).await?;
                self.twins.lock().await.insert(plan.run.clone(), twin);
                Some(doors)
            }
            Some(_) | None => None,
        };
        Ok(MadeNetwork { network, doors })
    }

    /// Where the first process of a relayed sandbox is expected; nothing of another.
    pub(in crate::backend) async fn expect_relay(&self, run: &RunId) -> io::Result<()> {
        match self.twins.lock().await.remove(run) {
            Some(twin) => twin.serve(&LocalFiles::of(run, &self.runtime)),
            None => Ok(()),
        }
    }

    /// Starts it with its sockets, which are its own from then on: when it is gone, nobody
    /// listens.
    pub(in crate::backend) async fn start(
        &self,
        plan: &Plan,
        content: &GatewayContent,
        doors: OpenDoors,
    ) -> io::Result<GatewayHandle> {
        let local = LocalFiles::of(&plan.run, &self.runtime);
        let log = match plan.session.is_some() {
            false => [Stdio::piped(), Stdio::piped()],
            // Nobody reads a pipe when we are gone.
            true => {
                let path = local.path("gateway.log");
                let file = OpenOptions::new().create(true).append(true).open(path)?;
                [Stdio::from(file.try_clone()?), Stdio::from(file)]
            }
        };
        let OpenDoors { names, sockets } = doors;
        let (mut child, socket) = start(&self.launcher, "gateway", log)?;
        processes::remember(&self.runtime, &plan.run, Role::Gateway, child.id())?;
        let fds: Vec<_> = sockets.iter().map(OwnedFd::as_fd).collect();
        say(&socket, &jail(plan, content, &local, names), &fds).await?;
        drop(sockets);

        let log = GatewayLog::default();
        let (output, error) = (child.stdout.take(), child.stderr.take());
        let listener = log.clone();
        tokio::spawn(async move {
            tokio::join!(read(output, &listener), read(error, &listener));
            drop(child.wait().await);
            listener.end();
        });
        Ok(GatewayHandle { lifeline: Box::pin(socket), log, control: local.control() })
    }

    /// Those of this backend's runs, for a sweep.
    pub(in crate::backend) fn found(&self, backend: &str) -> Vec<LabelledResource> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.runtime).into_iter().flatten().flatten() {
            let Some(Ok(run)) = entry.file_name().to_str().map(RunId::parse) else { continue };
            let Ok(owner) = entry.metadata().map(|seen| seen.uid()) else { continue };
            if processes::is_remembered(&self.runtime, &run, Role::Gateway)
                && run_lock::may_be_of(&entry.path(), backend)
            {
                let running = processes::alive(&self.runtime, &run, Role::Gateway).is_some();
                let resource = Resource::Process(RunNames::of(&run).gateway);
                found.push(LabelledResource { run, resource, owner, running, runtime: None });
            }
        }
        found
    }

    /// Ends the gateway of this name. That it is gone is as good.
    pub(in crate::backend) async fn end(&self, name: &str) -> io::Result<()> {
        match RunNames::run_of(name) {
            Some(run) => processes::end(&self.runtime, &run, Role::Gateway).await,
            None => Ok(()),
        }
    }
}

async fn read(from: Option<impl AsyncRead + Unpin>, log: &GatewayLog) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; 4096];
    while let Ok(length) = from.read(&mut buffer).await {
        if length == 0 {
            return;
        }
        log.add(buffer.get(..length).unwrap_or_default());
    }
}

/// Of the host's files it sees its own, and what it takes to find and to believe
/// an upstream.
fn jail(
    plan: &Plan,
    content: &GatewayContent,
    local: &LocalFiles,
    names: Vec<String>,
) -> GatewaySpec {
    let bind = |at: &str, source: &Path, read_only| MountEntry::Bind {
        at: at.to_owned(),
        source: source.to_owned(),
        read_only,
        device: false,
        optional: false,
    };
    let mut places = vec![
        bind("/gateway", &content.program, true),
        bind("/settings", &local.settings(), true),
        bind("/control", &local.control_folder(), false),
        bind("/audit", &content.audit, false),
    ];
    places.extend(RESOLVING.map(optional));
    // Where chance comes from, for libraries that do not ask the kernel.
    places.extend(devices(&["null", "random", "urandom"]));
    let mut arguments = vec!["--config".to_owned(), "/settings/gateway.yaml".to_owned()];
    arguments.extend(plan.gateway_life());
    GatewaySpec {
        user: content.user.uid,
        group: content.user.gid,
        names,
        order: SandboxSpec {
            places,
            limits: ProcessLimits {
                open_files: plan.limits.open_files,
                file_size: u64::MAX,
                processes: PROCESSES,
                data: None,
            },
            program: "/gateway".to_owned(),
            arguments,
            environment: vec![(PLAIN_COPIES.0.to_owned(), PLAIN_COPIES.1.to_owned())],
            ..SandboxSpec::default()
        },
    }
}

/// How this machine resolves names, and whom it believes.
const RESOLVING: [&str; 7] = [
    "/etc/hosts",
    "/etc/pki/ca-trust",
    "/etc/pki/tls",
    "/etc/resolv.conf",
    "/etc/ssl/certs",
    "/usr/local/share/ca-certificates",
    "/usr/share/ca-certificates",
];
/// Threads, that is, and as many as the caller has anyway.
const PROCESSES: u64 = 4096;
