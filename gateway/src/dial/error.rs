//! Why no upstream connection was made.
//!
//! Small and honest: what failed and whose fault it is. What a sandbox is told
//! about it is decided in `refuse.rs`.

use std::io;
use std::time::Duration;

use policies::{Destination, Forbidden};

use super::distrust::{Distrust, Incompatibility};
use super::resolve::ResolveError;
use super::upstream_proxy::ProxyError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("cannot connect to {to}")]
    Connect { to: Destination, source: io::Error },
    /// The fault of the first address. There were others, perhaps, and none that
    /// may be dialled.
    #[error("{to} has no address that may be dialled: {first}")]
    Forbidden { to: Destination, first: Forbidden },
    #[error("{to} broke off the handshake")]
    Handshake { to: Destination, source: io::Error },
    #[error("the TLS of {to} and ours have nothing in common: {reason}")]
    Incompatible { to: Destination, reason: Incompatibility },
    #[error("{to} no longer speaks HTTP/2")]
    NotHttp2 { to: Destination },
    #[error("cannot resolve {to}")]
    Resolve { to: Destination, source: ResolveError },
    #[error("{to} did not answer within {limit:?}")]
    Timeout { to: Destination, limit: Duration },
    #[error("the certificate of {to} is not trusted: {reason}")]
    Untrusted { to: Destination, reason: Distrust },
    #[error("the upstream proxy does not lead to {to}")]
    UpstreamProxy { to: Destination, source: ProxyError },
}

impl DialError {
    /// Stable and documented: agents branch on it.
    pub(crate) fn code(&self) -> &'static str {
        self.status_and_code().1
    }

    /// The HTTP status that says it best.
    pub(crate) fn status(&self) -> u16 {
        self.status_and_code().0
    }

    fn status_and_code(&self) -> (u16, &'static str) {
        match self {
            Self::Connect { .. } | Self::Handshake { .. } | Self::NotHttp2 { .. } => {
                (502, "upstream_unreachable")
            }
            // An agent that sees 502 tries again, and this will not get better.
            Self::Forbidden { .. } => (403, "destination_forbidden"),
            Self::Incompatible { .. } => (502, "upstream_incompatible"),
            Self::Resolve { .. } => (502, "upstream_unresolved"),
            Self::Timeout { .. } => (504, "upstream_timeout"),
            Self::Untrusted { .. } => (502, "upstream_untrusted"),
            Self::UpstreamProxy { .. } => (502, "upstream_proxy_failed"),
        }
    }
}
