//! One connection of a client: CONNECT, the check of its host, both handshakes.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::access_log::{AccessEntry, AccessLog};
use crate::leaf::LeafMaker;
use crate::read_ahead::LargeReads;
use crate::relay::Relay;
use crate::upstream::{self, Upstreams};

pub(crate) struct FloorProxy {
    pub(crate) leaves: LeafMaker,
    pub(crate) upstream_tls: Arc<ClientConfig>,
    /// The whole policy: hosts that end so.
    pub(crate) allowed_suffix: String,
    pub(crate) log: AccessLog,
}

impl FloorProxy {
    pub(crate) async fn serve(
        &self,
        mut socket: TcpStream,
        client: SocketAddr,
        upstreams: &Upstreams,
    ) -> Result<()> {
        socket.set_nodelay(true)?;
        let Some((host, port)) = read_connect(&mut socket).await? else { return Ok(()) };
        if !host.ends_with(&self.allowed_suffix) {
            self.log.record(
                client,
                &AccessEntry {
                    verdict: "deny",
                    method: "CONNECT",
                    host: &host,
                    path: "-",
                    status: 403,
                    body_bytes: 0,
                },
            );
            socket.write_all(FORBIDDEN).await?;
            return Ok(());
        }

        let acceptor = TlsAcceptor::from(self.leaves.config(&host)?);
        socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
        let accepting = acceptor.accept(LargeReads::new(socket));
        let (downstream, upstream) = match upstreams.take(&host).await {
            Some(idle) => (accepting.await?, idle),
            None => {
                let connecting = upstream::connect(&host, port, &self.upstream_tls);
                tokio::try_join!(accepting, connecting)?
            }
        };
        let mut relay = Relay::new(downstream, upstream);
        if relay.run(&host, client, &self.log).await? {
            upstreams.keep(host, relay.into_upstream());
        }
        Ok(())
    }
}

/// Host and port of a CONNECT; nothing if the client left.
async fn read_connect(socket: &mut TcpStream) -> Result<Option<(String, u16)>> {
    let mut head = Vec::with_capacity(MAX_HEAD_BYTES);
    while head.len() < MAX_HEAD_BYTES {
        if socket.read_buf(&mut head).await? == 0 {
            return Ok(None);
        }
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut request = httparse::Request::new(&mut headers);
        if request.parse(&head)?.is_complete() {
            if request.method != Some("CONNECT") {
                bail!("CONNECT alone is served");
            }
            let authority = request.path.unwrap_or_default();
            let (host, port) = authority.rsplit_once(':').context("no port in the authority")?;
            return Ok(Some((host.to_ascii_lowercase(), port.parse()?)));
        }
    }
    bail!("the head is longer than {MAX_HEAD_BYTES} bytes")
}

const FORBIDDEN: &[u8] =
    b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const MAX_HEAD_BYTES: usize = 4096;
