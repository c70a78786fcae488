//! What a program inside a sandbox can do: reach the gateway's listeners.
//!
//! Every way in, as bytes and as a convenience. Nothing here knows how the
//! gateway decides; it only knows how clients talk.

mod ask;
mod http2;
mod names;
mod socks;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;

use crate::deadline::within;
use crate::line::Line;
use crate::reply::Reply;
pub use ask::Ask;
pub use http2::Http2;
pub use http2::read as read_http2;
pub use names::explanation;
pub use socks::SocksName;

/// Where the gateway listens.
#[derive(Clone, Debug)]
pub struct Doors {
    pub proxy: SocketAddr,
    pub socks: SocketAddr,
    pub http: SocketAddr,
    pub https: SocketAddr,
    pub dns: SocketAddr,
}

/// How a client comes in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// Its packets were caught: it connects to port 80 or 443 of the gateway.
    Captured,
    Proxy,
    Socks,
}

impl Way {
    pub const ALL: [Self; 3] = [Self::Captured, Self::Proxy, Self::Socks];
}

/// The client's side.
#[derive(Clone, Debug)]
pub struct Sandbox {
    pub doors: Doors,
    roots: Arc<RootCertStore>,
}

impl Sandbox {
    /// A sandbox that trusts the authority in `ca_pem`, and nobody else.
    pub fn new(doors: Doors, ca_pem: &str) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        Self { doors, roots: Arc::new(roots) }
    }

    /// A connection to the explicit proxy.
    pub async fn proxy(&self) -> Line {
        open(self.doors.proxy).await
    }

    /// A connection to the SOCKS port, nothing said yet.
    pub async fn socks(&self) -> Line {
        open(self.doors.socks).await
    }

    /// A connection that meant port 80 of somebody.
    pub async fn captured_http(&self) -> Line {
        open(self.doors.http).await
    }

    /// A connection that meant port 443 of somebody.
    pub async fn captured_https(&self) -> Line {
        open(self.doors.https).await
    }

    /// Asks the proxy for a tunnel.
    pub async fn connect(&self, authority: &str) -> Result<Line, Reply> {
        let mut line = self.proxy().await;
        line.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await;
        let reply = line.reply_to("CONNECT").await;
        if reply.status == 200 { Ok(line) } else { Err(reply) }
    }

    /// A connection on which bytes for `host` may be sent.
    pub async fn tunnel(&self, way: Way, host: &str, port: u16) -> Result<Line, Reply> {
        match (way, port) {
            (Way::Captured, 80) => Ok(self.captured_http().await),
            (Way::Captured, _) => Ok(self.captured_https().await),
            (Way::Proxy, _) => self.connect(&format!("{host}:{port}")).await,
            (Way::Socks, _) => Ok(self.socks_to(SocksName::Host(host.into()), port).await.unwrap()),
        }
    }

    /// TLS with the gateway as `host`, on any way in.
    pub async fn tls(&self, way: Way, host: &str, alpn: &[&str]) -> Result<Line, Reply> {
        let line = self.tunnel(way, host, 443).await?;
        Ok(self.handshake(line, host, alpn).await.unwrap())
    }

    /// A handshake on a connection that was opened by other means.
    #[track_caller]
    pub fn handshake(
        &self,
        line: Line,
        server_name: &str,
        alpn: &[&str],
    ) -> impl Future<Output = io::Result<Line>> {
        let name = ServerName::try_from(server_name.to_owned()).unwrap();
        let config = self.trust(alpn);
        within("a handshake", async move { line.tls(&name, &config).await })
    }

    /// TLS as this sandbox does it, to be changed by tests that do it otherwise.
    pub fn client_config(&self, alpn: &[&str]) -> ClientConfig {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(Arc::clone(&self.roots))
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        config
    }

    /// Whom this sandbox believes.
    pub fn roots(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.roots)
    }

    fn trust(&self, alpn: &[&str]) -> Arc<ClientConfig> {
        Arc::new(self.client_config(alpn))
    }

    /// HTTP/2 with the gateway as `host`.
    pub async fn http2(&self, way: Way, host: &str) -> Http2 {
        let line = self.tls(way, host, &["h2"]).await.unwrap();
        Http2::open(line).await
    }

    /// A request to be sent.
    pub fn ask(&self, method: &str, url: &str) -> Ask<'_> {
        Ask::new(self, method, url)
    }

    /// Fetches by the explicit proxy, over HTTP/1.1.
    pub async fn get(&self, url: &str) -> Reply {
        self.ask("GET", url).send().await
    }
}

/// Connects to a listener.
#[expect(clippy::disallowed_methods, reason = "the client's side, on loopback")]
pub async fn open(at: SocketAddr) -> Line {
    let stream = within("a connection", TcpStream::connect(at)).await;
    let stream = stream.unwrap_or_else(|err| panic!("cannot connect to {at}: {err}"));
    stream.set_nodelay(true).unwrap();
    Line::new(stream)
}
