//! `gateway.yaml` as written.
//!
//! Every value that can be judged alone is judged by its type, so that its
//! problem is reported with its line; what spans several fields is judged when
//! the document is resolved.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use policies::yaml::Spanned;
use policies::{HostPattern, PlainName, Registries, RegistryUrl, Span};
use protocol::settings::Topology;
use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};

use super::Listen;
use super::authority::CaSection;
use super::bounds::LimitsSection;
use super::door::Door;
use super::doors::{CapturedPort, HostDoor, PacketFd, WrittenHost};
use super::upstream::UpstreamSection;

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    // Needed, and still optional here: serde would report only the first that
    // is missing.
    pub(super) run: Option<PlainName>,
    pub(super) policy: Option<FilePath>,
    pub(super) policy_root: Option<FilePath>,
    #[serde(default)]
    pub(super) allow: Vec<HostPattern>,
    pub(super) listen: Option<Spanned<ListenSection>>,
    #[serde(default)]
    pub(super) dns: DnsSection,
    pub(super) control: Option<FilePath>,
    pub(super) audit: Option<FilePath>,
    #[serde(default)]
    pub(super) ca: CaSection,
    pub(super) trust_kit: Option<FilePath>,
    #[serde(default)]
    pub(super) limits: LimitsSection,
    #[serde(default)]
    pub(super) upstream: UpstreamSection,
    pub(super) topology: Option<Topology>,
    #[serde(default)]
    pub(super) observe: bool,
    #[serde(default)]
    pub(super) registries: RegistriesSection,
    #[serde(default)]
    pub(super) origin: OriginSection,
}

/// Who started the run, which the gateway does not know by itself.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct OriginSection {
    user: Option<String>,
    host: Option<String>,
    project: Option<String>,
    backend: Option<String>,
    version: Option<String>,
}

impl OriginSection {
    pub(super) fn resolve(self) -> audit::LogOrigin {
        let Self { user, host, project, backend, version } = self;
        let name = |text: Option<String>| text.map(|text| audit::Name::from(text.as_str()));
        audit::LogOrigin {
            user: name(user),
            host: name(host),
            project: project.map(|text| audit::Text::from(text.as_str())),
            backend: name(backend),
            version: name(version),
        }
    }
}

/// What this machine's package managers are set up to use, for rules that name
/// no registry. The gateway cannot look: it stands elsewhere.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RegistriesSection {
    npm: Vec<RegistryUrl>,
    pip: Vec<RegistryUrl>,
    pip_files: Vec<RegistryUrl>,
}

impl RegistriesSection {
    pub(super) fn resolve(self) -> Registries {
        let Self { npm, pip, pip_files } = self;
        Registries { npm, pip, pip_files }
    }
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ListenSection {
    proxy: Doors,
    socks: Doors,
    http: Doors,
    https: Doors,
    dns: Doors,
    ports: Vec<CapturedPort>,
    tcp: Vec<HostDoor>,
    unanswered: Option<PacketFd>,
}

impl ListenSection {
    pub(super) fn resolve(self) -> Listen {
        Listen {
            proxy: self.proxy.0,
            socks: self.socks.0,
            http: self.http.0,
            https: self.https.0,
            dns: self.dns.0,
            ports: self.ports,
            tcp: self.tcp,
            unanswered: self.unanswered.map(|PacketFd(fd)| fd),
        }
    }
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DnsSection {
    pub(super) answer: Option<AnswerAddress>,
    pub(super) hosts: BTreeMap<WrittenHost, AnswerAddress>,
    pub(super) ttl: Option<Span>,
    pub(super) queries_per_second: Option<AtLeastOne>,
}

#[derive(Clone, Copy, Debug, serde::Deserialize)]
#[serde(try_from = "String")]
pub(super) struct AnswerAddress(pub(super) Ipv4Addr);

impl TryFrom<String> for AnswerAddress {
    type Error = String;

    fn try_from(written: String) -> Result<Self, Self::Error> {
        match written.parse::<Ipv4Addr>() {
            Ok(address) if !address.is_unspecified() => Ok(Self(address)),
            _ => Err(format!(
                "`{written}` cannot be the answer to a name; write the gateway's own IPv4 \
                 address, such as `10.89.0.2`"
            )),
        }
    }
}

/// Zero would mean "never" to one reader and "no limit" to the next.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
#[serde(try_from = "u32")]
pub(super) struct AtLeastOne(pub(super) u32);

impl TryFrom<u32> for AtLeastOne {
    type Error = &'static str;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        if number == 0 { Err("it must be at least 1") } else { Ok(Self(number)) }
    }
}

/// A path that leads somewhere.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(try_from = "String")]
pub(super) struct FilePath(pub(super) PathBuf);

impl TryFrom<String> for FilePath {
    type Error = &'static str;

    fn try_from(written: String) -> Result<Self, Self::Error> {
        if written.is_empty() || written.contains('\0') {
            return Err(
                "an empty path leads nowhere; write a path, relative to this file or whole",
            );
        }
        Ok(Self(written.into()))
    }
}

/// One place to listen, or a list of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Doors(pub(super) Vec<Door>);

impl<'de> Deserialize<'de> for Doors {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DoorsVisitor)
    }
}

struct DoorsVisitor;

impl<'de> Visitor<'de> for DoorsVisitor {
    type Value = Doors;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("where to listen, such as `127.0.0.1:3128` or `fd:3`, or a list of that")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Doors, E> {
        Door::try_from(text.to_owned()).map(|door| Doors(vec![door])).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Doors, A::Error> {
        let mut all = Vec::new();
        while let Some(door) = seq.next_element()? {
            all.push(door);
        }
        if all.is_empty() {
            return Err(A::Error::custom("the list is empty; name at least one, or remove it"));
        }
        Ok(Doors(all))
    }
}
