//! Step 8 of 10: connect to the upstream, safely.
//!
//! Comes after the request was authorized and before bytes are relayed. Only
//! this folder looks up names and opens outbound sockets, and it does neither
//! without a permit.
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

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use certs::Alpn;
use hickory_resolver::net::NetError;
use policies::{Destination, Host, HostName, Reach, Scheme};
use tokio::net::TcpStream;
use tokio::time::{self, Instant};
use tokio_rustls::client::TlsStream;

pub(crate) use error::DialError;
pub(crate) use facts::{TlsFacts, UpstreamFacts};
pub(crate) use http1::Http1Upstream;
pub(crate) use http2::Http2Upstream;
pub(crate) use settings::{
    Credentials, Pin, PinError, PoolSizes, Servers, Settings, Timeouts, UpstreamProxy,
};
pub(crate) use stream::UpstreamStream;
pub(crate) use tls::Distrust;

use crate::admit::HostPermit;
use crate::authorize::RequestPermit;
use http2::Negotiated;
use pool::{Idle, Place, Pool};
use resolve::{Dns, ResolveError, Resolver};
use route::Dialable;
use speaks::Speaks;
use upstream_proxy::ProxyError;

/// Connects to upstreams, and keeps connections for the next request.
#[derive(Debug)]
pub(crate) struct Dialer {
    settings: Settings,
    upstream: certs::Upstream,
    resolver: Arc<dyn Resolver>,
    pool: Arc<Pool>,
    shared: Arc<http2::Shared>,
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
            pool: Pool::new(settings.pool),
            shared: http2::Shared::new(settings.pool),
            speaks: Arc::new(Speaks::new()),
            settings,
        })
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

    /// Lets go of connections and memories about destinations that a new policy
    /// no longer knows.
    pub(crate) fn forget(&self, keep: impl Fn(&Destination) -> bool) {
        self.pool.forget(&keep);
        self.shared.forget(&keep);
    }
}

/// Why no dialer could be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialerError {
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
        match self.pool.take(reach, &place) {
            Some(kept) => Ok(Http1Upstream::new(place, kept, Arc::clone(&self.pool))),
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
        Ok(Http1Upstream::new(place, connection, Arc::clone(&self.pool)))
    }

    async fn http2_within(
        &self,
        reach: &Reach,
        to: &Destination,
    ) -> Result<Http2Upstream, DialError> {
        check_literal(reach, to)?;
        let connections = self.shared.with(to);
        if let Some(place) = connections.join(reach, self.settings.pool) {
            return Ok(place);
        }
        // The wait for whoever connects before us counts, too: a dead upstream
        // must not keep sixty-four requests waiting in a row.
        let limit = self.settings.timeouts.total();
        let connected = time::timeout(limit, async {
            let _turn = connections.opening.lock().await;
            match connections.join(reach, self.settings.pool) {
                Some(place) => Ok(place),
                None => self.start_http2(reach, to).await,
            }
        });
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
            self.pool.put(place, Idle::new(UpstreamStream::Tls(Box::new(stream)), at, facts));
            return Err(DialError::NotHttp2 { to: to.clone() });
        }
        let negotiated = Negotiated { stream, at, facts };
        http2::start(&self.shared, &self.speaks, to, negotiated).await.map_err(|source| {
            DialError::Handshake { to: to.clone(), source: io::Error::other(source) }
        })
    }

    /// Connects and speaks TLS.
    async fn secure(
        &self,
        reach: &Reach,
        to: &Destination,
        alpn: Alpn,
    ) -> Result<Secured, DialError> {
        let Opened { stream, at, mut facts } = self.open(reach, to).await?;
        let began = Instant::now();
        let handshake = tls::handshake(self.upstream.config(alpn), to, stream);
        let (stream, tls) = self.in_time(self.settings.timeouts.handshake, to, handshake).await?;
        facts.handshake += began.elapsed();
        facts.tls = Some(tls);
        Ok(Secured { stream, at, facts })
    }

    /// Resolves, checks, connects: the way of every connection there is.
    async fn open(&self, reach: &Reach, to: &Destination) -> Result<Opened, DialError> {
        let timeouts = self.settings.timeouts;
        let began = Instant::now();
        let way = self.in_time(timeouts.resolve, to, self.way(reach, to)).await?;
        let resolve = began.elapsed();

        let began = Instant::now();
        let connecting = async {
            connect::first_of(&way.addresses).await.map_err(|source| way.cannot_connect(to, source))
        };
        let (mut stream, at) = self.in_time(timeouts.connect, to, connecting).await?;
        let connect = began.elapsed();

        let began = Instant::now();
        if let Some(proxy) = way.through {
            let asking = async {
                upstream_proxy::connect(proxy, to, &mut stream)
                    .await
                    .map_err(|source| DialError::UpstreamProxy { to: to.clone(), source })
            };
            self.in_time(timeouts.handshake, to, asking).await?;
        }
        let facts = UpstreamFacts {
            address: at.get(),
            proxied: at.is_proxy(),
            tls: None,
            reused: false,
            resolve,
            connect,
            handshake: began.elapsed(),
        };
        Ok(Opened { stream, at, facts })
    }

    /// Where `to` is reached: at its own addresses, each of them checked, at the
    /// pin, or through the proxy.
    async fn way(&self, reach: &Reach, to: &Destination) -> Result<Way<'_>, DialError> {
        check_literal(reach, to)?;
        if let Host::Name(name) = &to.host
            && let Some(pin) = self.settings.hosts.get(name)
        {
            return Ok(Way { addresses: vec![Dialable::pinned(*pin, to.port)], through: None });
        }
        if let Some(proxy) = &self.settings.proxy {
            let addresses = self
                .proxy_addresses(&proxy.at)
                .await
                .map_err(|source| DialError::UpstreamProxy { to: to.clone(), source })?;
            return Ok(Way { addresses, through: Some(proxy) });
        }
        let answers = match &to.host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => self
                .resolve(name)
                .await
                .map_err(|source| DialError::Resolve { to: to.clone(), source })?,
        };
        match route::check_each(reach, &answers, to.port) {
            Ok(addresses) => Ok(Way { addresses, through: None }),
            Err(Some(first)) => Err(DialError::Forbidden { to: to.clone(), first }),
            Err(None) => {
                Err(DialError::Resolve { to: to.clone(), source: ResolveError::NoAddress })
            }
        }
    }

    async fn proxy_addresses(&self, proxy: &Destination) -> Result<Vec<Dialable>, ProxyError> {
        let (answers, port) = match &proxy.host {
            Host::Address(address) => (vec![*address], proxy.port),
            Host::Name(name) => match self.settings.hosts.get(name) {
                Some(pin) => {
                    let at = pin.address(proxy.port);
                    (vec![at.ip()], at.port())
                }
                None => (self.resolve(name).await.map_err(ProxyError::Unresolved)?, proxy.port),
            },
        };
        let addresses = route::of_proxy(&answers, port);
        if addresses.is_empty() { Err(ProxyError::Forbidden) } else { Ok(addresses) }
    }

    async fn resolve(&self, name: &HostName) -> Result<Vec<IpAddr>, ResolveError> {
        let mut answers = self.resolver.resolve(name).await?;
        answers.truncate(resolve::MOST_ADDRESSES);
        Ok(answers)
    }

    async fn in_time<T>(
        &self,
        limit: Duration,
        to: &Destination,
        step: impl Future<Output = Result<T, DialError>>,
    ) -> Result<T, DialError> {
        match time::timeout(limit, step).await {
            Ok(done) => done,
            Err(_) => Err(DialError::Timeout { to: to.clone(), limit }),
        }
    }
}

/// A literal is its own answer, and it is checked first of all: before a kept
/// connection is looked for, and before a proxy is asked to go there for us.
fn check_literal(reach: &Reach, to: &Destination) -> Result<(), DialError> {
    let Host::Address(address) = &to.host else { return Ok(()) };
    match reach.check(SocketAddr::new(*address, to.port)) {
        Ok(_) => Ok(()),
        Err(first) => Err(DialError::Forbidden { to: to.clone(), first }),
    }
}

/// Addresses that may be dialled, and whether a proxy is what answers there.
struct Way<'d> {
    addresses: Vec<Dialable>,
    through: Option<&'d UpstreamProxy>,
}

impl Way<'_> {
    fn cannot_connect(&self, to: &Destination, source: io::Error) -> DialError {
        let to = to.clone();
        match self.through {
            None => DialError::Connect { to, source },
            Some(_) => DialError::UpstreamProxy { to, source: ProxyError::Io(source) },
        }
    }
}

/// Connected, and nothing said yet.
struct Opened {
    stream: TcpStream,
    at: Dialable,
    facts: UpstreamFacts,
}

/// Connected, and the other end has proven its name.
struct Secured {
    stream: TlsStream<TcpStream>,
    at: Dialable,
    facts: UpstreamFacts,
}
