//! What Docker and Podman have in common: the same questions, the same words.
//!
//! Podman answers Docker's own interface for everything that happens to a
//! container once there is one. How containers and networks are made differs,
//! and stands with each of the two.

pub(super) mod labels;
pub(super) mod stats;
pub(super) mod streams;
pub(super) mod subnet;
pub(super) mod sweep;
pub(super) mod within;

use bollard::errors::Error;

use super::{Ability, BackendError, Step};

/// An engine that answers.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) api: bollard::Docker,
    /// What people call it.
    pub(super) name: &'static str,
}

impl Engine {
    /// An error of the engine's, and what it kept us from.
    pub(super) fn failed(&self, step: Step) -> impl FnOnce(Error) -> BackendError + use<> {
        let backend = self.name;
        move |err| BackendError { backend, step, source: err.into() }
    }

    pub(super) fn broken(&self, step: Step, why: impl Into<anyhow::Error>) -> BackendError {
        BackendError { backend: self.name, step, source: in_its_words(why.into()) }
    }
}

/// What an engine said. The library calls every engine Docker.
pub(super) fn in_its_words(why: anyhow::Error) -> anyhow::Error {
    match why.downcast_ref::<Error>() {
        Some(Error::DockerResponseServerError { status_code, message }) => {
            anyhow::anyhow!("the engine answered {status_code}: {message}")
        }
        Some(_) | None => why,
    }
}

/// The status of the engine's refusal, if it was one.
pub(super) fn status(err: &Error) -> Option<u16> {
    match err {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// How many sandboxes an engine makes well at once: each takes two containers and a
/// network, and networks are made one after the other.
pub(in crate::backend) fn starts_at_once() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (4 * processors).max(8)
}

/// What an engine has no word for.
pub(in crate::backend) fn shared_terminals() -> Ability {
    let why = "an engine counts terminals for all containers together, of which the host keeps a \
               reserve";
    Ability::Not { why: why.to_owned() }
}
