//! TLS of client and origin: the same library, suites and key exchange for both.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, anyhow};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, Ticketer, kx_group};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// What a client insists on.
pub(crate) struct ClientTls<'f> {
    /// Files with the CAs that it trusts.
    pub(crate) roots: &'f [PathBuf],
    pub(crate) alpn: &'f str,
    /// May resume sessions; otherwise every handshake is a full one.
    pub(crate) resume: bool,
    /// Offers the hybrid X25519MLKEM768 before X25519.
    pub(crate) post_quantum: bool,
}

impl ClientTls<'_> {
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        for file in self.roots {
            for certificate in read_certificates(file)? {
                roots.add(certificate)?;
            }
        }
        let mut config = ClientConfig::builder_with_provider(provider(self.post_quantum))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![self.alpn.as_bytes().to_vec()];
        config.resumption = match self.resume {
            true => Resumption::in_memory_sessions(4096),
            false => Resumption::disabled(),
        };
        Ok(Arc::new(config))
    }
}

/// The origin's: HTTP/2 if the client can, and sessions that can be resumed.
pub(crate) fn origin_config(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>> {
    let key = PrivateKeyDer::from_pem_file(key).map_err(|err| anyhow!("{}: {err}", key.display()));
    let mut config = ServerConfig::builder_with_provider(provider(false))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(read_certificates(certificate)?, key?)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.ticketer = Ticketer::new()?;
    Ok(Arc::new(config))
}

fn provider(post_quantum: bool) -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = vec![kx_group::X25519, kx_group::SECP256R1];
    if post_quantum {
        provider.kx_groups.insert(0, kx_group::X25519MLKEM768);
    }
    Arc::new(provider)
}

fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|err| anyhow!("{}: {err}", file.display()))
}
