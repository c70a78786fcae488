//! Starting a sandbox, and what flows in and out of it.

use bollard::container::LogOutput;
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, InspectContainerOptions, KillContainerOptionsBuilder,
    ResizeContainerTTYOptionsBuilder, StartContainerOptions, WaitContainerOptionsBuilder,
};
use futures_util::StreamExt as _;

use super::{Docker, broken, failed, status};
use crate::backend::{BackendError, Chunk, Ended, Sandbox, Side, Step, Streams, TerminalSize};
use crate::plan::Plan;

/// Attaches first and starts second: nothing that is printed is missed.
pub(super) async fn start(
    docker: &Docker,
    plan: &Plan,
    sandbox: &Sandbox,
) -> Result<Streams, BackendError> {
    let options = AttachContainerOptionsBuilder::new()
        .stream(true)
        .stdin(true)
        .stdout(true)
        .stderr(!plan.tty)
        .build();
    let attached = docker
        .api
        .attach_container(&sandbox.name, Some(options))
        .await
        .map_err(failed(Step::Attach))?;
    docker
        .api
        .start_container(&sandbox.name, None::<StartContainerOptions>)
        .await
        .map_err(failed(Step::Start))?;
    let output = attached.output.map(|piece| piece.map(chunk).map_err(failed(Step::Attach)));
    Ok(Streams { input: attached.input, output: output.boxed() })
}

fn chunk(piece: LogOutput) -> Chunk {
    match piece {
        LogOutput::StdErr { message } => Chunk { to: Side::Err, bytes: message },
        LogOutput::StdOut { message }
        | LogOutput::StdIn { message }
        | LogOutput::Console { message } => Chunk { to: Side::Out, bytes: message },
    }
}

pub(super) async fn resize(
    docker: &Docker,
    sandbox: &Sandbox,
    size: TerminalSize,
) -> Result<(), BackendError> {
    let options =
        ResizeContainerTTYOptionsBuilder::new().h(size.rows.into()).w(size.columns.into()).build();
    docker.api.resize_container_tty(&sandbox.name, options).await.map_err(failed(Step::Attach))
}

/// That it has ended by itself meanwhile is as good.
pub(super) async fn kill(docker: &Docker, sandbox: &Sandbox) -> Result<(), BackendError> {
    let options = KillContainerOptionsBuilder::new().signal("KILL").build();
    match docker.api.kill_container(&sandbox.name, Some(options)).await {
        Err(err) if !matches!(status(&err), Some(404 | 409)) => Err(broken(Step::Kill, err)),
        Ok(()) | Err(_) => Ok(()),
    }
}

pub(super) async fn ended(docker: &Docker, sandbox: &Sandbox) -> Result<Ended, BackendError> {
    // The request lasts as long as the command.
    let patient = docker.api.clone().with_timeout(A_YEAR);
    let options = WaitContainerOptionsBuilder::new().condition("not-running").build();
    let mut waiting = patient.wait_container(&sandbox.name, Some(options));
    while let Some(answer) = waiting.next().await {
        match answer {
            Ok(_) | Err(bollard::errors::Error::DockerContainerWaitError { .. }) => {}
            Err(err) => return Err(broken(Step::Wait, err)),
        }
    }
    let found = docker
        .api
        .inspect_container(&sandbox.name, None::<InspectContainerOptions>)
        .await
        .map_err(failed(Step::Wait))?;
    let state = found.state.unwrap_or_default();
    Ok(Ended {
        code: state.exit_code.unwrap_or(-1),
        oom_killed: state.oom_killed.unwrap_or_default(),
    })
}

const A_YEAR: std::time::Duration = std::time::Duration::from_secs(365 * 24 * 60 * 60);
