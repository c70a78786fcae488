//! What Docker and Podman have in common: the same questions, the same words.
//!
//! Podman answers Docker's own interface for everything that happens to a
//! container once there is one. How containers and networks are made differs,
//! and stands with each of the two.

pub(super) mod container_env;
pub(super) mod containers;
pub(super) mod labels;
pub(super) mod refusal;
pub(super) mod stats;
pub(super) mod subnet;
pub(super) mod sweep;

use std::io;

use bollard::errors::Error;

use super::local::LocalFiles;
use super::{BackendError, BackendStep, Enforcement};
use crate::environment::Environment;
use crate::plan::RunId;
pub(super) use refusal::status;

/// An engine that answers.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) api: bollard::Docker,
    /// What people call it.
    pub(super) name: &'static str,
    pub(super) environment: Environment,
}

impl Engine {
    /// Files of a run that its containers mount.
    pub(super) fn local(&self, run: &RunId) -> LocalFiles {
        LocalFiles::of(run, &self.environment.runtime())
    }

    /// What could not be written there.
    pub(super) fn unwritten(&self) -> impl FnOnce(io::Error) -> BackendError + use<> {
        let backend = self.name;
        move |err| BackendError { backend, step: BackendStep::WriteFiles, source: err.into() }
    }

    /// An error of the engine's, and what it kept us from.
    pub(super) fn failed(&self, step: BackendStep) -> impl FnOnce(Error) -> BackendError + use<> {
        let backend = self.name;
        move |err| BackendError { backend, step, source: in_its_words(err.into()) }
    }

    pub(super) fn broken(&self, step: BackendStep, why: impl Into<anyhow::Error>) -> BackendError {
        BackendError { backend: self.name, step, source: in_its_words(why.into()) }
    }
}

/// What an engine said. The library calls every engine Docker.
pub(super) fn in_its_words(why: anyhow::Error) -> anyhow::Error {
    // Of an error with advice around it the advice stays.
    match why.chain().next().and_then(|first| first.downcast_ref::<Error>()) {
        Some(Error::DockerResponseServerError { status_code, message }) => {
            anyhow::anyhow!("the engine answered {status_code}: {message}")
        }
        Some(_) | None => why,
    }
}

/// What an engine has no word for.
pub(in crate::backend) fn shared_terminals() -> Enforcement {
    let why = "an engine counts terminals for all containers together, of which the host keeps a \
               reserve";
    Enforcement::Unavailable { why: why.to_owned() }
}
