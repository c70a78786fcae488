//! A stand-in for the internet: one small server that is whatever host it is
//! told to be.
//!
//! The pilot, the demonstration and the self-test need something behind a
//! gateway that answers, without leaving this machine. A [`Standin`] listens
//! where it is told, speaks TLS or not as the first byte of a connection asks
//! for, HTTP/1.1 and HTTP/2 on both, and shows certificates of an authority of
//! its own whose key never leaves its memory. Whatever reaches it is kept and
//! told, so that "nothing arrived" can be shown and not only believed.
//!
//! **Invariant:** it answers and never asks: nothing here opens a connection.

mod answer;
pub mod program;
mod received;
mod websocket;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use certs::{Alpn, CertificateAuthority, Lifetime, Serving, Subject};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time;
use tokio_rustls::LazyConfigAcceptor;

use received::{ConnectionInfo, RequestLog};
pub use received::{ReceivedRequest, RequestSink};

/// What a stand-in is to be.
#[derive(Debug)]
pub struct Setup {
    /// Where to listen; port 0 takes one that is free.
    pub listen: Vec<SocketAddr>,
    /// The hosts it has certificates for: names or addresses.
    pub names: Vec<String>,
    /// Who is told of every request as it comes.
    pub sink: RequestSink,
}

/// A stand-in that serves until it is dropped.
#[derive(Debug)]
pub struct Standin {
    addresses: Vec<SocketAddr>,
    certificate: String,
    log: Arc<RequestLog>,
    serving: Vec<JoinHandle<()>>,
}

/// Why there is no stand-in.
#[derive(Debug, thiserror::Error)]
pub enum StandinError {
    #[error("there is no authority for the stand-in")]
    Authority(#[from] certs::CertificateAuthorityError),
    #[error("cannot listen on {at}")]
    Listen { at: SocketAddr, source: io::Error },
    #[error("cannot mint certificates for the stand-in")]
    Mint(#[from] certs::MintError),
    #[error(transparent)]
    Name(#[from] certs::SubjectError),
    #[error("a stand-in for nobody: name at least one host")]
    Nobody,
}

impl Setup {
    /// One that listens at `at`, is `names` and tells nobody.
    pub fn new(at: SocketAddr, names: &[&str]) -> Self {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Self { listen: vec![at], names, sink: RequestSink::default() }
    }

    pub async fn start(self) -> Result<Standin, StandinError> {
        let subjects: Result<Vec<Subject>, _> =
            self.names.iter().map(|name| Subject::parse(name)).collect();
        let subjects = subjects?;
        if subjects.is_empty() {
            return Err(StandinError::Nobody);
        }
        let authority = CertificateAuthority::in_memory("stand-in", Lifetime::default())?;
        let certificate = authority.pem();
        let tls = Serving::new(Arc::new(authority))?;
        let log = Arc::new(RequestLog::new(self.sink));
        let host = Arc::new(SharedState { tls, subjects, log: Arc::clone(&log) });

        let mut listeners = Vec::new();
        for at in self.listen {
            let failed = |source| StandinError::Listen { at, source };
            let listener = TcpListener::bind(at).await.map_err(failed)?;
            listeners.push((listener.local_addr().map_err(failed)?, listener));
        }
        let addresses = listeners.iter().map(|(at, _)| *at).collect();
        let serving = listeners
            .into_iter()
            .map(|(_, listener)| tokio::spawn(accept(listener, Arc::clone(&host))))
            .collect();
        Ok(Standin { addresses, certificate, log, serving })
    }
}

impl Standin {
    /// Where it listens, in the order that was asked for.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The certificate of its authority, for a gateway's `upstream.roots`.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The requests that arrived, oldest first; of very many, the last ones.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.log.requests()
    }

    /// How many connections were opened to it, whatever they said.
    pub fn connections(&self) -> u64 {
        self.log.connections()
    }
}

impl Drop for Standin {
    fn drop(&mut self) {
        self.serving.iter().for_each(JoinHandle::abort);
    }
}

/// What every connection shares.
#[derive(Debug)]
struct SharedState {
    tls: Serving,
    subjects: Vec<Subject>,
    log: Arc<RequestLog>,
}

impl SharedState {
    /// The leaf for whom the client asks. Whoever says no name means an address;
    /// a stranger is shown our first name's, as servers do, and turns away.
    fn subject(&self, asked: Option<&str>) -> Option<&Subject> {
        let known = match asked {
            None => self.subjects.iter().find(|one| matches!(one, Subject::Address(_))),
            Some(name) => {
                let asked = Subject::parse(name).ok();
                self.subjects.iter().find(|one| Some(*one) == asked.as_ref())
            }
        };
        known.or(self.subjects.first())
    }
}

/// Connections end with this task, which owns them.
async fn accept(listener: TcpListener, host: Arc<SharedState>) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut open = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                host.log.connected();
                let host = Arc::clone(&host);
                open.spawn(async move {
                    serve(stream, host).await;
                    drop(place);
                });
            }
            // Out of descriptors, most likely; they come back.
            Err(_) => time::sleep(ACCEPT_RETRY_INTERVAL).await,
        }
        while open.try_join_next().is_some() {}
    }
}

/// Serves one connection; whoever breaks it off is not worth a word.
async fn serve(stream: TcpStream, host: Arc<SharedState>) {
    // It fails on a socket that is gone already.
    stream.set_nodelay(true).ok();
    let mut first = [0];
    let began = time::timeout(OPENING_TIMEOUT, stream.peek(&mut first)).await;
    if !matches!(began, Ok(Ok(1))) {
        return;
    }
    if first != [TLS_HANDSHAKE] {
        return converse(stream, ConnectionInfo { name: None, tls: false }, host).await;
    }
    let Ok(Ok(hello)) =
        time::timeout(OPENING_TIMEOUT, LazyConfigAcceptor::new(Default::default(), stream)).await
    else {
        return;
    };
    let name = hello.client_hello().server_name().map(str::to_owned);
    let Some(subject) = host.subject(name.as_deref()) else { return };
    let Ok(config) = host.tls.config(subject, Alpn::H2OrHttp1) else { return };
    if let Ok(Ok(stream)) = time::timeout(OPENING_TIMEOUT, hello.into_stream(config)).await {
        converse(stream, ConnectionInfo { name, tls: true }, host).await;
    }
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    connection: ConnectionInfo,
    host: Arc<SharedState>,
) {
    let answering = service_fn(move |request| {
        let (connection, host) = (connection.clone(), Arc::clone(&host));
        async move { answer::answer(request, &connection, &host.log).await }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(OPENING_TIMEOUT);
    server.http2().timer(TokioTimer::new());
    drop(server.serve_connection_with_upgrades(TokioIo::new(stream), answering).await);
}

const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Whoever has said nothing by then will not.
const OPENING_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_CONNECTIONS: usize = 512;
const TLS_HANDSHAKE: u8 = 0x16;

#[cfg(test)]
mod tests;
