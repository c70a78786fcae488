//! `upstream:`: how upstreams are found, reached and believed.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use policies::{HostName, Problems, Source, Span};
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};

use super::document::FilePath;
use super::proxy::{Env, ProxySection};
use crate::dial::{NameServers, Pin, Pins, Timeouts, UpstreamSettings};

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct UpstreamSection {
    roots: RootsSection,
    resolver: ResolverSection,
    hosts: BTreeMap<PinnedName, WrittenPin>,
    proxy: Option<ProxySection>,
    timeouts: TimeoutsSection,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RootsSection {
    bundled: Option<bool>,
    system: Option<bool>,
    files: Vec<FilePath>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TimeoutsSection {
    resolve: Option<Span>,
    connect: Option<Span>,
    handshake: Option<Span>,
}

impl UpstreamSection {
    /// `env` looks up a variable of ours, for a password that is kept in one.
    pub(super) fn resolve(
        self,
        source: &Source,
        base: &Path,
        env: Env<'_>,
        problems: &mut Problems,
    ) -> UpstreamSettings {
        let Self { roots, resolver, hosts, proxy, timeouts } = self;
        let usual = Timeouts::default();
        UpstreamSettings {
            roots: roots.resolve(base),
            resolver: resolver.0,
            hosts: pins(hosts),
            proxy: proxy.and_then(|proxy| proxy.resolve(source, base, env, problems)),
            timeouts: Timeouts {
                resolve: timeouts.resolve.map_or(usual.resolve, Span::get),
                connect: timeouts.connect.map_or(usual.connect, Span::get),
                handshake: timeouts.handshake.map_or(usual.handshake, Span::get),
            },
            ..UpstreamSettings::default()
        }
    }
}

impl RootsSection {
    fn resolve(self, base: &Path) -> certs::Roots {
        let usual = certs::Roots::default();
        certs::Roots {
            bundled: self.bundled.unwrap_or(usual.bundled),
            system: self.system.unwrap_or(usual.system),
            files: self.files.into_iter().map(|FilePath(path)| base.join(path)).collect(),
        }
    }
}

/// `system`, or the servers to ask.
#[derive(Debug, Default)]
struct ResolverSection(NameServers);

impl<'de> Deserialize<'de> for ResolverSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ResolverVisitor;
        impl<'de> Visitor<'de> for ResolverVisitor {
            type Value = ResolverSection;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`system`, or a list of addresses such as `[192.0.2.53]`")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ResolverSection, E> {
                match text {
                    "system" => Ok(ResolverSection(NameServers::System)),
                    _ => Err(E::custom(format!(
                        "`{text}` is not `system`; write addresses as a list"
                    ))),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<ResolverSection, A::Error> {
                let mut servers = Vec::new();
                while let Some(ServerAddress(server)) = seq.next_element()? {
                    servers.push(server);
                }
                if servers.is_empty() {
                    return Err(serde::de::Error::custom(
                        "without a server no name can be found; write `system` or name one",
                    ));
                }
                Ok(ResolverSection(NameServers::These(servers)))
            }
        }
        deserializer.deserialize_any(ResolverVisitor)
    }
}

#[derive(serde::Deserialize)]
#[serde(try_from = "String")]
struct ServerAddress(SocketAddr);

impl TryFrom<String> for ServerAddress {
    type Error = String;

    fn try_from(written: String) -> Result<Self, Self::Error> {
        match address(&written) {
            Some((ip, port)) => Ok(Self(SocketAddr::new(ip, port.unwrap_or(53)))),
            None => Err(format!("`{written}` is not an address; write one such as `192.0.2.53`")),
        }
    }
}

/// A name, or `*.name` for all below it.
#[derive(Debug, Eq, Ord, PartialEq, PartialOrd, serde::Deserialize)]
#[serde(try_from = "String")]
enum PinnedName {
    Below(HostName),
    Exact(HostName),
}

impl TryFrom<String> for PinnedName {
    type Error = policies::HostError;

    fn try_from(written: String) -> Result<Self, Self::Error> {
        match written.strip_prefix("*.") {
            Some(suffix) => HostName::parse(suffix).map(Self::Below),
            None => HostName::parse(&written).map(Self::Exact),
        }
    }
}

fn pins(written: BTreeMap<PinnedName, WrittenPin>) -> Pins {
    let mut pins = Pins::default();
    for (name, WrittenPin(pin)) in written {
        match name {
            PinnedName::Below(suffix) => pins.add_below(suffix, pin),
            PinnedName::Exact(name) => pins.add(name, pin),
        }
    }
    pins
}

#[derive(Debug, serde::Deserialize)]
#[serde(try_from = "String")]
struct WrittenPin(Pin);

impl TryFrom<String> for WrittenPin {
    type Error = String;

    fn try_from(written: String) -> Result<Self, Self::Error> {
        let (ip, port) = address(&written).ok_or_else(|| {
            format!(
                "`{written}` is not an address; write one such as `127.0.0.1` or `127.0.0.1:8443`"
            )
        })?;
        Pin::new(ip, port).map(Self).map_err(|err| err.to_string())
    }
}

/// An address with or without a port; IPv6 needs brackets only with one.
fn address(written: &str) -> Option<(IpAddr, Option<u16>)> {
    if let Ok(ip) = written.parse() {
        return Some((ip, None));
    }
    let with_port: SocketAddr = written.parse().ok()?;
    (with_port.port() != 0).then(|| (with_port.ip(), Some(with_port.port())))
}
