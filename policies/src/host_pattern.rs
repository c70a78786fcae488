//! Host patterns: the `host` of a rule.
//!
//! A pattern is a name, a name with whole labels left open at its front, or an
//! address. There is nothing else to write: every other use of `*` is one that
//! matches more than its author pictured (`*github.com` takes in
//! `evilgithub.com`), and is refused with what to write instead.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Serialize, Serializer};

use crate::address_class::AddressClass;
use crate::authority::Host;
use crate::from_text::from_text;
use crate::host::{HostFault, HostName};
use crate::quoted_input::QuotedInput;

/// Which hosts a rule is about.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum HostPattern {
    Address(IpAddr),
    Exact(HostName),
    /// One or more whole labels before this name, which is not itself included.
    Wildcard(HostName),
}

impl HostPattern {
    /// Whether one of `others` matches every host that this matches.
    pub fn is_among(&self, others: &[HostPattern]) -> bool {
        others.iter().any(|wider| covers(wider, self))
    }

    /// Reads a pattern as a policy author wrote it.
    ///
    /// ```
    /// use policies::{Host, HostPattern};
    ///
    /// let pattern = HostPattern::parse("*.GitHub.com")?;
    /// assert!(pattern.matches(&Host::parse("api.github.com").unwrap()));
    /// assert!(!pattern.matches(&Host::parse("github.com").unwrap()));
    ///
    /// let err = HostPattern::parse("*github.com").unwrap_err();
    /// assert_eq!(
    ///     err.to_string(),
    ///     "`*github.com` is not a host pattern: `*` stands for whole labels; \
    ///      write `*.github.com`, and `github.com` beside it if that is meant too",
    /// );
    /// # Ok::<(), policies::PatternError>(())
    /// ```
    pub fn parse(written: &str) -> Result<Self, PatternError> {
        read(written).map_err(|why| PatternError { written: QuotedInput::of(written), why })
    }

    pub fn matches(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Address(pattern), Host::Address(address)) => pattern == address,
            (Self::Exact(pattern), Host::Name(name)) => pattern == name,
            (Self::Wildcard(suffix), Host::Name(name)) => {
                name.parents().any(|parent| parent == suffix.as_str())
            }
            (Self::Address(_), Host::Name(_))
            | (Self::Exact(_) | Self::Wildcard(_), Host::Address(_)) => false,
        }
    }

    /// The name after `*.`, if this is a wildcard.
    pub fn suffix(&self) -> Option<&HostName> {
        match self {
            Self::Address(_) | Self::Exact(_) => None,
            Self::Wildcard(suffix) => Some(suffix),
        }
    }

    /// Whether this is a wildcard over names that anyone can register, such as
    /// `*.github.io`: whoever wants to be matched opens an account there.
    pub fn is_shared_suffix(&self) -> bool {
        self.suffix().is_some_and(|name| public_suffix(name) == Some(psl::Type::Private))
    }

    /// The class of addresses that makes a rule with this pattern useless, if one does.
    pub fn never_dialled(&self) -> Option<AddressClass> {
        match self {
            Self::Address(address) => {
                Some(AddressClass::of(*address)).filter(|class| class.is_never_dialled())
            }
            Self::Exact(name) | Self::Wildcard(name) => {
                name.is_loopback().then_some(AddressClass::Loopback)
            }
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{}", Host::Address(*address)),
            Self::Exact(name) => write!(f, "{name}"),
            Self::Wildcard(suffix) => write!(f, "*.{suffix}"),
        }
    }
}

impl Serialize for HostPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

from_text!(
    HostPattern,
    "HostPattern",
    "A host name, `*.` and a host name for every name below it, or an address.",
    pattern = "^([*][.])?[^*/@\\s]+$"
);

/// Text that is no host pattern, and what to write instead.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{written}` is not a host pattern: {why}")]
pub struct PatternError {
    written: QuotedInput,
    why: PatternFault,
}

impl PatternError {
    pub fn fault(&self) -> &PatternFault {
        &self.why
    }
}

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternFault {
    #[error("an IPv4 address has one spelling here; write `{0}`")]
    Address(Ipv4Addr),
    #[error("it would match every host; name the ones that are meant")]
    Everything,
    #[error("{0}")]
    Host(HostFault),
    #[error("it starts with a dot; write `*.{0}`, and `{0}` beside it if that is meant too")]
    LeadingDot(HostName),
    #[error("`*` stands for whole labels; write `*.{0}`, and `{0}` beside it if that is meant too")]
    PartOfLabel(HostName),
    #[error("a path does not belong here; write `paths:` beside `host: {0}`")]
    Path(String),
    #[error("a port does not belong here; write `port: {1}` beside `host: {0}`")]
    Port(String, u16),
    #[error("`{0}` is a public suffix, under which names belong to anyone; write `*.name.{0}`")]
    PublicSuffix(HostName),
    #[error("a range does not belong here; write a host, and `addresses: [{0}]` beside it")]
    Range(IpNet),
    #[error("a scheme does not belong here; write the host alone, such as `example.com`")]
    Scheme,
    #[error("a user name does not belong here; write the host alone, such as `example.com`")]
    UserInfo,
    #[error("`*` cannot stand before an address; write a host, and `addresses:` beside it")]
    WildcardAddress,
    #[error("`*` can only be the whole of the first label, as in `*.example.com`")]
    WildcardPlace,
}

fn read(written: &str) -> Result<HostPattern, PatternFault> {
    if let Some(fault) = misplaced(written) {
        return Err(fault);
    }
    if written.contains('*') {
        return wildcard(written);
    }
    // In a policy nothing follows an address, so brackets may be left out.
    let host = match written.parse::<Ipv6Addr>() {
        Ok(address) => Ok(Host::from(IpAddr::V6(address))),
        Err(_) => Host::parse(written),
    };
    match host {
        Ok(Host::Name(name)) => Ok(HostPattern::Exact(name)),
        // `0x7f.1` is somebody's mistake or somebody's trick.
        Ok(Host::Address(IpAddr::V4(address))) if address.to_string() != written => {
            Err(PatternFault::Address(address))
        }
        Ok(Host::Address(address)) => Ok(HostPattern::Address(address)),
        Err(err) => Err(match written.strip_prefix('.').map(HostName::parse) {
            Some(Ok(name)) => PatternFault::LeadingDot(name),
            Some(Err(_)) | None => PatternFault::Host(err.fault()),
        }),
    }
}

fn wildcard(written: &str) -> Result<HostPattern, PatternFault> {
    if written.bytes().all(|b| matches!(b, b'*' | b'.')) {
        return Err(PatternFault::Everything);
    }
    let Some(suffix) = written.strip_prefix("*.") else {
        // `*example.com` and `foo*.example.com` have an obvious cure.
        let after = written.rsplit('*').next().unwrap_or_default();
        let meant = HostName::parse(after.trim_start_matches('.'));
        return Err(match meant {
            Ok(name) if name.as_str().contains('.') && !written.contains(".*.") => {
                PatternFault::PartOfLabel(name)
            }
            Ok(_) | Err(_) => PatternFault::WildcardPlace,
        });
    };
    if suffix.contains('*') {
        return Err(PatternFault::WildcardPlace);
    }
    let suffix = match HostName::parse(suffix) {
        Ok(suffix) => suffix,
        Err(err) if err.fault() == HostFault::Address => {
            return Err(PatternFault::WildcardAddress);
        }
        Err(err) => return Err(PatternFault::Host(err.fault())),
    };
    // A single label is a top-level domain, whether the list knows it or not.
    let is_top = !suffix.as_str().contains('.');
    if is_top || public_suffix(&suffix) == Some(psl::Type::Icann) {
        return Err(PatternFault::PublicSuffix(suffix));
    }
    Ok(HostPattern::Wildcard(suffix))
}

/// What people write into a host that belongs elsewhere in the rule.
fn misplaced(written: &str) -> Option<PatternFault> {
    if written.contains("://") {
        return Some(PatternFault::Scheme);
    }
    if written.contains('@') {
        return Some(PatternFault::UserInfo);
    }
    if let Some((host, _)) = written.split_once('/') {
        return Some(match written.parse() {
            Ok(range) => PatternFault::Range(range),
            Err(_) => PatternFault::Path(QuotedInput::of(host).to_string()),
        });
    }
    let (host, port) = written.rsplit_once(':')?;
    let is_whole = !host.contains(':') || host.ends_with(']');
    let port = port.parse().ok().filter(|_| is_whole)?;
    Some(PatternFault::Port(QuotedInput::of(host).to_string(), port))
}

/// Which part of the public suffix list a wildcard on this name falls into.
///
/// The list has wildcards of its own: `*.kawasaki.jp` there means that every
/// name directly below is a suffix, so a name below is asked about as well.
fn public_suffix(name: &HostName) -> Option<psl::Type> {
    let below = format!("a-name-below.{name}");
    [name.as_str(), &below].into_iter().find_map(|name| {
        let suffix = psl::suffix(name.as_bytes())?;
        (suffix.as_bytes() == name.as_bytes()).then(|| suffix.typ()).flatten()
    })
}

/// The patterns in quotes, for a message.
pub(crate) fn listed_hosts(hosts: &[HostPattern]) -> String {
    hosts.iter().map(|host| format!("`{host}`")).collect::<Vec<_>>().join(", ")
}

/// Whether every host of `inner` is one of `outer`.
pub(crate) fn covers(outer: &HostPattern, inner: &HostPattern) -> bool {
    match inner {
        HostPattern::Address(address) => outer.matches(&Host::Address(*address)),
        HostPattern::Exact(name) => outer.matches(&Host::Name(name.clone())),
        HostPattern::Wildcard(suffix) => match outer {
            HostPattern::Wildcard(wider) => {
                wider == suffix || outer.matches(&Host::Name(suffix.clone()))
            }
            HostPattern::Address(_) | HostPattern::Exact(_) => false,
        },
    }
}

#[cfg(test)]
mod tests;
