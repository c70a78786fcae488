//! Where a request says it goes: a host, perhaps with a port.
//!
//! The same destination arrives in many places (CONNECT, an absolute URL, a
//! `Host` header, SNI, SOCKS) and must compare equal in all of them. So every
//! one of them is read here, and an address has one form: `0x7f.1` is
//! `127.0.0.1`, and an IPv4-mapped IPv6 address is the IPv4 address.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use crate::host::{HostError, HostFault, HostName, canonical};
use crate::ipv4_literal;
use crate::quoted_input::QuotedInput;

/// A name or an address literal, as one canonical thing.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Host {
    Address(IpAddr),
    Name(HostName),
}

impl Host {
    /// Reads a host as it stands in a URL: IPv6 addresses in brackets.
    ///
    /// ```
    /// use policies::Host;
    ///
    /// assert_eq!(Host::parse("0x7f.1")?, Host::parse("[::ffff:127.0.0.1]")?);
    /// assert_eq!(Host::parse("Example.COM.")?.to_string(), "example.com");
    ///
    /// let err = Host::parse("::1").unwrap_err();
    /// assert_eq!(
    ///     err.to_string(),
    ///     "`::1` is not a host name: an IPv6 address must stand in brackets, as in `[2001:db8::1]`",
    /// );
    /// # Ok::<(), policies::HostError>(())
    /// ```
    pub fn parse(written: &str) -> Result<Self, HostError> {
        Self::read(written).map_err(|why| HostError::new(QuotedInput::of(written), why))
    }

    /// Reads a host from the wire.
    pub fn parse_bytes(written: &[u8]) -> Result<Self, HostError> {
        match std::str::from_utf8(written) {
            Ok(text) => Self::parse(text),
            Err(_) => Err(HostError::new(QuotedInput::of_bytes(written), HostFault::Encoding)),
        }
    }

    fn read(written: &str) -> Result<Self, HostFault> {
        if let Some(rest) = written.strip_prefix('[') {
            let inner = rest.strip_suffix(']').ok_or(HostFault::Brackets)?;
            if inner.contains('%') {
                return Err(HostFault::Zone);
            }
            return match inner.parse::<Ipv6Addr>() {
                Ok(address) => Ok(Self::from(IpAddr::V6(address))),
                Err(_) => Err(HostFault::Brackets),
            };
        }
        // Without brackets, the last group of `::1:443` could be a port.
        let (before_zone, zone) = written.split_once('%').unwrap_or((written, ""));
        if before_zone.parse::<Ipv6Addr>().is_ok() {
            return Err(if zone.is_empty() { HostFault::Brackets } else { HostFault::Zone });
        }
        let name = canonical(written)?;
        if ipv4_literal::ends_in_number(&name) {
            let address = ipv4_literal::parse_ipv4(&name).ok_or(HostFault::Number)?;
            return Ok(Self::Address(IpAddr::V4(address)));
        }
        Ok(Self::Name(HostName::of_canonical(&name)))
    }
}

impl From<HostName> for Host {
    fn from(name: HostName) -> Self {
        Self::Name(name)
    }
}

/// An IPv4-mapped IPv6 address becomes the IPv4 address: the kernel dials the
/// same machine for both.
impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Name(name) => write!(f, "{name}"),
        }
    }
}

/// What stood in a request: a host and, if it was written, a port.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Authority {
    pub host: Host,
    pub port: Option<u16>,
}

impl Authority {
    /// Reads `host`, `host:port` or `[v6]:port`, and nothing more.
    ///
    /// ```
    /// use policies::Authority;
    ///
    /// let authority = Authority::parse("Example.com:8443")?;
    /// assert_eq!((authority.host.to_string().as_str(), authority.port), ("example.com", Some(8443)));
    ///
    /// let err = Authority::parse("allowed.test@evil.test").unwrap_err();
    /// assert_eq!(
    ///     err.to_string(),
    ///     "`allowed.test@evil.test` is not a destination: \
    ///      a user name cannot stand in it; leave out what is before the `@`",
    /// );
    /// # Ok::<(), policies::AuthorityError>(())
    /// ```
    pub fn parse(written: &str) -> Result<Self, AuthorityError> {
        Self::parse_bytes(written.as_bytes())
    }

    /// Reads an authority from the wire.
    pub fn parse_bytes(written: &[u8]) -> Result<Self, AuthorityError> {
        read(written).map_err(|why| AuthorityError { written: QuotedInput::of_bytes(written), why })
    }

    /// Where this leads when an unwritten port means `default_port`.
    pub fn destination(self, default_port: u16) -> Destination {
        Destination { host: self.host, port: self.port.unwrap_or(default_port) }
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            None => write!(f, "{}", self.host),
            Some(port) => write!(f, "{}:{port}", self.host),
        }
    }
}

/// A host and a port: what policy is asked about and what is dialled.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Destination {
    pub host: Host,
    pub port: u16,
}

impl Destination {
    /// Reads `host:port`, where the port may not be left out (CONNECT).
    pub fn parse(written: &str) -> Result<Self, AuthorityError> {
        Self::parse_bytes(written.as_bytes())
    }

    pub fn parse_bytes(written: &[u8]) -> Result<Self, AuthorityError> {
        let Authority { host, port } = Authority::parse_bytes(written)?;
        match port {
            Some(port) => Ok(Self { host, port }),
            None => Err(AuthorityError {
                written: QuotedInput::of_bytes(written),
                why: AuthorityFault::NoPort,
            }),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Text that names no single destination, and why.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{written}` is not a destination: {why}")]
pub struct AuthorityError {
    written: QuotedInput,
    why: AuthorityFault,
}

impl AuthorityError {
    pub fn fault(&self) -> AuthorityFault {
        self.why
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorityFault {
    #[error("its host is wrong: {0}")]
    Host(HostFault),
    #[error("it has no port; write one, as in `example.com:443`")]
    NoPort,
    #[error("its port is not a number from 1 to 65535")]
    Port,
    #[error("a user name cannot stand in it; leave out what is before the `@`")]
    UserInfo,
}

fn read(written: &[u8]) -> Result<Authority, AuthorityFault> {
    let Ok(text) = std::str::from_utf8(written) else {
        return Err(AuthorityFault::Host(HostFault::Encoding));
    };
    // Looked for first and anywhere: whichever side of it a parser takes for
    // the host, another one takes the other.
    if text.contains('@') {
        return Err(AuthorityFault::UserInfo);
    }
    let (host, port) = split(text)?;
    let host = Host::read(host).map_err(AuthorityFault::Host)?;
    let port = port.map(read_port).transpose()?;
    Ok(Authority { host, port })
}

fn split(text: &str) -> Result<(&str, Option<&str>), AuthorityFault> {
    if text.starts_with('[') {
        let end = text.find(']').ok_or(AuthorityFault::Host(HostFault::Brackets))?;
        let (host, after) = text.split_at(end + 1);
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if after.is_empty() => Ok((host, None)),
            None => Err(AuthorityFault::Port),
        };
    }
    match text.split_once(':') {
        None => Ok((text, None)),
        Some((_, port)) if port.contains(':') => Err(AuthorityFault::Host(HostFault::Brackets)),
        Some((host, port)) => Ok((host, Some(port))),
    }
}

/// Digits only: Rust reads `+443` as a number too, and other parsers do not.
fn read_port(written: &str) -> Result<u16, AuthorityFault> {
    let plain = !written.starts_with('0') && written.bytes().all(|b| b.is_ascii_digit());
    match written.parse() {
        Ok(port) if plain => Ok(port),
        _ => Err(AuthorityFault::Port),
    }
}

#[cfg(test)]
mod tests;
