//! Upstreams that do as a test tells them, and remember what reached them.
//!
//! A scripted upstream listens on loopback and speaks TLS or not, as the first
//! byte of each connection asks for, so one name serves `http` and `https`.
//! It counts every connection and keeps the first bytes of each, after TLS:
//! [`Upstream::assert_never_contacted`] is about sockets, not about requests
//! that a script happened to understand.

mod http1;
mod http2;
mod tap;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::authority::{Authority, Certificate};
use crate::line::{Line, Stream};
use crate::websocket;
pub use http1::{Answer, Received};
pub(crate) use http2::listed;
pub use http2::{Http2Request, answering_http2, speaking_http2};
pub use tap::ReceivedBytes;
use tap::Tap;

/// What an upstream does with one connection.
pub type Script = Arc<dyn Fn(Peer) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// What an upstream is to be.
#[derive(Clone)]
pub struct Plan {
    pub script: Script,
    pub certificate: Certificate,
    pub alpn: Vec<&'static str>,
}

/// One scripted upstream.
pub struct Upstream {
    pub name: String,
    pub at: SocketAddr,
    seen: Arc<Mutex<Vec<ReceivedBytes>>>,
    task: JoinHandle<()>,
}

/// One connection to a scripted upstream, TLS opened.
#[derive(Debug)]
pub struct Peer {
    pub line: Line,
    /// How many came before it.
    pub index: usize,
    /// The TCP connection below, for scripts that break it.
    pub socket: socket2::Socket,
    seen: ReceivedBytes,
}

impl Plan {
    /// Answers every HTTP/1.1 request.
    pub fn answering(answer: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Self {
        let answer = Arc::new(answer);
        Self::scripted(move |peer| {
            let answer = Arc::clone(&answer);
            async move { http1::serve(peer, &*answer).await }
        })
    }

    /// Does whatever a test wants with each connection.
    pub fn scripted<F>(script: impl Fn(Peer) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let script: Script = Arc::new(move |peer| Box::pin(script(peer)));
        Self { script, certificate: Certificate::Trusted, alpn: vec!["http/1.1"] }
    }

    /// Reads one request and sends these bytes, whatever they are.
    pub fn sending(bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref().to_vec();
        Self::scripted(move |mut peer| {
            let bytes = bytes.clone();
            async move {
                while peer.request().await.is_some() {
                    peer.line.send(&bytes).await;
                }
            }
        })
    }

    /// Says what was asked and of whom.
    pub fn echoing() -> Self {
        Self::answering(Received::echo)
    }

    /// Becomes a WebSocket and sends every message back.
    pub fn websocket_echo() -> Self {
        Self::scripted(|mut peer| async move {
            let Some(asked) = peer.request().await else { return };
            let key = asked.header("sec-websocket-key").unwrap_or_default().to_owned();
            peer.line.send(websocket::switching(&key)).await;
            while let Some(frame) = peer.line.frame().await {
                peer.line.send(frame.bytes(false)).await;
                if frame.opcode == websocket::CLOSE {
                    return;
                }
            }
        })
    }

    #[must_use]
    pub fn certificate(mut self, certificate: Certificate) -> Self {
        self.certificate = certificate;
        self
    }

    #[must_use]
    pub fn alpn(mut self, alpn: &[&'static str]) -> Self {
        self.alpn = alpn.to_vec();
        self
    }

    /// Starts an upstream that calls itself `name`.
    pub async fn start(self, name: &str, authority: &Authority) -> Upstream {
        self.start_at(([127, 0, 0, 1], 0).into(), name, authority).await
    }

    /// The same on an address of a test's choice.
    pub async fn start_at(self, at: SocketAddr, name: &str, authority: &Authority) -> Upstream {
        let tls = authority.serving(name, &self.certificate, &self.alpn);
        let listener = TcpListener::bind(at).await.unwrap();
        let at = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn(accept(listener, tls, self.script, Arc::clone(&seen)));
        Upstream { name: name.to_owned(), at, seen, task }
    }
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

async fn accept(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    script: Script,
    all: Arc<Mutex<Vec<ReceivedBytes>>>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let seen = ReceivedBytes::default();
        let index = {
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            all.push(seen.clone());
            all.len() - 1
        };
        let (tls, script) = (Arc::clone(&tls), Arc::clone(&script));
        tokio::spawn(async move {
            stream.set_nodelay(true).ok();
            let socket = socket2::SockRef::from(&stream).try_clone().unwrap();
            let Some((stream, alpn)) = open(stream, tls, &seen).await else { return };
            let mut line = Line::new(Tap::new(stream, seen.clone()));
            line.alpn = alpn;
            script(Peer { line, index, socket, seen }).await;
        });
    }
}

/// TLS if that is how the client begins.
async fn open(
    stream: TcpStream,
    tls: Arc<ServerConfig>,
    seen: &ReceivedBytes,
) -> Option<(Box<dyn Stream>, Option<Vec<u8>>)> {
    let mut first = [0; 1];
    if stream.peek(&mut first).await.ok()? == 0 {
        return None;
    }
    if first != [0x16] {
        return Some((Box::new(stream), None));
    }
    let stream = TlsAcceptor::from(tls).accept(stream).await.ok()?;
    let session = stream.get_ref().1;
    seen.opened_tls(session.server_name());
    let alpn = session.alpn_protocol().map(<[u8]>::to_vec);
    Some((Box::new(stream), alpn))
}

impl Upstream {
    /// Every connection so far.
    pub fn seen(&self) -> Vec<ReceivedBytes> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn connections(&self) -> usize {
        self.seen().len()
    }

    /// All bytes of all connections, as far as they are kept.
    pub fn received(&self) -> String {
        let all: Vec<u8> = self.seen().iter().flat_map(ReceivedBytes::bytes).collect();
        String::from_utf8_lossy(&all).into_owned()
    }

    /// How many bytes it got in all, also those that are not kept.
    pub fn received_in_all(&self) -> u64 {
        self.seen().iter().map(ReceivedBytes::total).sum()
    }

    /// The requests that its script read, of all connections.
    pub fn requests(&self) -> Vec<Received> {
        self.seen().iter().flat_map(ReceivedBytes::requests).collect()
    }

    #[track_caller]
    pub fn assert_never_contacted(&self) {
        self.assert_not_contacted_beyond(0);
    }

    /// Asserts that it had so many connections and no more.
    #[track_caller]
    pub fn assert_not_contacted_beyond(&self, expected: usize) {
        let connections = self.connections();
        assert_eq!(connections, expected, "{} was contacted: {:?}", self.name, self.received());
    }
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Peer {
    /// Reads one HTTP/1.1 request with its body, naively; nothing at the end.
    pub async fn request(&mut self) -> Option<Received> {
        let received = http1::read(&mut self.line).await?;
        self.seen.remember(received.clone());
        Some(received)
    }

    /// Breaks the connection instead of closing it.
    pub fn reset(self) {
        self.socket.set_linger(Some(std::time::Duration::ZERO)).ok();
    }
}
