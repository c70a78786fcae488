//! The operator's settings for upstream connections.
//!
//! Holds nothing that still needs checking: names are names, a [`Pin`] is not a
//! metadata address, credentials are read. The file as written is the business
//! of `config`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use policies::{AddressClass, Destination, HostName};

/// How upstreams are found, reached and trusted.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpstreamSettings {
    pub(crate) roots: certs::Roots,
    pub(crate) resolver: NameServers,
    /// Names that are not looked up, because the operator knows better.
    pub(crate) hosts: Pins,
    pub(crate) proxy: Option<UpstreamProxy>,
    pub(crate) timeouts: Timeouts,
    pub(crate) pool: PoolSizes,
}

/// The name servers that are asked for addresses.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum NameServers {
    /// What this machine's own configuration names.
    #[default]
    System,
    These(Vec<SocketAddr>),
}

/// Where names live that are not looked up: one by one, or all below a name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pins {
    exact: BTreeMap<HostName, Pin>,
    below: BTreeMap<HostName, Pin>,
}

impl Pins {
    pub(crate) fn add(&mut self, name: HostName, pin: Pin) {
        self.exact.insert(name, pin);
    }

    /// Pins every name below `suffix`, but not `suffix` itself.
    pub(crate) fn add_below(&mut self, suffix: HostName, pin: Pin) {
        self.below.insert(suffix, pin);
    }

    /// The names as an operator writes them, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let exact = self.exact.keys().map(ToString::to_string);
        let below = self.below.keys().map(|suffix| format!("*.{suffix}"));
        let mut names: Vec<String> = exact.chain(below).collect();
        names.sort();
        names
    }

    /// Every pin as `NAME=ADDRESS`, as an operator writes it, sorted.
    pub(crate) fn written(&self) -> Vec<String> {
        let exact = self.exact.iter().map(|(name, pin)| format!("{name}={pin}"));
        let below = self.below.iter().map(|(suffix, pin)| format!("*.{suffix}={pin}"));
        let mut written: Vec<String> = exact.chain(below).collect();
        written.sort();
        written
    }

    /// The name's own pin, else that of its nearest parent.
    pub(crate) fn find(&self, name: &HostName) -> Option<Pin> {
        let below = || name.parents().find_map(|parent| self.below.get(parent));
        self.exact.get(name).or_else(below).copied()
    }
}

/// Where an operator says a name lives.
///
/// It may be loopback or private: the operator said so, by name, from outside
/// the sandbox. It is never a metadata address: a name that leads there leads to
/// the machine's credentials.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Pin {
    address: IpAddr,
    port: Option<u16>,
}

impl Pin {
    /// `port`, where given, stands in for the port that was asked for.
    pub(crate) fn new(address: IpAddr, port: Option<u16>) -> Result<Self, PinError> {
        let address = address.to_canonical();
        match AddressClass::of(address) {
            AddressClass::Metadata => Err(PinError { address }),
            AddressClass::Benchmark
            | AddressClass::Broadcast
            | AddressClass::Documentation
            | AddressClass::LinkLocal
            | AddressClass::Loopback
            | AddressClass::Multicast
            | AddressClass::Private
            | AddressClass::Public
            | AddressClass::Reserved
            | AddressClass::SharedNat
            | AddressClass::Unspecified => Ok(Self { address, port }),
        }
    }

    pub(crate) fn address(self, asked: u16) -> SocketAddr {
        SocketAddr::new(self.address, self.port.unwrap_or(asked))
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}", SocketAddr::new(self.address, port)),
            None => write!(f, "{}", self.address),
        }
    }
}

/// A pin to where no name may lead.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{address}` is a metadata address, and no name can be pinned to one")]
pub(crate) struct PinError {
    address: IpAddr,
}

/// A proxy of the operator's through which everything goes.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamProxy {
    pub(crate) at: Destination,
    pub(crate) credentials: Option<Credentials>,
}

/// `user:password` for the operator's proxy. It has no readable `Debug`, so it
/// can stand in a configuration that is printed.
#[derive(Clone)]
pub(crate) struct Credentials(String);

impl Credentials {
    pub(crate) fn new(user_and_password: String) -> Self {
        Self(user_and_password)
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// How long each part of reaching an upstream may take.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Timeouts {
    pub(crate) resolve: Duration,
    /// For all addresses of a name together.
    pub(crate) connect: Duration,
    /// TLS, and the CONNECT of an upstream proxy.
    pub(crate) handshake: Duration,
}

impl Timeouts {
    /// The longest that reaching an upstream can take.
    pub(super) fn total(self) -> Duration {
        self.resolve + self.connect + self.handshake
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            resolve: Duration::from_secs(5),
            connect: Duration::from_secs(10),
            handshake: Duration::from_secs(10),
        }
    }
}

/// How many upstream connections are kept, and for how long.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PoolSizes {
    /// Idle HTTP/1.1 connections kept for one destination.
    pub(crate) idle_per_destination: usize,
    /// Idle HTTP/1.1 connections kept in all.
    pub(crate) idle_total: usize,
    /// How long a connection is kept without use.
    pub(crate) idle_timeout: Duration,
    /// HTTP/2 connections to one destination; a second one is opened when the
    /// first carries as many streams as the upstream lets it.
    pub(crate) http2_per_destination: usize,
    /// Destinations with an HTTP/2 connection.
    pub(crate) http2_destinations: usize,
}

impl Default for PoolSizes {
    fn default() -> Self {
        Self {
            idle_per_destination: 64,
            idle_total: 256,
            // Less than the minute after which most servers hang up.
            idle_timeout: Duration::from_secs(50),
            http2_per_destination: 4,
            http2_destinations: 128,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_may_be_loopback_and_never_metadata() {
        let loopback = Pin::new("127.0.0.1".parse().unwrap(), Some(8443)).unwrap();
        assert_eq!(loopback.address(443), "127.0.0.1:8443".parse().unwrap());

        for address in ["169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254"] {
            let err = Pin::new(address.parse().unwrap(), None).unwrap_err();
            assert!(err.to_string().contains("is a metadata address"), "{address}: {err}");
        }
    }

    #[test]
    fn a_pin_without_port_keeps_the_port_that_was_asked_for() {
        let pin = Pin::new("10.0.0.7".parse().unwrap(), None).unwrap();
        assert_eq!(pin.address(8080), "10.0.0.7:8080".parse().unwrap());
    }

    #[test]
    fn printed_settings_do_not_hold_the_password() {
        let settings = UpstreamSettings {
            proxy: Some(UpstreamProxy {
                at: Destination::parse("proxy.example:3128").unwrap(),
                credentials: Some(Credentials::new("alice:hunter2".into())),
            }),
            ..UpstreamSettings::default()
        };
        let printed = format!("{settings:?}");
        assert!(printed.contains("Credentials(..)") && !printed.contains("hunter2"), "{printed}");
    }
}
