//! From a destination to a connection: resolve, check, connect, prove.
//!
//! Every connection of the gateway takes this way, whatever is spoken on it
//! afterwards. Each step has its own deadline.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use certs::Alpn;
use policies::{Destination, Host, HostName};
use tokio::net::TcpStream;
use tokio::time::{self, Instant};

use super::resolve::{self, ResolveError};
use super::route::{self, Dialable};
use super::settings::UpstreamProxy;
use super::stream::Tls;
use super::upstream_proxy::{self, ProxyError};
use super::{DialError, Dialer, Permit, UpstreamFacts, connect, tls};

/// A connection to an upstream: plain, or verified TLS.
pub(super) struct Dialled<S> {
    pub(super) stream: S,
    pub(super) at: Dialable,
    pub(super) facts: UpstreamFacts,
}

/// Addresses that may be dialled, and whether a proxy is what answers there.
#[derive(Debug)]
pub(super) struct Route<'d> {
    pub(super) addresses: Vec<Dialable>,
    pub(super) through: Option<&'d UpstreamProxy>,
}

impl Dialer {
    /// Connects and speaks TLS.
    pub(super) async fn connect_tls(
        &self,
        permit: Permit<'_>,
        to: &Destination,
        alpn: Alpn,
    ) -> Result<Dialled<Tls>, DialError> {
        let Dialled { stream, at, mut facts } = self.connect(permit, to).await?;
        let began = Instant::now();
        let handshake = tls::handshake(self.upstream.config(alpn), to, stream);
        let (stream, tls) = self.in_time(self.settings.timeouts.handshake, to, handshake).await?;
        facts.handshake += began.elapsed();
        facts.tls = Some(tls);
        Ok(Dialled { stream, at, facts })
    }

    /// Resolves, checks, connects: the way of every connection there is.
    pub(super) async fn connect(
        &self,
        permit: Permit<'_>,
        to: &Destination,
    ) -> Result<Dialled<TcpStream>, DialError> {
        let timeouts = self.settings.timeouts;
        let began = Instant::now();
        let route = self.in_time(timeouts.resolve, to, self.route(permit, to)).await?;
        let resolve = began.elapsed();

        let began = Instant::now();
        let connecting = async {
            connect::first_of(&route.addresses)
                .await
                .map_err(|source| route.cannot_connect(to, source))
        };
        let (mut stream, at) = self.in_time(timeouts.connect, to, connecting).await?;
        let connect = began.elapsed();

        let began = Instant::now();
        if let Some(proxy) = route.through {
            let asking = async {
                upstream_proxy::connect(proxy, to, &mut stream)
                    .await
                    .map_err(|source| DialError::UpstreamProxy { to: to.clone(), source })
            };
            self.in_time(timeouts.handshake, to, asking).await?;
        }
        let facts = UpstreamFacts {
            address: at.get().into(),
            proxied: at.is_proxy(),
            tls: None,
            reused: false,
            resolve,
            connect,
            handshake: began.elapsed(),
        };
        Ok(Dialled { stream, at, facts })
    }

    /// Where `to` is reached: at its own addresses, each of them checked, at the
    /// pin, or through the proxy.
    pub(super) async fn route(
        &self,
        permit: Permit<'_>,
        to: &Destination,
    ) -> Result<Route<'_>, DialError> {
        check_literal(permit, to)?;
        if let Host::Name(name) = &to.host
            && let Some(pin) = self.settings.hosts.find(name)
        {
            return Ok(Route { addresses: vec![Dialable::pinned(pin, to.port)], through: None });
        }
        if let Some(proxy) = &self.settings.proxy {
            let addresses = self
                .proxy_addresses(&proxy.at)
                .await
                .map_err(|source| DialError::UpstreamProxy { to: to.clone(), source })?;
            return Ok(Route { addresses, through: Some(proxy) });
        }
        let answers = match &to.host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => self
                .resolve(name)
                .await
                .map_err(|source| DialError::Resolve { to: to.clone(), source })?,
        };
        match route::check_each(permit.reach(), &answers, to.port) {
            Ok(addresses) => Ok(Route { addresses, through: None }),
            Err(Some(first)) => Err(DialError::Forbidden { to: to.clone(), first }),
            Err(None) => {
                Err(DialError::Resolve { to: to.clone(), source: ResolveError::NoAddress })
            }
        }
    }

    async fn proxy_addresses(&self, proxy: &Destination) -> Result<Vec<Dialable>, ProxyError> {
        let (answers, port) = match &proxy.host {
            Host::Address(address) => (vec![*address], proxy.port),
            Host::Name(name) => match self.settings.hosts.find(name) {
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
        answers.truncate(resolve::MAX_ADDRESSES);
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
pub(super) fn check_literal(permit: Permit<'_>, to: &Destination) -> Result<(), DialError> {
    let Host::Address(address) = &to.host else { return Ok(()) };
    match permit.reach().check(SocketAddr::new(*address, to.port)) {
        Ok(_) => Ok(()),
        Err(first) => Err(DialError::Forbidden { to: to.clone(), first }),
    }
}

impl Route<'_> {
    fn cannot_connect(&self, to: &Destination, source: io::Error) -> DialError {
        let to = to.clone();
        match self.through {
            None => DialError::Connect { to, source },
            Some(_) => DialError::UpstreamProxy { to, source: ProxyError::Io(source) },
        }
    }
}
