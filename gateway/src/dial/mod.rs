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

mod connect;
mod distrust;
mod error;
mod facts;
mod http1;
mod http2;
mod pool;
mod resolve;
mod route;
mod settings;
mod speaks;
mod stream;
mod tls;
mod upstream_proxy;
mod way;

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

pub(crate) use error::DialError;
pub(crate) use facts::UpstreamFacts;
pub(crate) use http1::Http1Upstream;
pub(crate) use http2::Http2Upstream;
pub(crate) use settings::{Credentials, Pin, Pins, Servers, Settings, Timeouts, UpstreamProxy};
pub(crate) use stream::UpstreamStream;
pub(crate) use tls::cipher_name;

use crate::admit::HostPermit;
use crate::authorize::RequestPermit;
use crate::workers::PerWorker;
use http2::Negotiated;
use pool::{Idle, Place, Pool};
use resolve::{Dns, Resolver};
use speaks::Speaks;
use way::{Opened, Secured, check_literal};

/// Connects to upstreams, and keeps connections for the next request.
#[derive(Debug)]
pub(crate) struct Dialer {
    settings: Settings,
    upstream: certs::Upstream,
    resolver: Arc<dyn Resolver>,
    pool: PerWorker<Arc<Pool>>,
    shared: PerWorker<Arc<http2::Shared>>,
    speaks: Arc<Speaks>,
}

impl Dialer {
    /// Reads the roots and sets up the resolver; blocks on files.
    pub(crate) fn new(settings: Settings) -> Result<Self, DialerError> {
        let dns = Dns::new(&settings.resolver, settings.timeouts.resolve)?;
        Self::asking(Arc::new(dns), settings)
    }

    fn asking(resolver: Arc<dyn Resolver>, settings: Settings) -> Result<Self, DialerError> {
        Ok(Self {
            upstream: certs::Upstream::load(&settings.roots)?,
            resolver,
            pool: PerWorker::new(|| Pool::new(settings.pool)),
            shared: PerWorker::new(|| http2::Shared::new(settings.pool)),
            speaks: Arc::new(Speaks::new()),
            settings,
        })
    }

    /// Whether the upstream speaks HTTP/2, if that is known without connecting.
    pub(crate) fn known_to_speak_h2(&self, to: &Destination) -> Option<bool> {
        self.speaks.http2(to)
    }

    /// Whether the upstream speaks HTTP/2: from memory, or by connecting now and
    /// keeping the connection.
    pub(crate) async fn speaks_h2(
        &self,
        permit: &HostPermit,
        to: &Destination,
    ) -> Result<bool, DialError> {
        self.speaks_h2_within(permit.reach(), to).await
    }

    /// Whether the upstream takes a WebSocket on an HTTP/2 stream (RFC 8441), as
    /// far as is known.
    pub(crate) fn extended_connect(&self, to: &Destination) -> bool {
        self.speaks.extended_connect(to) == Some(true)
    }

    /// An HTTP/1.1 connection for one exchange: a kept one, or a fresh one.
    pub(crate) async fn http1(
        &self,
        permit: &RequestPermit,
        scheme: Scheme,
        to: &Destination,
    ) -> Result<Http1Upstream, DialError> {
        self.http1_within(permit.reach(), scheme, to).await
    }

    /// A connection nobody has used: for trying again after a kept one turned
    /// out to be dead.
    pub(crate) async fn http1_fresh(
        &self,
        permit: &RequestPermit,
        scheme: Scheme,
        to: &Destination,
    ) -> Result<Http1Upstream, DialError> {
        self.http1_fresh_within(permit.reach(), scheme, to).await
    }

    /// A place on an HTTP/2 connection.
    pub(crate) async fn http2(
        &self,
        permit: &RequestPermit,
        to: &Destination,
    ) -> Result<Http2Upstream, DialError> {
        self.http2_within(permit.reach(), to).await
    }

    /// A bare connection, for what is relayed unopened.
    pub(crate) async fn tunnel(
        &self,
        permit: &HostPermit,
        to: &Destination,
    ) -> Result<(TcpStream, UpstreamFacts), DialError> {
        let Opened { stream, facts, .. } = self.open(permit.reach(), to).await?;
        Ok((stream, facts))
    }

    /// How many bytes of a destination's name have left in a dial that failed: to a
    /// name server, to a proxy, or in the hello of TLS.
    pub(crate) fn name_left(&self, failed: &DialError) -> usize {
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
    pub(crate) fn forget(&self, keep: impl Fn(&Destination) -> bool) {
        self.pool.iter().for_each(|pool| pool.forget(&keep));
        self.shared.iter().for_each(|shared| shared.forget(&keep));
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

// The same verbs, once the permit has shown its reach.
impl Dialer {
    async fn speaks_h2_within(&self, reach: &Reach, to: &Destination) -> Result<bool, DialError> {
        if let Some(known) = self.speaks.http2(to) {
            return Ok(known);
        }
        match self.http2_within(reach, to).await {
            Ok(_) => Ok(true),
            Err(DialError::NotHttp2 { .. }) => Ok(false),
            Err(err) => Err(err),
        }
    }

    async fn http1_within(
        &self,
        reach: &Reach,
        scheme: Scheme,
        to: &Destination,
    ) -> Result<Http1Upstream, DialError> {
        check_literal(reach, to)?;
        let place = Place { scheme, to: to.clone() };
        match self.pool.here().take(reach, &place) {
            Some(mut kept) => {
                kept.facts = kept.facts.of_reuse();
                Ok(Http1Upstream::new(place, kept, Arc::clone(self.pool.here())))
            }
            None => self.http1_fresh_within(reach, scheme, to).await,
        }
    }

    async fn http1_fresh_within(
        &self,
        reach: &Reach,
        scheme: Scheme,
        to: &Destination,
    ) -> Result<Http1Upstream, DialError> {
        let connection = match scheme {
            Scheme::Http => {
                let Opened { stream, at, facts } = self.open(reach, to).await?;
                Idle::new(UpstreamStream::Plain(stream), at, facts)
            }
            Scheme::Https => {
                let Secured { stream, at, facts } = self.secure(reach, to, Alpn::Http1).await?;
                Idle::new(UpstreamStream::Tls(Box::new(stream)), at, facts)
            }
        };
        let place = Place { scheme, to: to.clone() };
        Ok(Http1Upstream::new(place, connection, Arc::clone(self.pool.here())))
    }

    async fn http2_within(
        &self,
        reach: &Reach,
        to: &Destination,
    ) -> Result<Http2Upstream, DialError> {
        check_literal(reach, to)?;
        let connections = self.shared.here().with(to);
        if let Some(place) = connections.join(reach, self.settings.pool) {
            return Ok(place);
        }
        // The wait for whoever connects before us counts, too: a dead upstream
        // must not keep sixty-four requests waiting in a row.
        let limit = self.settings.timeouts.total();
        // Boxed: it is rare and large, and every stream would carry it.
        let connected = Box::pin(time::timeout(limit, async {
            let _turn = connections.opening.lock().await;
            match connections.join(reach, self.settings.pool) {
                Some(place) => Ok(place),
                None => self.start_http2(reach, to).await,
            }
        }));
        connected.await.unwrap_or_else(|_| Err(DialError::Timeout { to: to.clone(), limit }))
    }

    async fn start_http2(
        &self,
        reach: &Reach,
        to: &Destination,
    ) -> Result<Http2Upstream, DialError> {
        let Secured { stream, at, facts } = self.secure(reach, to, Alpn::H2OrHttp1).await?;
        let http2 = facts.tls.as_ref().is_some_and(|tls| tls.alpn == Some("h2"));
        self.speaks.learn(to, http2);
        if !http2 {
            // It is a good connection all the same, and will be wanted at once.
            let place = Place { scheme: Scheme::Https, to: to.clone() };
            self.pool
                .here()
                .put(place, Idle::new(UpstreamStream::Tls(Box::new(stream)), at, facts));
            return Err(DialError::NotHttp2 { to: to.clone() });
        }
        let negotiated = Negotiated { stream, at, facts };
        http2::start(self.shared.here(), &self.speaks, to, negotiated).await.map_err(|source| {
            DialError::Handshake { to: to.clone(), source: io::Error::other(source) }
        })
    }
}
