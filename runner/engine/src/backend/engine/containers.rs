//! Starting and ending containers.

use bollard::query_parameters::{
    AttachContainerOptionsBuilder, InspectContainerOptions, KillContainerOptionsBuilder,
    StartContainerOptions, WaitContainerOptionsBuilder,
};
use futures_util::StreamExt as _;

use super::{Engine, status};
use crate::backend::doors::OpenDoors;
use crate::backend::gateway_process::GatewayProcesses;
use crate::backend::{BackendError, BackendStep, Ended, GatewayHandle, GatewayLog, Sandbox};
use crate::link::PendingLink;
use crate::plan::Plan;

/// Starts a sandbox. Its first process has no streams: it speaks over its socket.
pub(in crate::backend) async fn start(
    engine: &Engine,
    sandbox: &Sandbox,
) -> Result<(), BackendError> {
    engine
        .api
        .start_container(&sandbox.name, None::<StartContainerOptions>)
        .await
        .map_err(engine.failed(BackendStep::Start))
}

/// Makes what a sandbox mounts besides its content, and the way to its first process.
pub(in crate::backend) async fn expect_link(
    engine: &Engine,
    gateways: &GatewayProcesses,
    plan: &Plan,
) -> Result<PendingLink, BackendError> {
    let local = engine.local(&plan.run);
    let make = async {
        if plan.network.is_some() {
            local.make_trust_kit()?;
        }
        gateways.expect_relay(&plan.run).await?;
        local.listen()
    };
    make.await.map_err(engine.unwritten())
}

/// Attaches to a gateway first and starts it second, so that nothing that it prints
/// is missed. Its input is its lifeline, unless it has none; what it prints is its log.
pub(in crate::backend) async fn start_gateway(
    engine: &Engine,
    plan: &Plan,
    name: &str,
) -> Result<GatewayHandle, BackendError> {
    let options = AttachContainerOptionsBuilder::new()
        .stream(true)
        .stdin(plan.session.is_none())
        .stdout(true)
        .stderr(true)
        .build();
    let attached = engine
        .api
        .attach_container(name, Some(options))
        .await
        .map_err(engine.failed(BackendStep::StartGateway))?;
    engine
        .api
        .start_container(name, None::<StartContainerOptions>)
        .await
        .map_err(engine.failed(BackendStep::StartGateway))?;
    let log = GatewayLog::default();
    let (mut said, listener) = (attached.output, log.clone());
    tokio::spawn(async move {
        while let Some(Ok(piece)) = said.next().await {
            listener.add(&piece.into_bytes());
        }
        listener.end();
    });
    let control = engine.local(&plan.run).control();
    Ok(GatewayHandle { lifeline: attached.input, log, control })
}

/// Opens the gateway's sockets in a container that has no network.
pub(in crate::backend) async fn open_doors(
    engine: &Engine,
    gateways: &GatewayProcesses,
    plan: &Plan,
    first_process: i32,
) -> Result<OpenDoors, BackendError> {
    let Some(network) = &plan.network else { return Ok(OpenDoors::default()) };
    let opened = gateways.open_doors(network, first_process).await;
    opened.map_err(|err| engine.broken(BackendStep::OpenDoors, err))
}

/// That it has ended by itself meanwhile is as good.
pub(in crate::backend) async fn kill(
    engine: &Engine,
    sandbox: &Sandbox,
) -> Result<(), BackendError> {
    let options = KillContainerOptionsBuilder::new().signal("KILL").build();
    match engine.api.kill_container(&sandbox.name, Some(options)).await {
        Err(err) if !matches!(status(&err), Some(404 | 409)) => {
            Err(engine.broken(BackendStep::Kill, err))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

pub(in crate::backend) async fn ended(
    engine: &Engine,
    sandbox: &Sandbox,
) -> Result<Ended, BackendError> {
    // The request lasts as long as the command.
    let patient = engine.api.clone().with_timeout(A_YEAR);
    let options = WaitContainerOptionsBuilder::new().condition("not-running").build();
    let mut waiting = patient.wait_container(&sandbox.name, Some(options));
    while let Some(answer) = waiting.next().await {
        match answer {
            Ok(_) | Err(bollard::errors::Error::DockerContainerWaitError { .. }) => {}
            Err(err) => return Err(engine.broken(BackendStep::Wait, err)),
        }
    }
    let found = engine
        .api
        .inspect_container(&sandbox.name, None::<InspectContainerOptions>)
        .await
        .map_err(engine.failed(BackendStep::Wait))?;
    let state = found.state.unwrap_or_default();
    Ok(Ended {
        code: state.exit_code.unwrap_or(-1),
        oom_killed: state.oom_killed.unwrap_or_default(),
    })
}

const A_YEAR: std::time::Duration = std::time::Duration::from_secs(365 * 24 * 60 * 60);
