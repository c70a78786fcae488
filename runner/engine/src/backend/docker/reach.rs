//! Where the Docker engine is, and why it cannot be reached.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use serde::Deserialize;

use crate::environment::Environment;

/// Its usual socket.
pub(super) const USUAL: &str = "/var/run/docker.sock";

/// The socket that the person's own settings name, in the order in which Docker's programs
/// ask them: `DOCKER_HOST`, the context of `DOCKER_CONTEXT`, the context that was last chosen
/// with `docker context use`; else the usual one.
///
/// Only a Unix socket: a sandbox's files are mounted from this machine, and whoever has them
/// elsewhere would be given other ones of the same name.
pub(super) fn socket(environment: &Environment) -> anyhow::Result<PathBuf> {
    let said = |name| environment.variable(name).filter(|told| !told.is_empty());
    let (host, by) = if let Some(host) = said("DOCKER_HOST") {
        (host.to_string_lossy().into_owned(), "DOCKER_HOST is".to_owned())
    } else {
        let chosen = match said("DOCKER_CONTEXT") {
            Some(name) => Some(name.to_string_lossy().into_owned()),
            None => chosen_context(environment)?,
        };
        match chosen.filter(|name| name != "default") {
            Some(name) => (host_of(&name, environment)?, format!("the Docker context `{name}` is")),
            None => return Ok(USUAL.into()),
        }
    };
    match host.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') => Ok(path.into()),
        Some(_) | None => bail!(
            "{by} `{host}`, but the files of a sandbox are mounted from this machine, so only \
             `unix://` and a path will do; name the socket of an engine on this machine (docker \
             context use default, or unset DOCKER_HOST), run sluice on the engine's machine, or \
             choose another backend with --backend"
        ),
    }
}

/// The context that a person chose for all of Docker's programs.
fn chosen_context(environment: &Environment) -> anyhow::Result<Option<String>> {
    let Some(path) = settings(environment).map(|folder| folder.join("config.json")) else {
        return Ok(None);
    };
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        // One that is not ours to read says nothing to us, as to Docker's programs.
        Err(err) if err.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(err) => return Err(err).with_context(|| format!("cannot read {}", path.display())),
    };
    let config: DockerConfig =
        serde_json::from_slice(&text).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(config.current_context.filter(|name| !name.is_empty()))
}

/// Where the engine of the context of this name is.
fn host_of(name: &str, environment: &Environment) -> anyhow::Result<String> {
    let all = settings(environment).map(|folder| folder.join("contexts/meta"));
    let folders = all.iter().flat_map(fs::read_dir).flatten().flatten();
    for folder in folders {
        let Ok(text) = fs::read(folder.path().join("meta.json")) else { continue };
        let Ok(context) = serde_json::from_slice::<DockerContext>(&text) else { continue };
        if context.name == name {
            let endpoint = context.endpoints.docker.and_then(|docker| docker.host);
            return endpoint.with_context(|| format!("the Docker context `{name}` has no host"));
        }
    }
    bail!(
        "there is no Docker context `{name}`; `docker context ls` lists them, and DOCKER_HOST or \
         DOCKER_CONTEXT names another"
    )
}

/// Where Docker's programs keep what a person set.
fn settings(environment: &Environment) -> Option<PathBuf> {
    let named = environment.absolute("DOCKER_CONFIG");
    named.or_else(|| environment.absolute("HOME").map(|home| home.join(".docker")))
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(rename = "currentContext")]
    current_context: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerContext {
    name: String,
    #[serde(default)]
    endpoints: Endpoints,
}

#[derive(Default, Deserialize)]
struct Endpoints {
    docker: Option<Endpoint>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Endpoint {
    host: Option<String>,
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
    fn a_context_is_honoured_as_dockers_own_programs_do() {
        let home = tempfile::tempdir().unwrap();
        let docker = home.path().join(".docker");
        for (folder, name, host) in [
            ("a1", "rootless", "unix:///run/user/1500/docker.sock"),
            ("b2", "far", "ssh://ann@build"),
        ] {
            let folder = docker.join("contexts/meta").join(folder);
            fs::create_dir_all(&folder).unwrap();
            let text = format!(
                r#"{{"Name":"{name}","Metadata":{{}},"Endpoints":{{"docker":{{"Host":"{host}","SkipTLSVerify":false}}}}}}"#
            );
            fs::write(folder.join("meta.json"), text).unwrap();
        }
        let home = home.path().to_str().unwrap();
        let asked = |more: &[(&str, &str)]| {
            let all = [("HOME", home)].into_iter().chain(more.iter().copied());
            socket(&Environment::new(all)).map_err(|err| err.to_string())
        };
        let rootless = PathBuf::from("/run/user/1500/docker.sock");
        assert_eq!(asked(&[]), Ok(USUAL.into()));
        assert_eq!(asked(&[("DOCKER_CONTEXT", "rootless")]), Ok(rootless.clone()));
        fs::write(docker.join("config.json"), r#"{"auths":{},"currentContext":"rootless"}"#)
            .unwrap();
        assert_eq!(asked(&[]), Ok(rootless.clone()));
        assert_eq!(asked(&[("DOCKER_CONTEXT", "default")]), Ok(USUAL.into()));
        assert_eq!(asked(&[("DOCKER_HOST", "unix:///s")]), Ok("/s".into()));
        let far = asked(&[("DOCKER_CONTEXT", "far")]).unwrap_err();
        assert!(far.starts_with("the Docker context `far` is `ssh://ann@build`, but"), "{far}");
        let none = asked(&[("DOCKER_CONTEXT", "gone")]).unwrap_err();
        assert!(none.starts_with("there is no Docker context `gone`"), "{none}");
        let config = docker.to_str().unwrap();
        assert_eq!(asked(&[("HOME", "/nowhere"), ("DOCKER_CONFIG", config)]), Ok(rootless));
    }

    #[test]
    fn a_socket_that_is_not_there_is_named() {
        let why = knock(Path::new("/nonexistent/docker.sock")).unwrap_err().to_string();
        assert!(why.contains("there is no socket /nonexistent/docker.sock"), "{why}");
    }
}
