//! Where the Docker engine is, and why it cannot be reached.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};

use crate::environment::Environment;

/// Its usual socket.
const USUAL: &str = "/var/run/docker.sock";

/// The socket that `DOCKER_HOST` names, else the usual one.
///
/// Only a Unix socket: a sandbox's files are mounted from this machine.
pub(super) fn socket(environment: &Environment) -> anyhow::Result<PathBuf> {
    let Some(told) = environment.variable("DOCKER_HOST").filter(|told| !told.is_empty()) else {
        return Ok(USUAL.into());
    };
    let told = told.to_string_lossy();
    match told.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') => Ok(path.into()),
        Some(_) | None => bail!(
            "DOCKER_HOST is `{told}`, but the files of a sandbox are mounted from this machine, so \
             only `unix://` and a path will do; unset it, or choose another backend with --backend"
        ),
    }
}

/// Whether anybody listens there, or what to do about it.
pub(super) fn knock(socket: &Path) -> anyhow::Result<()> {
    let refused = match UnixStream::connect(socket) {
        Ok(_) => return Ok(()),
        Err(refused) => refused,
    };
    let place = socket.display();
    let advice = match refused.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "this user may not open the Docker engine's socket {place}; whoever is in its group \
             (usually `docker`) may, which is as good as root; or choose podman or namespaces with \
             --backend"
        ),
        io::ErrorKind::NotFound => format!(
            "no Docker engine answers: there is no socket {place}; start the engine, or set \
             DOCKER_HOST to its socket"
        ),
        _ => format!("no Docker engine answers at {place}; start it"),
    };
    Err(anyhow!(refused)).context(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(value: &str) -> Result<PathBuf, String> {
        socket(&Environment::new([("DOCKER_HOST", value)])).map_err(|err| err.to_string())
    }

    #[test]
    fn an_engine_elsewhere_is_refused_in_words_and_never_replaced_by_the_one_here() {
        assert_eq!(told(""), Ok(USUAL.into()));
        assert_eq!(
            told("unix:///run/user/1500/docker.sock"),
            Ok("/run/user/1500/docker.sock".into())
        );
        for elsewhere in
            ["tcp://192.0.2.1:2376", "ssh://ann@build", "/var/run/docker.sock", "unix://x"]
        {
            let why = told(elsewhere).unwrap_err();
            assert!(why.starts_with(&format!("DOCKER_HOST is `{elsewhere}`, but")), "{why}");
        }
    }

    #[test]
    fn a_socket_that_is_not_there_is_named() {
        let why = knock(Path::new("/nonexistent/docker.sock")).unwrap_err().to_string();
        assert!(why.contains("there is no socket /nonexistent/docker.sock"), "{why}");
    }
}
