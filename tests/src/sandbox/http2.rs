//! HTTP/2 from the client's side.

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream, client};
use http::{HeaderMap, Request};
use tokio::task::JoinHandle;

use crate::deadline::within;
use crate::line::Line;
use crate::reply::Reply;
use crate::upstream::listed;

/// One HTTP/2 connection.
#[derive(Debug)]
pub struct Http2 {
    pub sender: SendRequest<Bytes>,
    task: JoinHandle<()>,
}

impl Http2 {
    pub async fn open(line: Line) -> Self {
        assert_eq!(line.alpn.as_deref(), Some(&b"h2"[..]), "the gateway agreed to HTTP/2");
        let handshake = client::Builder::new().handshake(line.into_stream());
        let (sender, connection) = within("the h2 preface", handshake).await.unwrap();
        let task = tokio::spawn(async move { drop(connection.await) });
        Self { sender, task }
    }

    /// Sends a request with its whole body and reads the whole answer.
    pub async fn ask(
        &mut self,
        method: &str,
        url: &str,
        headers: &[(String, String)],
        body: Vec<u8>,
    ) -> Reply {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(()).unwrap();
        let (response, mut stream) = self.begin(request, body.is_empty()).await;
        if !body.is_empty() {
            stream.send_data(body.into(), true).ok();
        }
        read(response).await.unwrap_or_else(|err| panic!("{method} {url}: {err}"))
    }

    pub async fn get(&mut self, url: &str) -> Reply {
        self.ask("GET", url, &[], Vec::new()).await
    }

    /// Begins a stream.
    pub async fn begin(
        &mut self,
        request: Request<()>,
        ends: bool,
    ) -> (ResponseFuture, SendStream<Bytes>) {
        let sender = self.sender.clone();
        let mut sender = within("room for a stream", sender.ready()).await.unwrap();
        sender.send_request(request, ends).unwrap()
    }

    /// Whether the gateway has ended the connection.
    pub fn ended(&self) -> bool {
        self.task.is_finished()
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads a whole answer.
pub async fn read(response: ResponseFuture) -> Result<Reply, h2::Error> {
    let response = within("an h2 response", response).await?;
    let (parts, mut stream) = response.into_parts();
    let (body, trailers) = read_body(&mut stream).await?;
    Ok(Reply {
        status: parts.status.as_u16(),
        headers: listed(&parts.headers),
        body,
        trailers: listed(&trailers),
        ..Reply::default()
    })
}

async fn read_body(stream: &mut RecvStream) -> Result<(Vec<u8>, HeaderMap), h2::Error> {
    let mut body = Vec::new();
    while let Some(piece) = within("an h2 body", stream.data()).await {
        let piece = piece?;
        stream.flow_control().release_capacity(piece.len())?;
        body.extend_from_slice(&piece);
    }
    let trailers = within("h2 trailers", stream.trailers()).await?;
    Ok((body, trailers.unwrap_or_default()))
}
