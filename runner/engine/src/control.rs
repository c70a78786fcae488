//! What a runner asks of a running gateway.

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use protocol::control::{RefusedAction, Status};

use crate::connector::Connector;
use crate::http_client::{HttpClient, HttpError};

/// Asks at a gateway's control socket.
#[derive(Clone, Debug)]
pub struct ControlClient(HttpClient);

/// Why there is no answer, or why it is no.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("the gateway does not answer")]
    NoAnswer(#[from] HttpError),
    #[error("the gateway's answer cannot be read")]
    Garbled(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the gateway refused: {0}")]
    Refused(String),
}

/// Leads to the control socket of a gateway whose run has its folder here.
pub fn connector_in(folder: &Path) -> Connector {
    Connector::unix(folder.join(FOLDER).join("control.sock"))
}

/// What a gateway has its control socket in.
pub const FOLDER: &str = "control";

impl ControlClient {
    pub fn new(connector: Connector) -> Self {
        Self(HttpClient::new(connector))
    }

    /// Whether nobody listens any more. One that is slow, or of another version, is there.
    pub async fn is_gone(&self) -> bool {
        let Err(ControlError::NoAnswer(HttpError::Connect { source, .. })) = self.status().await
        else {
            return false;
        };
        matches!(source.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
    }

    pub async fn status(&self) -> Result<Status, ControlError> {
        let body = self.ask(Method::GET, "/status").await?;
        serde_json::from_slice(&body).map_err(|err| ControlError::Garbled(err.into()))
    }

    /// Asks the gateway to stop once every connection has ended.
    pub async fn drain(&self) -> Result<(), ControlError> {
        self.ask(Method::POST, "/drain").await.map(drop)
    }

    /// The certificate that a sandbox is to trust, as PEM.
    pub async fn ca_certificate(&self) -> Result<String, ControlError> {
        let body = self.ask(Method::GET, "/ca.pem").await?;
        String::from_utf8(body.into()).map_err(|err| ControlError::Garbled(err.into()))
    }

    async fn ask(&self, method: Method, path: &str) -> Result<Bytes, ControlError> {
        let (status, body) = self.0.ask(method, path, Bytes::new(), ANSWER_TIMEOUT).await?;
        if status.is_success() {
            return Ok(body);
        }
        let said = serde_json::from_slice(&body).map(|RefusedAction { detail, .. }| detail);
        Err(ControlError::Refused(said.unwrap_or_else(|_| format!("it answers {status}"))))
    }
}

/// It answers at once, on a busy machine a little later.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn only_who_does_not_listen_is_gone() {
        let home = tempfile::tempdir().unwrap();
        let client = ControlClient::new(connector_in(home.path()));
        assert!(client.is_gone().await, "there is no socket");
        let path = home.path().join(FOLDER);
        std::fs::create_dir(&path).unwrap();
        let listener = UnixListener::bind(path.join("control.sock")).unwrap();
        let asked = tokio::spawn(async move { client.is_gone().await });
        // It hangs up without a word, as one of another version might.
        drop(listener.accept().await.unwrap());
        assert!(!asked.await.unwrap(), "it listens");
        drop(listener);
        let client = ControlClient::new(connector_in(home.path()));
        assert!(client.is_gone().await, "its socket is left, and nobody behind it");
    }
}
