//! Which backend a run gets.
//!
//! `auto` never means "no sandbox": it means the first of the backends that
//! answers, and whoever did not name one is told which it is.

use super::docker::Docker;
use super::namespaces::Namespaces;
use super::podman::Podman;
use super::{Backend, BackendError};
use crate::environment::Environment;
use crate::spec::BackendKind;

/// A backend that answers.
#[allow(missing_debug_implementations, reason = "a backend is a connection")]
pub struct OpenedBackend {
    pub backend: Box<dyn Backend>,
    /// Why this one, where nobody chose it.
    pub why: Option<String>,
}

/// Opens the backend that is asked for.
pub async fn open(
    kind: BackendKind,
    environment: &Environment,
) -> Result<OpenedBackend, BackendError> {
    let chosen = |backend| OpenedBackend { backend, why: None };
    match kind {
        BackendKind::Auto => auto(environment).await,
        BackendKind::Docker => {
            Docker::connect(environment).await.map(|docker| chosen(Box::new(docker)))
        }
        BackendKind::Namespaces => Namespaces::open(environment).map(|here| chosen(Box::new(here))),
        BackendKind::Podman => {
            Podman::connect(environment).await.map(|podman| chosen(Box::new(podman)))
        }
    }
}

/// An engine if one answers, since that is what its owner set up; else this
/// machine itself.
async fn auto(environment: &Environment) -> Result<OpenedBackend, BackendError> {
    let no_engine = match Docker::connect(environment).await {
        Ok(docker) => return Ok(OpenedBackend { backend: Box::new(docker), why: None }),
        Err(err) => err,
    };
    // Whoever names an engine means that one.
    if Docker::is_named(environment) {
        let advice = "DOCKER_HOST or a Docker context names this engine; unset it, or choose with \
                      --backend";
        return Err(BackendError { source: no_engine.source.context(advice), ..no_engine });
    }
    let no_podman = match Podman::is_here(environment) {
        true => match Podman::connect(environment).await {
            Ok(podman) => {
                let why = "no Docker engine answers, so Podman makes the sandbox".to_owned();
                return Ok(OpenedBackend { backend: Box::new(podman), why: Some(why) });
            }
            Err(err) => Some(err),
        },
        false => None,
    };
    match Namespaces::open(environment) {
        Ok(here) => {
            let instead = "so the sandbox is made of namespaces";
            let why = match no_podman {
                None => format!("no engine answers, {instead}"),
                Some(err) => {
                    format!("no Docker engine answers, and not Podman: {:#}; {instead}", err.source)
                }
            };
            Ok(OpenedBackend { backend: Box::new(here), why: Some(why) })
        }
        Err(BackendError { source, .. }) => Err(BackendError {
            source: no_engine.source.context(format!("namespaces do not work either: {source:#}")),
            ..no_engine
        }),
    }
}

/// Every backend that answers here.
pub async fn all(environment: &Environment) -> Vec<Box<dyn Backend>> {
    let mut found: Vec<Box<dyn Backend>> = Vec::new();
    if let Ok(docker) = Docker::connect(environment).await {
        found.push(Box::new(docker));
    }
    // To ask it where it never made anything would only cost time.
    if Podman::is_used(environment)
        && let Ok(podman) = Podman::connect(environment).await
    {
        found.push(Box::new(podman));
    }
    if let Ok(here) = Namespaces::open(environment) {
        found.push(Box::new(here));
    }
    found
}
