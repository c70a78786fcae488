//! Connections to upstreams, and those that wait for the next client of a thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::buffer::at_once;
use crate::read_ahead::LargeReads;

pub(crate) type UpstreamConnection = TlsStream<LargeReads>;

/// Idle connections of one thread, by host.
#[derive(Default)]
pub(crate) struct Upstreams(RefCell<HashMap<String, Vec<UpstreamConnection>>>);

impl Upstreams {
    /// One on which nothing has come meanwhile: neither the end nor anything unasked.
    pub(crate) async fn take(&self, host: &str) -> Option<UpstreamConnection> {
        loop {
            let mut idle = self.0.borrow_mut().get_mut(host)?.pop()?;
            if at_once(idle.read(&mut [0])).await.is_none() {
                return Some(idle);
            }
        }
    }

    pub(crate) fn keep(&self, host: String, connection: UpstreamConnection) {
        let mut idle = self.0.borrow_mut();
        let idle = idle.entry(host).or_default();
        if idle.len() < MAX_IDLE_PER_HOST {
            idle.push(connection);
        }
    }
}

pub(crate) fn tls_config(roots: &Path, provider: Arc<CryptoProvider>) -> Result<Arc<ClientConfig>> {
    let mut store = RootCertStore::empty();
    for root in CertificateDer::pem_file_iter(roots)? {
        store.add(root?)?;
    }
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(store)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::in_memory_sessions(4096);
    Ok(Arc::new(config))
}

pub(crate) async fn connect(
    host: &str,
    port: u16,
    tls: &Arc<ClientConfig>,
) -> io::Result<UpstreamConnection> {
    #[expect(clippy::disallowed_methods, reason = "a proxy of its own, beside the gateway")]
    let socket = TcpStream::connect((host, port)).await?;
    socket.set_nodelay(true)?;
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(Arc::clone(tls)).connect(name, LargeReads::new(socket)).await
}

const MAX_IDLE_PER_HOST: usize = 64;
