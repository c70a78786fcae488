//! How our own programs ask a running gateway.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::header::HOST;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::status::{Holds, RefusedAction, Reloaded, Status, WrittenProblem};

/// A gateway's control socket, seen from outside. Each question is a connection
/// of its own.
#[derive(Clone, Debug)]
pub struct Client {
    path: PathBuf,
}

/// Why there is no answer, or why it is no.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no gateway answers at {}", path.display())]
    Connect { path: PathBuf, source: io::Error },
    #[error("the gateway's answer cannot be read")]
    Garbled(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("{detail}")]
    Refused {
        status: u16,
        code: String,
        detail: String,
        /// What is wrong with the policy that was to be loaded.
        problems: Vec<WrittenProblem>,
    },
}

impl Client {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub async fn status(&self) -> Result<Status, ClientError> {
        read_json(&self.ask(Method::GET, "/status", Bytes::new()).await?)
    }

    /// Swaps in the policy in `text`, or the configured file as it is now.
    pub async fn reload(&self, text: Option<String>) -> Result<Reloaded, ClientError> {
        let body = text.map(Bytes::from).unwrap_or_default();
        read_json(&self.ask(Method::POST, "/reload", body).await?)
    }

    /// Asks the gateway to stop once every connection has ended.
    pub async fn drain(&self) -> Result<(), ClientError> {
        self.ask(Method::POST, "/drain", Bytes::new()).await.map(|_| ())
    }

    /// The requests that wait for a person.
    pub async fn holds(&self) -> Result<Holds, ClientError> {
        read_json(&self.ask(Method::GET, "/holds", Bytes::new()).await?)
    }

    /// The certificate that a sandbox is to trust, as PEM.
    pub async fn ca_certificate(&self) -> Result<String, ClientError> {
        read_text(self.ask(Method::GET, "/ca.pem", Bytes::new()).await?)
    }

    /// Numbers, in the Prometheus text format.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        read_text(self.ask(Method::GET, "/metrics", Bytes::new()).await?)
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, ClientError> {
        let stream = UnixStream::connect(&self.path)
            .await
            .map_err(|source| ClientError::Connect { path: self.path.clone(), source })?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(garbled)?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "gateway")
            .body(Full::new(body))
            .map_err(garbled)?;
        let exchange = async {
            let response = sender.send_request(request).await.map_err(garbled)?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
            Ok((status, body.map_err(ClientError::Garbled)?.to_bytes()))
        };
        // The connection has to be driven, and ends with the exchange.
        let (status, body) = tokio::select! {
            exchanged = exchange => exchanged?,
            Err(err) = connection => return Err(garbled(err)),
        };
        if status.is_success() { Ok(body) } else { Err(refused(status, &body)) }
    }
}

fn refused(status: StatusCode, body: &[u8]) -> ClientError {
    match serde_json::from_slice(body) {
        Ok(RefusedAction { code, detail, problems }) => {
            ClientError::Refused { status: status.as_u16(), code, detail, problems }
        }
        Err(err) => garbled(err),
    }
}

fn read_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(body).map_err(garbled)
}

fn read_text(body: Bytes) -> Result<String, ClientError> {
    String::from_utf8(body.into()).map_err(garbled)
}

fn garbled(err: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
    ClientError::Garbled(err.into())
}

/// Metrics are the longest answer, and their series are bounded.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;
