//! Podman's own interface, for what Docker's cannot say.
//!
//! Networks without a name server, overlays, user namespaces and files that say
//! which system calls there are: Podman answers Docker's questions, but these
//! are not among them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::ClientVersion;
use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::connector::Connector;
use crate::http_client::{HttpClient, HttpError};

/// A Podman that listens at a Unix socket.
#[derive(Clone, Debug)]
pub(super) struct Libpod {
    socket: PathBuf,
    http: HttpClient,
}

/// Why there is no answer, or why it is no.
#[derive(Debug, thiserror::Error)]
pub(super) enum LibpodError {
    #[error(transparent)]
    NoAnswer(#[from] HttpError),
    #[error("{message}")]
    Refused { status: u16, message: String },
}

impl LibpodError {
    /// The status of the refusal, if it was one.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::NoAnswer(_) => None,
        }
    }
}

/// Keeps a Podman that would leave when nobody asks it anything.
#[derive(Debug)]
pub(super) struct Listener(JoinHandle<()>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Libpod {
    pub(super) fn at(socket: impl Into<PathBuf>) -> Self {
        let socket = socket.into();
        let http = HttpClient::new(Connector::unix(socket.clone()));
        Self { socket, http }
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value, LibpodError> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    pub(super) async fn post(&self, path: &str, what: &Value) -> Result<Value, LibpodError> {
        self.ask(Method::POST, path, Bytes::from(what.to_string())).await
    }

    /// Whether there is such a thing.
    pub(super) async fn exists(&self, path: &str) -> Result<bool, LibpodError> {
        match self.get(&format!("{path}/exists")).await {
            Ok(_) => Ok(true),
            Err(err) if err.status() == Some(404) => Ok(false),
            Err(err) => Err(err),
        }
    }

    /// Listens to what happens, without interest: a question that has no end.
    pub(super) async fn listen(&self) -> Result<Listener, LibpodError> {
        let nothing =
            "/events?stream=true&filters=%7B%22label%22%3A%5B%22dev.sluice.nothing%22%5D%7D";
        let (answer, driven) =
            self.http.send(Method::GET, &versioned(nothing), Bytes::new()).await?;
        let mut body = answer.into_body();
        let listener = tokio::spawn(async move {
            let _driven = driven;
            while let Some(Ok(_)) = body.frame().await {}
        });
        Ok(Listener(listener))
    }

    /// The version of Docker's interface that it answers. It says so with every answer; to
    /// be asked as Docker is takes it a quarter of a second.
    pub(super) async fn docker_version(&self) -> Result<ClientVersion, LibpodError> {
        let (answer, _driven) =
            self.http.send(Method::GET, &versioned("/_ping"), Bytes::new()).await?;
        let said = answer.headers().get("api-version").and_then(|value| value.to_str().ok());
        let version = said.and_then(|said| {
            let (major, minor) = said.split_once('.')?;
            let minor = minor.split('.').next()?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        });
        // Podman 4 and everything newer answers this one.
        let (major_version, minor_version) = version.unwrap_or(OLDEST_DOCKER_VERSION);
        Ok(ClientVersion { major_version, minor_version })
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Value, LibpodError> {
        let (status, body) = self.http.ask(method, &versioned(path), body, REQUEST_TIMEOUT).await?;
        if !status.is_success() {
            return Err(refused(status, &body));
        }
        if body.is_empty() {
            return Ok(Value::Null);
        }
        // Some answers are one word and no JSON.
        Ok(serde_json::from_slice(&body).unwrap_or(Value::Null))
    }
}

fn versioned(path: &str) -> String {
    format!("/v{VERSION}/libpod{path}")
}

fn refused(status: StatusCode, body: &[u8]) -> LibpodError {
    #[derive(Deserialize)]
    struct RefusalBody {
        message: String,
    }
    let message = match serde_json::from_slice::<RefusalBody>(body) {
        Ok(said) => said.message,
        Err(_) => format!("it answers {status}"),
    };
    LibpodError::Refused { status: status.as_u16(), message }
}

const OLDEST_DOCKER_VERSION: (usize, usize) = (1, 40);
/// The oldest version of the interface that has what we ask for.
const VERSION: &str = "4.0.0";
/// To make a container, an image may first have to be copied for its user.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
