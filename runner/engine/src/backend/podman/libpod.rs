//! Podman's own interface, for what Docker's cannot say.
//!
//! Networks without a name server, overlays, user namespaces and files that say
//! which system calls there are: Podman answers Docker's questions, but these
//! are not among them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time;

/// A Podman that listens at a Unix socket. Each question is a connection of its
/// own.
#[derive(Clone, Debug)]
pub(super) struct Libpod {
    socket: PathBuf,
}

/// Why there is no answer, or why it is no.
#[derive(Debug, thiserror::Error)]
pub(super) enum LibpodError {
    #[error("nobody answers at {}", path.display())]
    Connect { path: PathBuf, source: io::Error },
    #[error("Podman's answer cannot be read")]
    Garbled(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("no answer within {0:?}")]
    Late(Duration),
    #[error("{message}")]
    Refused { status: u16, message: String },
}

impl LibpodError {
    /// The status of the refusal, if it was one.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::Connect { .. } | Self::Garbled(_) | Self::Late(_) => None,
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
        Self { socket: socket.into() }
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
        let (mut sender, connection) = self.connect().await?;
        let driven = tokio::spawn(async move {
            // That it ended is noticed by whoever asks next.
            drop(connection.await);
        });
        let held = Listener(driven);
        let response = sender.send_request(request(Method::GET, nothing, Bytes::new())?).await;
        let mut body = response.map_err(garbled)?.into_body();
        let listener = tokio::spawn(async move {
            let _held = held;
            while let Some(Ok(_)) = body.frame().await {}
        });
        Ok(Listener(listener))
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Value, LibpodError> {
        let exchange = async {
            let (mut sender, connection) = self.connect().await?;
            let exchange = async {
                let asked = request(method, path, body)?;
                let response = sender.send_request(asked).await.map_err(garbled)?;
                let status = response.status();
                let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
                Ok((status, body.map_err(LibpodError::Garbled)?.to_bytes()))
            };
            // The connection has to be driven, and ends with the exchange.
            tokio::select! {
                exchanged = exchange => exchanged,
                Err(err) = connection => Err(garbled(err)),
            }
        };
        let (status, body) = time::timeout(REQUEST_TIMEOUT, exchange)
            .await
            .map_err(|_| LibpodError::Late(REQUEST_TIMEOUT))??;
        if !status.is_success() {
            return Err(refused(status, &body));
        }
        if body.is_empty() {
            return Ok(Value::Null);
        }
        // Some answers are one word and no JSON.
        Ok(serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn connect(&self) -> Result<(Sender, Connection), LibpodError> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|source| LibpodError::Connect { path: self.socket.clone(), source })?;
        http1::handshake(TokioIo::new(stream)).await.map_err(garbled)
    }
}

type Sender = http1::SendRequest<Full<Bytes>>;
type Connection = http1::Connection<TokioIo<UnixStream>, Full<Bytes>>;

fn request(method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, LibpodError> {
    Request::builder()
        .method(method)
        .uri(format!("/v{VERSION}/libpod{path}"))
        .header(HOST, "podman")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .map_err(garbled)
}

fn refused(status: StatusCode, body: &[u8]) -> LibpodError {
    #[derive(Deserialize)]
    struct Said {
        message: String,
    }
    let message = match serde_json::from_slice::<Said>(body) {
        Ok(said) => said.message,
        Err(_) => format!("it answers {status}"),
    };
    LibpodError::Refused { status: status.as_u16(), message }
}

fn garbled(err: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> LibpodError {
    LibpodError::Garbled(err.into())
}

/// The oldest version of the interface that has what we ask for.
const VERSION: &str = "4.0.0";
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// To make a container, an image may first have to be copied for its user.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
