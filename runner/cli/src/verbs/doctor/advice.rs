//! What a person can do to get a backend that is not here.

use engine::spec::BackendKind;

use crate::environment;

/// How to get a backend that is not here; nothing where the reason says so itself.
pub(super) fn to_get(kind: BackendKind) -> Option<&'static str> {
    let environment = environment::of_this_process();
    match kind {
        BackendKind::Auto => Some("install Docker or Podman, or permit user namespaces"),
        BackendKind::Docker
            if environment.has_program("dockerd") || environment.has_program("docker") =>
        {
            None
        }
        BackendKind::Docker => {
            Some("install Docker (on Debian: apt-get install docker.io) and start it")
        }
        BackendKind::Podman if environment.has_program("podman") => None,
        BackendKind::Podman => {
            Some("install Podman 4 or newer (on Debian: apt-get install podman)")
        }
        BackendKind::Namespaces => {
            Some("permit user namespaces to users; what this machine says about them stands above")
        }
    }
}
