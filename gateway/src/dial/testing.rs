//! Upstreams that do as they are told, for tests: a resolver that remembers
//! every question, an authority, and servers on loopback.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use policies::{AddressClass, Destination, Forbidden, HostName};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::NamedTempFile;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::distrust::{Distrust, Incompatibility};
use super::resolve::{ResolveError, Resolver, ResolverFuture};
use super::upstream_proxy::ProxyError;
use super::{DialError, Dialer, Pin, UpstreamSettings};
use crate::http1_codec::head::HeadFault;

/// A resolver that answers from a script and remembers every question.
///
/// A name with several answers gives them one after the other, and the last one
/// for ever.
#[derive(Debug, Default)]
pub(crate) struct Script {
    answers: Mutex<HashMap<String, VecDeque<Vec<IpAddr>>>>,
    asked: Mutex<Vec<String>>,
}

impl Script {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn then(self: Arc<Self>, name: &str, addresses: &[&str]) -> Arc<Self> {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.answers.lock().entry(name.into()).or_default().push_back(addresses);
        self
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

impl Resolver for Script {
    fn resolve<'a>(&'a self, name: &'a HostName) -> ResolverFuture<'a> {
        self.asked.lock().push(name.to_string());
        let answer = self.answers.lock().get_mut(name.as_str()).and_then(|answers| {
            if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() }
        });
        Box::pin(async move { answer.ok_or(ResolveError::NoAddress) })
    }
}

/// An authority that the dialers made by it trust.
pub(crate) struct TestAuthority {
    issuer: Issuer<'static, KeyPair>,
    roots: NamedTempFile,
}

impl TestAuthority {
    pub(crate) fn new() -> Self {
        Self::named("test authority")
    }

    pub(crate) fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let roots = NamedTempFile::new().unwrap();
        std::fs::write(roots.path(), certificate.pem()).unwrap();
        Self { issuer: Issuer::new(params, key), roots }
    }

    /// Settings that trust this authority and nobody else.
    pub(crate) fn settings(&self) -> UpstreamSettings {
        let files = vec![self.roots.path().to_owned()];
        let roots = certs::Roots { bundled: false, system: false, files };
        UpstreamSettings { roots, ..UpstreamSettings::default() }
    }

    /// A dialer that finds `hosts` on loopback.
    pub(crate) fn dialer(&self, hosts: &[(&str, SocketAddr)]) -> Dialer {
        let mut settings = self.settings();
        for (name, at) in hosts {
            let pin = Pin::new(at.ip(), Some(at.port())).unwrap();
            settings.hosts.add(HostName::parse(name).unwrap(), pin);
        }
        Dialer::asking(Script::new(), settings).unwrap()
    }

    /// A dialer that asks `resolver` for every name.
    pub(crate) fn dialer_asking(&self, resolver: Arc<Script>) -> Dialer {
        Dialer::asking(resolver, self.settings()).unwrap()
    }

    /// A server's side of TLS with a certificate for `name`.
    pub(crate) fn serving(&self, name: &str, alpn: &[&str]) -> Arc<ServerConfig> {
        self.serving_as(CertificateParams::new(vec![name.into()]).unwrap(), alpn)
    }

    pub(crate) fn serving_as(&self, params: CertificateParams, alpn: &[&str]) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        server_config(certificate.der().clone(), &key, alpn)
    }
}

/// A server's side of TLS with a certificate that nobody else signed.
pub(crate) fn self_signed(name: &str) -> Arc<ServerConfig> {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.into()]).unwrap();
    server_config(params.self_signed(&key).unwrap().der().clone(), &key, &[])
}

fn server_config(
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

/// A server on loopback that counts its connections.
pub(crate) struct TestServer {
    pub(crate) at: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl TestServer {
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Serves each TCP connection with `serve`.
    pub(crate) async fn tcp<F, S>(serve: S) -> Self
    where
        S: Fn(TcpStream) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self { at: listener.local_addr().unwrap(), accepted: Arc::default() };
        let accepted = Arc::clone(&server.accepted);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream));
            }
        });
        server
    }

    /// Serves each TLS connection with `serve`; a failed handshake is no news.
    pub(crate) async fn tls<F, S>(config: Arc<ServerConfig>, serve: S) -> Self
    where
        S: Fn(TlsStream<TcpStream>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Self::tcp(move |stream| {
            let (config, serve) = (Arc::clone(&config), serve.clone());
            async move {
                if let Ok(stream) = TlsAcceptor::from(config).accept(stream).await {
                    serve(stream).await;
                }
            }
        })
        .await
    }
}

/// Every way in which no connection is made.
pub(crate) fn one_of_each_failure() -> Vec<DialError> {
    let host = HostName::parse("up.test").unwrap();
    let to = || Destination { host: host.clone().into(), port: 443 };
    let broken = || io::Error::from(io::ErrorKind::ConnectionRefused);
    let first = Forbidden { address: [10, 0, 0, 1].into(), class: AddressClass::Private };
    let all = vec![
        DialError::Connect { to: to(), source: broken() },
        DialError::Forbidden { to: to(), first },
        DialError::Handshake { to: to(), source: broken() },
        DialError::Incompatible { to: to(), reason: Incompatibility::OldVersion },
        DialError::NotHttp2 { to: to() },
        DialError::Resolve { to: to(), source: ResolveError::NoAddress },
        DialError::Timeout { to: to(), limit: Duration::from_secs(1) },
        DialError::Untrusted { to: to(), reason: Distrust::Expired },
        DialError::UpstreamProxy { to: to(), source: ProxyError::NotHttp(HeadFault::FirstLine) },
    ];
    for failure in &all {
        // No `_`: whoever adds a way to fail adds it above.
        match failure {
            DialError::Connect { .. }
            | DialError::Forbidden { .. }
            | DialError::Handshake { .. }
            | DialError::Incompatible { .. }
            | DialError::NotHttp2 { .. }
            | DialError::Resolve { .. }
            | DialError::Timeout { .. }
            | DialError::Untrusted { .. }
            | DialError::UpstreamProxy { .. } => {}
        }
    }
    all
}
