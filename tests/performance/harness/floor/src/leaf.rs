//! Leaves for hosts: made when a host is first seen, all with one key.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{Result, anyhow};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::ProducesTickets;
use time::{Duration, OffsetDateTime};

pub(crate) struct LeafMaker {
    issuer: Issuer<'static, KeyPair>,
    key: KeyPair,
    provider: Arc<CryptoProvider>,
    ticketer: Arc<dyn ProducesTickets>,
    made: RwLock<HashMap<String, Arc<ServerConfig>>>,
}

impl LeafMaker {
    pub(crate) fn read(ca: &Path, ca_key: &Path, provider: Arc<CryptoProvider>) -> Result<Self> {
        let key = KeyPair::from_pem(&fs::read_to_string(ca_key)?)?;
        Ok(Self {
            issuer: Issuer::from_ca_cert_pem(&fs::read_to_string(ca)?, key)?,
            key: KeyPair::generate()?,
            provider,
            ticketer: Ticketer::new()?,
            made: RwLock::default(),
        })
    }

    /// How TLS is served for `host`.
    pub(crate) fn config(&self, host: &str) -> Result<Arc<ServerConfig>> {
        if let Some(made) = self.made.read().unwrap_or_else(PoisonError::into_inner).get(host) {
            return Ok(Arc::clone(made));
        }
        let config = Arc::new(self.make(host)?);
        let mut made = self.made.write().unwrap_or_else(PoisonError::into_inner);
        made.insert(host.to_owned(), Arc::clone(&config));
        Ok(config)
    }

    fn make(&self, host: &str) -> Result<ServerConfig> {
        let mut params = CertificateParams::new(vec![host.to_owned()])?;
        let now = OffsetDateTime::now_utc();
        params.not_before = now - Duration::days(1);
        params.not_after = now + Duration::days(30);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let leaf = params.signed_by(&self.key, &self.issuer)?;
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).map_err(|err| anyhow!(err))?;
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.ticketer = Arc::clone(&self.ticketer);
        config.send_tls13_tickets = 1;
        Ok(config)
    }
}
