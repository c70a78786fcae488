//! The gateway's process on the host.

use std::fs::OpenOptions;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::Stdio;

use protocol::launcher::{GatewaySpec, MountEntry, ProcessLimits, SandboxSpec};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::launcher::{say, start};
use super::layout::{devices, optional};
use super::{broken, processes};
use crate::backend::local::LocalFiles;
use crate::backend::{BackendError, BackendStep, GatewayContent, GatewayHandle, GatewayLog};
use crate::image::gateway::PLAIN_COPIES;
use crate::plan::Plan;

/// Starts it with the sockets that were planted for it, which are its own from
/// then on: when it is gone, nobody listens.
pub(super) async fn begin(
    (launcher, runtime): (&Path, &Path),
    plan: &Plan,
    content: &GatewayContent,
    names: Vec<String>,
    sockets: Vec<OwnedFd>,
) -> Result<GatewayHandle, BackendError> {
    let failed = |err| broken(BackendStep::StartGateway, err);
    let local = LocalFiles::of(&plan.run, runtime);
    let detached = plan.session.is_some();
    let log = match detached {
        false => [Stdio::piped(), Stdio::piped()],
        // Nobody reads a pipe when we are gone.
        true => {
            let path = local.path("gateway.log");
            let file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
            [Stdio::from(file.try_clone().map_err(failed)?), Stdio::from(file)]
        }
    };
    let (mut child, socket) = start(launcher, "gateway", log).map_err(failed)?;
    processes::remember(runtime, &plan.run, processes::Role::Gateway, child.id())
        .map_err(failed)?;
    let fds: Vec<_> = sockets.iter().map(OwnedFd::as_fd).collect();
    say(&socket, &jail(plan, content, &local, names), &fds).await.map_err(failed)?;
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
