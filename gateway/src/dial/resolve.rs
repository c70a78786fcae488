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

use super::settings::Servers;

/// Answers with the addresses of a name, in the order they should be tried.
pub(crate) trait Resolver: fmt::Debug + Send + Sync {
    fn resolve<'a>(&'a self, name: &'a HostName) -> Answer<'a>;
}

pub(crate) type Answer<'a> =
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
pub(crate) struct Dns(TokioResolver);

impl Dns {
    pub(crate) fn new(servers: &Servers, limit: Duration) -> Result<Self, NetError> {
        let mut builder = match servers {
            Servers::System => TokioResolver::builder_tokio()?,
            Servers::These(addresses) => {
                let servers = addresses.iter().copied().map(name_server).collect();
                let config = ResolverConfig::from_parts(None, Vec::new(), servers);
                TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            }
        };
        let options = builder.options_mut();
        options.use_hosts_file = match servers {
            Servers::System => ResolveHosts::Always,
            Servers::These(_) => ResolveHosts::Never,
        };
        // Both are asked for at once. IPv4 comes first because many networks
        // give a container an IPv6 address and no way out with it.
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.cache_size = CACHED_ANSWERS;
        options.positive_max_ttl = Some(LONGEST_CACHED);
        options.negative_max_ttl = Some(LONGEST_CACHED_FAILURE);
        options.timeout = limit / 2;
        options.attempts = 2;
        Ok(Self(builder.build()?))
    }
}

impl Resolver for Dns {
    fn resolve<'a>(&'a self, name: &'a HostName) -> Answer<'a> {
        Box::pin(async move {
            // The final dot is what keeps the search list out.
            let found = match self.0.lookup_ip(format!("{name}.")).await {
                Ok(found) => found,
                Err(err) if err.is_no_records_found() => return Err(ResolveError::NoAddress),
                Err(err) => return Err(ResolveError::Failed(Box::new(err))),
            };
            let addresses: Vec<IpAddr> = found.iter().take(MOST_ADDRESSES).collect();
            if addresses.is_empty() { Err(ResolveError::NoAddress) } else { Ok(addresses) }
        })
    }
}

impl fmt::Debug for Dns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dns").finish_non_exhaustive()
    }
}

fn name_server(at: SocketAddr) -> NameServerConfig {
    let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = at.port();
    }
    NameServerConfig::new(at.ip(), true, connections)
}

/// A zone may list thousands; nobody tries more than a few.
pub(super) const MOST_ADDRESSES: usize = 16;
const CACHED_ANSWERS: u64 = 1024;
const LONGEST_CACHED: Duration = Duration::from_secs(300);
const LONGEST_CACHED_FAILURE: Duration = Duration::from_secs(10);
