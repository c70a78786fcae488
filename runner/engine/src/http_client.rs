//! HTTP to whoever serves it at a socket: Podman, and gateways.
//!
//! Each question is a connection of its own, and has its time.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::task::JoinHandle;
use tokio::time;

use crate::connector::Connector;

/// A client of whoever a connector leads to.
#[derive(Clone, Debug)]
pub struct HttpClient(Connector);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("nobody answers at {at}")]
    Connect { at: Connector, source: io::Error },
    #[error("the answer cannot be read")]
    Garbled(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("no answer within {0:?}")]
    Late(Duration),
}

/// A connection that is kept by a task, and ends with this.
#[derive(Debug)]
pub struct Driven(JoinHandle<()>);

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl HttpClient {
    pub fn new(connector: Connector) -> Self {
        Self(connector)
    }

    /// One question, and the whole answer.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        within: Duration,
    ) -> Result<(StatusCode, Bytes), HttpError> {
        let exchange = async {
            let (answer, _driven) = self.send(method, path, body).await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
            Ok((status, body.map_err(HttpError::Garbled)?.to_bytes()))
        };
        time::timeout(within, exchange).await.map_err(|_| HttpError::Late(within))?
    }

    /// One question. Its answer can be read as long as the connection is kept.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(http::Response<Incoming>, Driven), HttpError> {
        let connected = self.0.connect().await;
        let stream =
            connected.map_err(|source| HttpError::Connect { at: self.0.clone(), source })?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(garbled)?;
        // That it ended is noticed by whoever waits for the answer.
        let driven = Driven(tokio::spawn(async move { drop(connection.await) }));
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "localhost")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(garbled)?;
        Ok((sender.send_request(request).await.map_err(garbled)?, driven))
    }
}

fn garbled(err: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> HttpError {
    HttpError::Garbled(err.into())
}

/// Metrics of a gateway and lists of an engine are the longest answers.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;
