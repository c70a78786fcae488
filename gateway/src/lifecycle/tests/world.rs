//! A client, a gateway and upstreams that answer from a script.

use std::sync::Arc;

use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::dial::testing::{TestAuthority, TestServer};
use crate::gateway::Gateway;
use crate::lifecycle;
use crate::limits::Bounds;
use crate::listen::{Accepted, ListenerKind};
use crate::testing::Stage;

/// `allowed.test` speaks TLS and `plain.test` does not; both are upstreams of
/// the same script. Nothing else exists.
pub(super) struct World {
    pub(super) stage: Stage,
    pub(super) upstream: TestServer,
    pub(super) plain: TestServer,
    /// Every request head that reached an upstream.
    heard: Arc<Mutex<Vec<String>>>,
    authority: TestAuthority,
}

/// What an upstream does with one request, of which it has the head.
pub(super) type Script = fn(&str) -> &'static [u8];

pub(super) const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Up: 1\r\n\r\nhello";

impl World {
    /// Upstreams that answer everything with `OK`.
    pub(super) async fn new(allow: &str) -> Self {
        Self::answering(allow, |_| OK).await
    }

    pub(super) async fn answering(allow: &str, script: Script) -> Self {
        Self::with_bounds(allow, Bounds::default(), script).await
    }

    pub(super) async fn with_bounds(allow: &str, bounds: Bounds, script: Script) -> Self {
        Self::scripted(&policy(allow), bounds, script).await
    }

    /// Under a policy that is written out.
    pub(super) async fn under(policy: &str, script: Script) -> Self {
        Self::scripted(policy, Bounds::default(), script).await
    }

    async fn scripted(policy: &str, bounds: Bounds, script: Script) -> Self {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&heard);
        let serve_tls = move |stream| answer(stream, script, Arc::clone(&log));
        let log = Arc::clone(&heard);
        let serve_plain = move |stream| answer(stream, script, Arc::clone(&log));
        let authority = TestAuthority::new();
        let config = authority.serving("allowed.test", &["http/1.1"]);
        let upstream = TestServer::tls(config, serve_tls).await;
        let plain = TestServer::tcp(serve_plain).await;
        Self::of(policy, bounds, authority, upstream, plain, heard)
    }

    /// An upstream with a mind of its own.
    pub(super) async fn with_upstream<S, F>(allow: &str, bounds: Bounds, serve: S) -> Self
    where
        S: Fn(TcpStream) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let authority = TestAuthority::new();
        let config = authority.serving("allowed.test", &["http/1.1"]);
        let upstream = TestServer::tls(config, |_| std::future::ready(())).await;
        let plain = TestServer::tcp(serve).await;
        Self::of(&policy(allow), bounds, authority, upstream, plain, Arc::default())
    }

    fn of(
        policy: &str,
        bounds: Bounds,
        authority: TestAuthority,
        upstream: TestServer,
        plain: TestServer,
        heard: Arc<Mutex<Vec<String>>>,
    ) -> Self {
        let dialer = authority.dialer(&[
            ("allowed.test", upstream.at),
            // Its certificate is for another name.
            ("wrong.test", upstream.at),
            ("plain.test", plain.at),
            ("tcp.test", plain.at),
        ]);
        let stage = Stage::with_dialer(policy, bounds, dialer);
        Self { stage, upstream, plain, heard, authority }
    }

    pub(super) fn gateway(&self) -> &Arc<Gateway> {
        &self.stage.gateway
    }

    /// The heads that upstreams got.
    pub(super) fn heard(&self) -> Vec<String> {
        self.heard.lock().clone()
    }

    /// How many connections reached an upstream.
    pub(super) fn dialled(&self) -> usize {
        self.upstream.accepted() + self.plain.accepted()
    }

    /// A connection into one of the ways in.
    pub(super) async fn connect(&self, kind: ListenerKind) -> TcpStream {
        self.connect_task(kind).await.0
    }

    /// The same, with the task that serves it.
    pub(super) async fn connect_task(&self, kind: ListenerKind) -> (TcpStream, JoinHandle<()>) {
        let (client, accepted) = self.accepted(kind).await;
        let serving = tokio::spawn(lifecycle::serve(accepted, Arc::clone(self.gateway())));
        (client, serving)
    }

    /// Both ends of a connection that nobody serves yet.
    #[expect(clippy::disallowed_methods, reason = "the client's side, not the gateway's")]
    pub(super) async fn accepted(&self, kind: ListenerKind) -> (TcpStream, Accepted) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(at), listener.accept());
        let (stream, peer) = accepted.unwrap();
        (client.unwrap(), Accepted { stream, peer, kind })
    }

    /// A tunnel to `to`, which must be granted.
    pub(super) async fn tunnel(&self, to: &str) -> TcpStream {
        let mut stream = self.connect(ListenerKind::Proxy).await;
        send(&mut stream, &format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")).await;
        let head = read_head(&mut stream).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        stream
    }

    /// TLS to `allowed.test` through a tunnel.
    pub(super) async fn secure(&self) -> TlsStream<TcpStream> {
        let stream = self.tunnel("allowed.test:443").await;
        self.handshake(stream, Some("allowed.test"), &["http/1.1"]).await.unwrap()
    }

    /// TLS on a connection, as a client that trusts the gateway's authority.
    pub(super) async fn handshake(
        &self,
        stream: TcpStream,
        name: Option<&str>,
        alpn: &[&str],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let root = self.gateway().tls.authority().certificate().clone();
        connect_tls(stream, root, name, alpn).await
    }

    /// What a client needs to trust the gateway's authority. It speaks these
    /// versions, and remembers its sessions.
    pub(super) fn client_config(
        &self,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ClientConfig {
        trusting(self.gateway().tls.authority().certificate().clone(), versions)
    }

    /// TLS on a connection, as a client that trusts the upstream's authority.
    pub(super) async fn handshake_upstream(
        &self,
        stream: TcpStream,
        name: &str,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let root = &self.authority.settings().roots.files[0];
        connect_tls(stream, CertificateDer::from_pem_file(root).unwrap(), Some(name), &[]).await
    }

    /// The closing records of every request, once nothing is under way.
    pub(super) async fn requests(&self) -> Vec<LoggedEvent> {
        self.stage.events_of("request").await.into_iter().map(LoggedEvent).collect()
    }

    pub(super) async fn connections(&self) -> Vec<LoggedEvent> {
        self.stage.events_of("connection").await.into_iter().map(LoggedEvent).collect()
    }
}

/// One line of the log.
#[derive(Debug)]
pub(super) struct LoggedEvent(serde_json::Value);

impl LoggedEvent {
    /// A field, as text; empty if it is not there.
    pub(super) fn get(&self, field: &str) -> String {
        match self.0.get(field) {
            None => String::new(),
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }

    /// What happened and why, in three words.
    pub(super) fn verdict(&self) -> String {
        let reason = self.get("sluice.reason");
        let reason = if reason.is_empty() { self.get("error.type") } else { reason };
        format!("{} {} {reason}", self.get("sluice.outcome"), self.get("sluice.verdict"))
    }
}

pub(super) fn policy(allow: &str) -> String {
    format!("version: 1\nname: test\nnet:\n  enabled: true\n  allow: [{allow}]\n")
}

async fn connect_tls(
    stream: TcpStream,
    root: CertificateDer<'static>,
    name: Option<&str>,
    alpn: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut config = trusting(root, rustls::DEFAULT_VERSIONS);
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config.enable_sni = name.is_some();
    let name = name.unwrap_or("allowed.test").to_owned();
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(ServerName::try_from(name).unwrap(), stream).await
}

fn trusting(
    root: CertificateDer<'static>,
    versions: &[&'static SupportedProtocolVersion],
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(root).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

async fn answer<S>(mut stream: S, script: Script, heard: Arc<Mutex<Vec<String>>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let Some(head) = try_read_head(&mut stream).await else { return };
        let reply = script(&head);
        heard.lock().push(head);
        if stream.write_all(reply).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

pub(super) async fn send<S: AsyncWrite + Unpin>(stream: &mut S, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
}

/// Reads up to the end of a head.
pub(super) async fn read_head<S: AsyncRead + Unpin>(stream: &mut S) -> String {
    try_read_head(stream).await.expect("a head")
}

async fn try_read_head<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

/// A whole answer with a length.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) head: String,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Status and code of a refusal, which must say the same in three places.
    pub(super) fn refusal(&self) -> String {
        let problem: serde_json::Value = serde_json::from_str(&self.body).expect(&self.body);
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(problem["code"].as_str(), self.header("x-sluice-code"));
        assert_eq!(problem["status"], self.status());
        assert_eq!(problem["request_id"].as_str(), self.header("x-sluice-request-id"));
        format!("{} {}", self.status(), problem["code"].as_str().unwrap())
    }
}

pub(super) async fn read_answer<S: AsyncRead + Unpin>(stream: &mut S) -> Answer {
    let mut answer = Answer { head: read_head(stream).await, body: String::new() };
    let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    answer.body = String::from_utf8(body).unwrap();
    answer
}

pub(super) async fn ask<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, text: &str) -> Answer {
    send(stream, text).await;
    read_answer(stream).await
}

/// Reads until the other side closes.
pub(super) async fn read_rest<S: AsyncRead + Unpin>(stream: &mut S) -> String {
    let mut rest = Vec::new();
    // A connection that is cut off in the middle has said what it has said.
    drop(stream.read_to_end(&mut rest).await);
    String::from_utf8_lossy(&rest).into_owned()
}
