//! A client, a gateway and an upstream.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use policies::{Destination, Scheme};
use tokio::io::DuplexStream;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::server::TlsStream;

use crate::admit::admit;
use crate::connection::ConnectionContext;
use crate::dial::testing::{TestAuthority, TestServer};
use crate::gateway::Gateway;
use crate::lifecycle::answer_http2;
use crate::limits::Bounds;
use crate::record::ConnectionRecord;
use crate::refuse::Refusal;
use crate::testing::Stage;

/// What an upstream is asked.
pub(super) type Asked = (Request<RecvStream>, SendResponse<Bytes>);

pub(super) struct Http2World {
    pub(super) client: SendRequest<Bytes>,
    pub(super) upstream: TestServer,
    stage: Stage,
    wire: Wire,
    /// Its roots are a file, which must stay.
    _authority: TestAuthority,
}

/// The two ends of the client's connection.
struct Wire {
    client: JoinHandle<()>,
    serving: JoinHandle<Result<(), Refusal>>,
}

impl Http2World {
    /// A gateway under `policy`, and a connection to `allowed.test` through it.
    pub(super) async fn new<F>(policy: &str, upstream: fn(Asked) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::with_bounds(policy, Bounds::default(), upstream).await
    }

    pub(super) async fn with_bounds<F>(
        policy: &str,
        bounds: Bounds,
        upstream: fn(Asked) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let serve = move |stream| answer_each(stream, upstream);
        Self::with_upstream(policy, bounds, serve).await
    }

    /// An upstream that speaks HTTP/2 its own way.
    pub(super) async fn with_upstream<S, F>(policy: &str, bounds: Bounds, serve: S) -> Self
    where
        S: Fn(TlsStream<TcpStream>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let authority = TestAuthority::new();
        let config = authority.serving("allowed.test", &["h2"]);
        let upstream = TestServer::tls(config, serve).await;
        let dialer = authority.dialer(&[("allowed.test", upstream.at)]);
        let stage = Stage::with_dialer(policy, bounds, dialer);
        let (client, wire) = connect(&stage.gateway).await;
        Self { client, upstream, stage, wire, _authority: authority }
    }

    pub(super) fn stage(&self) -> &Stage {
        &self.stage
    }

    pub(super) fn gateway(&self) -> &Arc<Gateway> {
        &self.stage.gateway
    }

    pub(super) async fn send(&mut self, request: Request<()>) -> Response<RecvStream> {
        self.open(request, true).0.await.unwrap()
    }

    /// Opens a stream; the body is the caller's to send.
    pub(super) fn open(
        &mut self,
        request: Request<()>,
        end: bool,
    ) -> (h2::client::ResponseFuture, SendStream<Bytes>) {
        self.client.send_request(request, end).unwrap()
    }

    /// Hangs up, and returns the closing record of every request.
    pub(super) async fn hang_up(self) -> Vec<serde_json::Value> {
        self.wire.client.abort();
        self.wire.serving.await.unwrap().unwrap();
        let stage = self.stage;
        stage.events_of("request").await
    }
}

async fn connect(gateway: &Arc<Gateway>) -> (SendRequest<Bytes>, Wire) {
    let (theirs, serving) = plug_in(gateway);
    // So that streams which are not read stall by themselves.
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(65_535).initial_connection_window_size(16 << 20);
    let (client, connection) = builder.handshake(theirs).await.unwrap();
    let connection = tokio::spawn(async move {
        connection.await.ok();
    });
    (client, Wire { client: connection, serving })
}

/// A connection to `allowed.test` on which nothing was said yet.
pub(super) fn plug_in(gateway: &Arc<Gateway>) -> (DuplexStream, JoinHandle<Result<(), Refusal>>) {
    let to = Destination::parse("allowed.test:443").unwrap();
    let admitted = admit(&gateway.policy, &gateway.limits, &to).unwrap();
    let record = ConnectionRecord::begin(gateway, audit::ClientRecord::default()).unwrap();
    let ctx = ConnectionContext::new(Ok(&admitted), gateway, Scheme::Https, to, &record);
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let serving = tokio::spawn(async move {
        let ended = super::super::serve(ours, Arc::new(ctx), answer_http2).await;
        record.close(audit::EntryOutcome::Relayed);
        ended
    });
    (theirs, serving)
}

async fn answer_each<F>(stream: TlsStream<TcpStream>, upstream: fn(Asked) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut builder = h2::server::Builder::new();
    builder.enable_connect_protocol();
    let Ok(mut connection) = builder.handshake(stream).await else { return };
    while let Some(Ok(asked)) = connection.accept().await {
        tokio::spawn(upstream(asked));
    }
}

pub(super) fn policy(rule: &str) -> String {
    format!("version: 1\nname: test\nnet:\n  enabled: true\n  allow:\n    - {rule}\n")
}

pub(super) fn get(path: &str) -> Request<()> {
    Request::get(format!("https://allowed.test{path}")).body(()).unwrap()
}

pub(super) fn post(path: &str) -> Request<()> {
    Request::post(format!("https://allowed.test{path}")).body(()).unwrap()
}

/// Reads a body to its end, giving back window as it goes.
pub(super) async fn read_all(body: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        all.extend_from_slice(&data);
        body.flow_control().release_capacity(data.len())?;
    }
    Ok(all)
}

/// The answer's body as JSON.
pub(super) async fn body_of(response: Response<RecvStream>) -> serde_json::Value {
    let mut body = response.into_body();
    serde_json::from_slice(&read_all(&mut body).await.unwrap()).unwrap()
}
