//! Step 8 of 10: connect to the upstream, safely.
//!
//! Comes after the request was authorized and before bytes are relayed; with one
//! exception, see [`crate::terminate`]: to know what to offer a client that speaks
//! HTTP/2, the upstream's protocol is learned before there is a request, under the
//! permit for the host. Only this folder looks up names and opens outbound
//! sockets, and it does neither without a permit.
//!
//! Resolve once, check each answer against the permit's reach, dial one that
//! passed. The order matters: checking a name and then dialling it by name
//! leaves a gap in which DNS may change its mind. So from the answer on there is
//! no name any more, only [`route::Dialable`] addresses, until TLS asks the
//! other end to prove the name.
//!
//! Two exceptions, both the operator's own words from outside the sandbox: a
//! name may be pinned to an address, and everything may go through a proxy.

mod capabilities;
mod connect;
mod distrust;
mod error;
mod establish;
mod facts;
mod http1;
mod http2;
mod pool;
mod resolve;
mod route;
mod settings;
mod stream;
mod tls;
mod upstream_proxy;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use certs::Alpn;
use hickory_resolver::net::NetError;
use policies::{Destination, Reach, Scheme};
use tokio::net::TcpStream;
use tokio::time;

use crate::admit::HostPermit;
use crate::authorize::RequestPermit;
use crate::per_worker::PerWorker;
use capabilities::UpstreamCapabilities;
pub(crate) use error::DialError;
use establish::{Dialled, check_literal};
pub(crate) use facts::UpstreamFacts;
pub(crate) use http1::Http1Upstream;
pub(crate) use http2::Http2Upstream;
use pool::{IdleConnection, Pool, PoolKey};
use resolve::{DnsResolver, Resolver};
pub(crate) use settings::{
    Credentials, NameServers, Pin, Pins, Timeouts, UpstreamProxy, UpstreamSettings,
};
pub(crate) use stream::UpstreamStream;
pub(crate) use tls::{tls_cipher, tls_version};

/// A permit of one of the two policy steps. Either is enough to connect; to send a
/// request takes a [`RequestPermit`].
#[derive(Clone, Copy)]
pub(crate) enum Permit<'p> {
    Host(&'p HostPermit),
    Request(&'p RequestPermit),
}

impl<'p> Permit<'p> {
    /// Which addresses may be dialled.
    fn reach(self) -> &'p Reach {
        match self {
            Self::Host(permit) => permit.reach(),
            Self::Request(permit) => permit.reach(),
        }
    }
}

/// Connects to upstreams, and keeps connections for the next request.
#[derive(Debug)]
pub(crate) struct Dialer {
    settings: UpstreamSettings,
    upstream: certs::UpstreamTls,
    resolver: Arc<dyn Resolver>,
    pool: PerWorker<Arc<Pool>>,
    shared: PerWorker<Arc<http2::Http2Pool>>,
    capabilities: Arc<UpstreamCapabilities>,
}

impl Dialer {
    /// Reads the roots and sets up the resolver; blocks on files.
    pub(crate) fn new(settings: UpstreamSettings) -> Result<Self, DialerError> {
        let dns = DnsResolver::new(&settings.resolver, settings.timeouts.resolve)?;
        Self::asking(Arc::new(dns), settings)
    }

    fn asking(
        resolver: Arc<dyn Resolver>,
        settings: UpstreamSettings,
    ) -> Result<Self, DialerError> {
        Ok(Self {
            upstream: certs::UpstreamTls::load(&settings.roots)?,
            resolver,
            pool: PerWorker::new(|| Pool::new(settings.pool)),
            shared: PerWorker::new(|| http2::Http2Pool::new(settings.pool)),
            capabilities: Arc::new(UpstreamCapabilities::new()),
            settings,
        })
    }

    /// Whether the upstream speaks HTTP/2, if that is known without connecting.
    pub(crate) fn known_to_speak_h2(&self, to: &Destination) -> Option<bool> {
        self.capabilities.http2(to)
    }

    /// Whether the upstream speaks HTTP/2: from memory, or by connecting now and
    /// keeping the connection.
    pub(crate) async fn speaks_h2(
        &self,
        permit: &HostPermit,
        to: &Destination,
    ) -> Result<bool, DialError> {
        if let Some(known) = self.capabilities.http2(to) {
            return Ok(known);
        }
        match self.http2(Permit::Host(permit), to).await {
            Ok(_) => Ok(true),
            Err(DialError::NotHttp2 { .. }) => Ok(false),
            Err(err) => Err(err),
        }
    }

    /// Whether the upstream takes a WebSocket on an HTTP/2 stream (RFC 8441), as
    /// far as is known.
    pub(crate) fn extended_connect(&self, to: &Destination) -> bool {
        self.capabilities.extended_connect(to) == Some(true)
    }

    /// An HTTP/1.1 connection for one exchange: a kept one if there is one, unless
    /// a `fresh` one is wanted, because a kept one turned out to be dead.
    pub(crate) async fn http1(
        &self,
        permit: &RequestPermit,
        scheme: Scheme,
        to: &Destination,
        fresh: bool,
    ) -> Result<Http1Upstream, DialError> {
        let permit = Permit::Request(permit);
        check_literal(permit, to)?;
        let (pool, key) = (self.pool.here(), PoolKey { scheme, to: to.clone() });
        let kept = if fresh { None } else { pool.take(permit, &key) };
        let connection = match (kept, scheme) {
            (Some(kept), _) => kept,
            (None, Scheme::Http) => {
                let Dialled { stream, at, facts } = self.connect(permit, to).await?;
                IdleConnection::new(UpstreamStream::Plain(stream), at, facts)
            }
            (None, Scheme::Https) => {
                let Dialled { stream, at, facts } =
                    self.connect_tls(permit, to, Alpn::Http1).await?;
                IdleConnection::new(UpstreamStream::Tls(Box::new(stream)), at, facts)
            }
        };
        Ok(Http1Upstream { key, connection, pool: Arc::clone(pool) })
    }

    /// A place on an HTTP/2 connection. To send a request on it takes the
    /// request's own permit.
    pub(crate) async fn http2(
        &self,
        permit: Permit<'_>,
        to: &Destination,
    ) -> Result<Http2Upstream, DialError> {
        check_literal(permit, to)?;
        let connections = self.shared.here().with(to);
        if let Some(place) = connections.join(permit, self.settings.pool) {
            return Ok(place);
        }
        // The wait for another request's connect counts, too: a dead upstream must
        // not keep sixty-four requests waiting in a row.
        let limit = self.settings.timeouts.total();
        // Boxed: it is rare and large, and every stream would carry it.
        let connected = Box::pin(time::timeout(limit, async {
            let _turn = connections.connecting.lock().await;
            match connections.join(permit, self.settings.pool) {
                Some(place) => Ok(place),
                None => self.start_http2(permit, to).await,
            }
        }));
        connected.await.unwrap_or_else(|_| Err(DialError::Timeout { to: to.clone(), limit }))
    }

    async fn start_http2(
        &self,
        permit: Permit<'_>,
        to: &Destination,
    ) -> Result<Http2Upstream, DialError> {
        let dialled = self.connect_tls(permit, to, Alpn::H2OrHttp1).await?;
        let http2 = dialled.facts.tls.as_ref().is_some_and(|tls| tls.alpn == Some("h2"));
        self.capabilities.learn(to, http2);
        if !http2 {
            // It is a good connection all the same, and will be wanted at once.
            let Dialled { stream, at, facts } = dialled;
            let idle = IdleConnection::new(UpstreamStream::Tls(Box::new(stream)), at, facts);
            self.pool.here().put(PoolKey { scheme: Scheme::Https, to: to.clone() }, idle);
            return Err(DialError::NotHttp2 { to: to.clone() });
        }
        http2::start(self.shared.here(), &self.capabilities, to, dialled).await.map_err(|source| {
            DialError::Handshake { to: to.clone(), source: io::Error::other(source) }
        })
    }

    /// A bare connection, for what is relayed unopened.
    pub(crate) async fn tunnel(
        &self,
        permit: &HostPermit,
        to: &Destination,
    ) -> Result<(TcpStream, UpstreamFacts), DialError> {
        let Dialled { stream, facts, .. } = self.connect(Permit::Host(permit), to).await?;
        Ok((stream, facts))
    }

    /// How many bytes of a destination's name have left in a dial that failed: to a
    /// name server, to a proxy, or in the hello of TLS.
    pub(crate) fn name_bytes_sent(&self, failed: &DialError) -> usize {
        let (to, met) = match failed {
            DialError::Connect { to, .. }
            | DialError::Forbidden { to, .. }
            | DialError::Resolve { to, .. } => (to, false),
            DialError::Handshake { to, .. }
            | DialError::Incompatible { to, .. }
            | DialError::NotHttp2 { to }
            | DialError::Timeout { to, .. }
            | DialError::Untrusted { to, .. }
            | DialError::UpstreamProxy { to, .. } => (to, true),
        };
        match &to.host {
            policies::Host::Name(name) if met || self.settings.hosts.find(name).is_none() => {
                name.as_str().len()
            }
            policies::Host::Name(_) | policies::Host::Address(_) => 0,
        }
    }

    /// Lets go of connections to destinations that a new policy
    /// no longer knows.
    pub(crate) fn close_unless(&self, keep: impl Fn(&Destination) -> bool) {
        self.pool.iter().for_each(|pool| pool.close_unless(&keep));
        self.shared.iter().for_each(|shared| shared.close_unless(&keep));
    }
}

/// Why no dialer could be set up.
#[derive(Debug, thiserror::Error)]
pub enum DialerError {
    #[error("cannot tell which name servers to ask")]
    Resolver(#[from] NetError),
    #[error("cannot tell which upstreams to trust")]
    Roots(#[from] certs::RootsError),
}
