//! What the kernel counts for a whole user, bounded for one sandbox.
//!
//! Without root a sandbox is its caller, and what it takes of inotify is taken from
//! the caller too. But each has a user namespace of its own, which the engine made
//! and the caller owns, and in it less can be permitted ([`inside::launch::pools`]).

use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use inside::launch::pools;
use serde_json::Value;
use tokio::task;

use super::Podman;
use crate::backend::{BackendError, BackendStep, Sandbox};
use crate::environment::Environment;

/// Bounds the sandbox, which runs and waits.
pub(super) async fn bound(podman: &Podman, sandbox: &Sandbox) -> Result<(), BackendError> {
    if !pools::can_bound() {
        return Ok(());
    }
    let path = format!("/containers/{}/json", sandbox.name);
    let found =
        podman.libpod.get(&path).await.map_err(|err| podman.broken(BackendStep::Start, err))?;
    let process = found.pointer("/State/Pid").and_then(Value::as_u64).filter(|pid| *pid > 0);
    let environment = podman.engine.environment.clone();
    let bounding = task::spawn_blocking(move || launch(process, &environment));
    let bounded = bounding.await.unwrap_or_else(|err| Err(err.into()));
    bounded.map_err(|err| podman.broken(BackendStep::Start, err))
}

fn launch(process: Option<u64>, environment: &Environment) -> anyhow::Result<()> {
    // One that ended by itself takes nothing; that it ended is said elsewhere.
    let Some(process) = process else { return Ok(()) };
    let program = environment.program("sluice-launch", "SLUICE_LAUNCH_PROGRAM")?;
    let mut command = Command::new(program);
    command.args(["pools", &process.to_string()]).env_clear().stdin(Stdio::null());
    let output = command.output().context("cannot start `sluice-launch`")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        bail!("cannot bound what the kernel counts for a user: {said}");
    }
    Ok(())
}
