//! Whom the gateway believes in a test, and upstreams it must not believe.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// An authority for the scripted upstreams' certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// What an upstream's certificate looks like.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Certificate {
    Expired,
    /// Signed by an authority that nobody trusts.
    ForeignAuthority,
    NotYetValid,
    OtherName(String),
    SelfSigned,
    #[default]
    Trusted,
}

impl Authority {
    pub fn new() -> Self {
        Self::named("Sluice test upstreams")
    }

    fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// What goes into the gateway's `upstream.roots`.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for `name` and its key, for servers that are other programs.
    pub fn pem_pair(&self, name: &str) -> (String, String) {
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.issuer).unwrap();
        (leaf.pem(), key.serialize_pem())
    }

    /// A server's side of TLS as `name`.
    pub fn serving(
        &self,
        name: &str,
        certificate: &Certificate,
        alpn: &[&str],
    ) -> Arc<ServerConfig> {
        let named = match certificate {
            Certificate::OtherName(other) => other,
            _ => name,
        };
        let mut params = CertificateParams::new(vec![named.to_owned()]).unwrap();
        match certificate {
            Certificate::Expired => {
                params.not_before = date_time_ymd(2020, 1, 1);
                params.not_after = date_time_ymd(2021, 1, 1);
            }
            Certificate::NotYetValid => params.not_before = date_time_ymd(2999, 1, 1),
            _ => {}
        }
        let key = KeyPair::generate().unwrap();
        let leaf = match certificate {
            Certificate::SelfSigned => params.self_signed(&key),
            Certificate::ForeignAuthority => params.signed_by(&key, &Self::named("else").issuer),
            _ => params.signed_by(&key, &self.issuer),
        };
        serving(leaf.unwrap().der().clone(), &key, alpn)
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

fn serving(
    certificate: CertificateDer<'static>,
    key: &KeyPair,
    alpn: &[&str],
) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Arc::new(config)
}
