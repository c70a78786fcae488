//! From a socket to TLS with the origin: directly, or through a proxy by CONNECT.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::IpBindAddressNoPort;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::connection::HttpConnection;

pub(crate) type OriginConnection = HttpConnection<TlsStream<TcpStream>>;

/// Where a workload's connections go.
pub(crate) struct LoadRoute {
    pub(crate) proxy: Option<SocketAddr>,
    pub(crate) origin: SocketAddr,
    pub(crate) tls: Arc<ClientConfig>,
}

/// What became of a CONNECT.
pub(crate) enum ConnectOutcome {
    Open(TcpStream),
    /// The answer's status; none if the proxy ended the connection without one.
    Refused(Option<u16>),
}

/// How long the two halves of opening a connection took.
pub(crate) struct OpenTimes {
    pub(crate) tunnel: Duration,
    pub(crate) tls: Duration,
}

impl LoadRoute {
    pub(crate) async fn open(&self, host: &str) -> Result<(OriginConnection, OpenTimes)> {
        let begun = Instant::now();
        let socket = match self.tunnel(host).await? {
            ConnectOutcome::Open(socket) => socket,
            ConnectOutcome::Refused(Some(status)) => {
                bail!("refused: CONNECT answered with {status}")
            }
            ConnectOutcome::Refused(None) => bail!("refused: CONNECT was reset"),
        };
        let tunnel = begun.elapsed();
        let stream = self.handshake(host, socket).await?;
        let tls = begun.elapsed() - tunnel;
        Ok((HttpConnection::new(stream), OpenTimes { tunnel, tls }))
    }

    pub(crate) async fn tunnel(&self, host: &str) -> Result<ConnectOutcome> {
        let Some(proxy) = self.proxy else {
            return Ok(ConnectOutcome::Open(dial(self.origin).await?));
        };
        let mut socket = dial(proxy).await?;
        let authority = format!("{host}:{}", self.origin.port());
        let request = format!(
            "CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: pbench\r\n\r\n"
        );
        socket.write_all(request.as_bytes()).await?;
        Ok(match connect_status(&mut socket).await? {
            Some(200..300) => ConnectOutcome::Open(socket),
            refused => ConnectOutcome::Refused(refused),
        })
    }

    pub(crate) async fn handshake(
        &self,
        host: &str,
        socket: TcpStream,
    ) -> Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned())?;
        Ok(TlsConnector::from(Arc::clone(&self.tls)).connect(name, socket).await?)
    }
}

/// The status of the answer to CONNECT; none if there was no answer.
async fn connect_status(socket: &mut TcpStream) -> Result<Option<u16>> {
    let mut answer = Vec::new();
    while answer.len() < MAX_ANSWER_BYTES {
        match socket.read_buf(&mut answer).await {
            Ok(0) | Err(_) => return Ok(None),
            Ok(_) => {}
        }
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut headers);
        if let httparse::Status::Complete(end) = response.parse(&answer)? {
            let status = response.code.unwrap_or(0);
            if (200..300).contains(&status) && end != answer.len() {
                bail!("{} bytes after the answer to CONNECT", answer.len() - end);
            }
            return Ok(Some(status));
        }
    }
    bail!("the answer to CONNECT is longer than {MAX_ANSWER_BYTES} bytes")
}

/// Takes a source address for each connection in turn, of a thousand: closed ones wait
/// a minute, and one address would run out of ports.
async fn dial(to: SocketAddr) -> io::Result<TcpStream> {
    static DIALLED: AtomicU32 = AtomicU32::new(0);
    let [.., high, low] = (DIALLED.fetch_add(1, Ordering::Relaxed) % 1000).to_be_bytes();
    let number = u16::from_be_bytes([high, low]);
    let source = Ipv4Addr::new(127, 0, 2 + (number / 250) as u8, 1 + (number % 250) as u8);

    let socket = TcpSocket::new_v4()?;
    // Otherwise `bind` takes a port that no other connection of this address can have.
    setsockopt(&socket, IpBindAddressNoPort, &true)?;
    socket.bind((source, 0).into())?;
    #[expect(clippy::disallowed_methods, reason = "this is the client that is measured")]
    let stream = socket.connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

const MAX_ANSWER_BYTES: usize = 8192;
