//! From a name to its addresses, asked once.
//!
//! Names reach this file only after policy allowed them, fully qualified: no
//! search list is tried, because what it would ask about is another name. What
//! comes back is untrusted. [`super::Dialer`] checks every address.

use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use policies::HostName;

use super::settings::NameServers;

/// Answers with the addresses of a name, in the order they should be tried.
pub(crate) trait Resolver: fmt::Debug + Send + Sync {
    fn resolve<'a>(&'a self, name: &'a HostName) -> ResolverFuture<'a>;
}

pub(crate) type ResolverFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, ResolveError>> + Send + 'a>>;

/// Why a name has no address.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error("its name servers do not answer")]
    Failed(#[source] Box<NetError>),
    #[error("it has no address")]
    NoAddress,
}

/// DNS, spoken by ourselves.
pub(crate) struct DnsResolver(TokioResolver);

impl DnsResolver {
    pub(crate) fn new(servers: &NameServers, limit: Duration) -> Result<Self, NetError> {
        let mut builder = match servers {
            NameServers::System => TokioResolver::builder_tokio()?,
            NameServers::These(addresses) => {
                let servers = addresses.iter().copied().map(name_server).collect();
                let config = ResolverConfig::from_parts(None, Vec::new(), servers);
                TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            }
        };
        let options = builder.options_mut();
        options.use_hosts_file = match servers {
            NameServers::System => ResolveHosts::Always,
            NameServers::These(_) => ResolveHosts::Never,
        };
        // Both are asked for at once. IPv4 comes first because many networks
        // give a container an IPv6 address and no way out with it.
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.cache_size = MAX_CACHED_ANSWERS;
        options.positive_max_ttl = Some(MAX_CACHE_TTL);
        options.negative_max_ttl = Some(MAX_FAILURE_CACHE_TTL);
        options.timeout = limit / 2;
        options.attempts = 2;
        Ok(Self(builder.build()?))
    }
}

impl Resolver for DnsResolver {
    fn resolve<'a>(&'a self, name: &'a HostName) -> ResolverFuture<'a> {
        Box::pin(async move {
            // The final dot is what keeps the search list out.
            let found = match self.0.lookup_ip(format!("{name}.")).await {
                Ok(found) => found,
                Err(err) if err.is_no_records_found() => return Err(ResolveError::NoAddress),
                Err(err) => return Err(ResolveError::Failed(Box::new(err))),
            };
            let addresses: Vec<IpAddr> = found.iter().take(MAX_ADDRESSES).collect();
            if addresses.is_empty() { Err(ResolveError::NoAddress) } else { Ok(addresses) }
        })
    }
}

impl fmt::Debug for DnsResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DnsResolver").finish_non_exhaustive()
    }
}

fn name_server(at: SocketAddr) -> NameServerConfig {
    let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = at.port();
    }
    NameServerConfig::new(at.ip(), true, connections)
}

/// A zone may list thousands; only a few are tried.
pub(super) const MAX_ADDRESSES: usize = 16;
const MAX_CACHED_ANSWERS: u64 = 1024;
const MAX_CACHE_TTL: Duration = Duration::from_secs(300);
const MAX_FAILURE_CACHE_TTL: Duration = Duration::from_secs(10);
