//! TLS towards the sandbox: which leaf is shown, and how sessions resume.
//!
//! The gateway knows the host that policy admitted before it answers a
//! ClientHello, so the leaf is chosen by that host and never by what the client
//! says. A configuration made from nothing for each connection would do it, and
//! would never resume a session: the ticket key has to be shared. So there is
//! one template, and a connection gets a copy (a dozen counted
//! pointers) in which the
//! protocols, the leaf and the host of the tickets are filled in.

use std::fmt;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::{ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};

use crate::certificate_authority::CertificateAuthority;
use crate::leaf_cache::LeafCache;
use crate::mint::{Mint, MintError};
use crate::subject::Subject;
use crate::tickets::HostTickets;
use crate::{has_aes, provider};

/// What is negotiated above TLS.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Alpn {
    /// `h2`, else `http/1.1`.
    H2OrHttp1,
    /// `http/1.1` alone.
    Http1,
    /// Nothing is negotiated: the client may offer what it likes.
    None,
}

impl Alpn {
    pub(crate) fn protocols(self) -> Vec<Vec<u8>> {
        match self {
            Self::H2OrHttp1 => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Self::Http1 => vec![b"http/1.1".to_vec()],
            Self::None => Vec::new(),
        }
    }
}

/// The TLS side that one sandbox sees.
pub struct Serving {
    leaves: LeafCache,
    tickets: Arc<dyn ProducesTickets>,
    template: ServerConfig,
}

impl Serving {
    /// Sets up everything that the connections of one authority share.
    pub fn new(authority: Arc<CertificateAuthority>) -> Result<Self, MintError> {
        // Never shared with another authority: a ticket of one sandbox must mean
        // nothing to the gateway of the next.
        let tickets = Ticketer::new().map_err(MintError::Tickets)?;
        Ok(Self {
            leaves: LeafCache::new(Mint::new(authority)?),
            tickets,
            template: template(provider())?,
        })
    }

    pub fn authority(&self) -> &Arc<CertificateAuthority> {
        self.leaves.mint().authority()
    }

    pub fn leaves(&self) -> &LeafCache {
        &self.leaves
    }

    /// The configuration for one connection to `subject`.
    ///
    /// Whatever name the client sends, the leaf is `subject`'s. Refusing a name
    /// that differs is the caller's business: only it knows what to answer.
    pub fn config(&self, subject: &Subject, alpn: Alpn) -> Result<Arc<ServerConfig>, MintError> {
        let mut config = self.template.clone();
        config.alpn_protocols = alpn.protocols();
        config.cert_resolver = Arc::new(OneLeaf(self.leaves.leaf(subject)?));
        config.ticketer = Arc::new(HostTickets::new(Arc::clone(&self.tickets), subject));
        Ok(Arc::new(config))
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").field("leaves", &self.leaves).finish_non_exhaustive()
    }
}

/// Presents one leaf to whoever asks.
#[derive(Debug)]
struct OneLeaf(Arc<CertifiedKey>);

impl ResolvesServerCert for OneLeaf {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// Presents nothing: a template that was not filled in fails its handshake.
#[derive(Debug)]
struct NoLeaf;

impl ResolvesServerCert for NoLeaf {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

fn template(provider: Arc<CryptoProvider>) -> Result<ServerConfig, MintError> {
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(MintError::Unbuildable)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(NoLeaf));
    // Tickets are the client's memory, not ours: nothing to bound, nothing to
    // evict. One per handshake keeps a client resuming; a second is only bytes.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 1;
    // The client is on this machine, so what is fast for us is fast for it.
    config.ignore_client_order = has_aes();
    Ok(config)
}

#[cfg(test)]
mod tests;
