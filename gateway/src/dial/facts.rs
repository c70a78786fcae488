//! What is known about an upstream connection, for the record.

use std::sync::Arc;
use std::time::Duration;

use audit::{Digest, PeerRecord};

/// How an upstream was reached. Cheap to clone.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct UpstreamFacts {
    /// The address that was dialled: the upstream's, or that of the operator's
    /// proxy.
    pub(crate) address: PeerRecord,
    /// Whether `address` is that of the operator's proxy.
    pub(crate) proxied: bool,
    pub(crate) tls: Option<Arc<TlsFacts>>,
    /// Whether the connection had served another request before. Its times are
    /// then zero: this request did not wait for them.
    pub(crate) reused: bool,
    pub(crate) resolve: Duration,
    pub(crate) connect: Duration,
    pub(crate) handshake: Duration,
}

impl UpstreamFacts {
    pub(super) fn as_reused(&self) -> Self {
        Self {
            reused: true,
            resolve: Duration::ZERO,
            connect: Duration::ZERO,
            handshake: Duration::ZERO,
            ..self.clone()
        }
    }
}

/// TLS as negotiated with the upstream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct TlsFacts {
    pub(crate) version: &'static str,
    pub(crate) cipher: &'static str,
    pub(crate) alpn: Option<&'static str>,
    pub(crate) resumed: bool,
    /// The certificate the upstream showed.
    pub(crate) certificate: Option<Digest>,
}
