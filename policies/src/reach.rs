//! Which addresses the gateway may dial for a rule.
//!
//! Public ones, and those in the ranges the rule names under `addresses`. The
//! address that passed is the address that is dialled: a [`DialAddr`] is never
//! resolved again.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Serialize, Serializer};

use crate::address_class::{AddressClass, embedded_readings};
use crate::from_text::from_text;
use crate::quoted_input::QuotedInput;

/// Which addresses a rule's host may resolve to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Reach {
    ranges: Vec<AddressRange>,
}

impl Reach {
    /// Public addresses only.
    pub fn public() -> Self {
        Self::default()
    }

    /// Public addresses and these ranges.
    pub fn with_ranges(ranges: Vec<AddressRange>) -> Self {
        Self { ranges }
    }

    pub fn ranges(&self) -> &[AddressRange] {
        &self.ranges
    }

    /// Proves that an address may be dialled.
    ///
    /// ```
    /// use policies::{AddressRange, Reach};
    ///
    /// let office = Reach::with_ranges(vec![AddressRange::parse("10.0.0.0/8")?]);
    /// assert!(office.check("10.1.2.3:443".parse()?).is_ok());
    ///
    /// let refused = Reach::public().check("10.1.2.3:443".parse()?).unwrap_err();
    /// assert_eq!(
    ///     refused.to_string(),
    ///     "`10.1.2.3` is a private address; a rule reaches it only if its `addresses` name it",
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check(&self, address: SocketAddr) -> Result<DialAddr, Forbidden> {
        // The scope of an IPv6 socket address is dropped with the mapping: it
        // matters to link-local addresses alone, and those are not dialled.
        let ip = address.ip().to_canonical();
        let class = AddressClass::of(ip);
        let named = || !class.is_never_dialled() && self.covers(ip);
        if class == AddressClass::Public || named() {
            Ok(DialAddr(SocketAddr::new(ip, address.port())))
        } else {
            Err(Forbidden { address: ip, class })
        }
    }

    /// A range covers an IPv6 address that carries an IPv4 address when it holds
    /// the carried one, too; all of them, if there is more than one reading.
    fn covers(&self, address: IpAddr) -> bool {
        let named = |address: IpAddr| self.ranges.iter().any(|range| range.holds(address));
        if named(address) {
            return true;
        }
        let IpAddr::V6(address) = address else { return false };
        let mut carried = embedded_readings(address)
            .into_iter()
            .filter(|reading| reading.octets()[0] != 0)
            .peekable();
        carried.peek().is_some() && carried.all(|reading| named(IpAddr::V4(reading)))
    }
}

/// Proof that an address may be dialled. Made only by [`Reach::check`], and the
/// dialer takes nothing else.
///
/// ```compile_fail
/// // Nobody else can.
/// let forged = policies::DialAddr("127.0.0.1:80".parse().unwrap());
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[must_use]
pub struct DialAddr(SocketAddr);

impl DialAddr {
    pub fn get(self) -> SocketAddr {
        self.0
    }
}

/// An address we do not dial, and what it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Forbidden {
    pub address: IpAddr,
    pub class: AddressClass,
}

impl std::error::Error for Forbidden {}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, class } = self;
        write!(f, "`{address}` is a {class} address; ")?;
        if class.is_never_dialled() {
            f.write_str("no rule can reach it")
        } else {
            f.write_str("a rule reaches it only if its `addresses` name it")
        }
    }
}

/// A range of addresses as a rule names it: `10.0.0.0/8`, or a single address.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AddressRange(IpNet);

impl AddressRange {
    /// Reads a range as a policy author wrote it.
    ///
    /// ```
    /// use policies::AddressRange;
    ///
    /// assert_eq!(AddressRange::parse("10.0.0.0/8")?.to_string(), "10.0.0.0/8");
    ///
    /// let err = AddressRange::parse("10.1.2.3/8").unwrap_err();
    /// assert_eq!(
    ///     err.to_string(),
    ///     "`10.1.2.3/8` is not a range of addresses: bits are set after the prefix; write `10.0.0.0/8`",
    /// );
    /// # Ok::<(), policies::RangeError>(())
    /// ```
    pub fn parse(written: &str) -> Result<Self, RangeError> {
        read(written).map_err(|why| RangeError { written: QuotedInput::of(written), why })
    }

    pub fn net(self) -> IpNet {
        self.0
    }

    pub fn holds(self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.prefix_len() == self.0.max_prefix_len() {
            write!(f, "{}", self.0.addr())
        } else {
            write!(f, "{}", self.0)
        }
    }
}

impl Serialize for AddressRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

from_text!(
    AddressRange,
    "AddressRange",
    "A range of addresses such as `10.0.0.0/8`, or a single address.",
    pattern = "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$"
);

/// Text that is no range a rule can use, and why.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{written}` is not a range of addresses: {why}")]
pub struct RangeError {
    written: QuotedInput,
    why: RangeFault,
}

impl RangeError {
    pub fn fault(&self) -> RangeFault {
        self.why
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RangeFault {
    #[error("bits are set after the prefix; write `{0}`")]
    HostBits(IpNet),
    #[error("it is IPv4 written as IPv6; write `{0}`")]
    Mapped(IpNet),
    #[error("{0} addresses are never dialled, so it would have no effect; leave it out")]
    NeverDialled(AddressClass),
    #[error("write one such as `10.0.0.0/8`, `fd12:3456::/32` or `10.1.2.3`")]
    Syntax,
}

fn read(written: &str) -> Result<AddressRange, RangeFault> {
    let net: IpNet = match written.parse::<IpAddr>() {
        Ok(address) => address.into(),
        Err(_) => match written.parse() {
            Ok(net) => net,
            Err(_) => return Err(RangeFault::Syntax),
        },
    };
    if net != net.trunc() {
        return Err(RangeFault::HostBits(net.trunc()));
    }
    // Addresses lose this form before they are compared, so it would match none.
    if let Some(v4) = mapped(net) {
        return Err(RangeFault::Mapped(v4));
    }
    match never_dialled(net) {
        Some(class) => Err(RangeFault::NeverDialled(class)),
        None => Ok(AddressRange(net)),
    }
}

fn mapped(net: IpNet) -> Option<IpNet> {
    let IpNet::V6(net) = net else { return None };
    let v4 = net.network().to_ipv4_mapped()?;
    let prefix = net.prefix_len().checked_sub(96)?;
    Some(IpNet::V4(Ipv4Net::new(v4, prefix).ok()?))
}

/// The class of a range that lies within one class that is never dialled.
fn never_dialled(net: IpNet) -> Option<AddressClass> {
    let class = AddressClass::of(net.network());
    let within = |whole: IpNet| whole.contains(&net);
    let whole = net.prefix_len() == net.max_prefix_len()
        || NEVER_DIALLED_V4.into_iter().map(IpNet::V4).any(within)
        || NEVER_DIALLED_V6.into_iter().map(IpNet::V6).any(within);
    (whole && class.is_never_dialled()).then_some(class)
}

const NEVER_DIALLED_V4: [Ipv4Net; 5] = [
    Ipv4Net::new_assert(std::net::Ipv4Addr::new(0, 0, 0, 0), 8),
    Ipv4Net::new_assert(std::net::Ipv4Addr::new(127, 0, 0, 0), 8),
    Ipv4Net::new_assert(std::net::Ipv4Addr::new(169, 254, 0, 0), 16),
    Ipv4Net::new_assert(std::net::Ipv4Addr::new(198, 18, 0, 0), 15),
    Ipv4Net::new_assert(std::net::Ipv4Addr::new(224, 0, 0, 0), 4),
];

const NEVER_DIALLED_V6: [Ipv6Net; 5] = [
    Ipv6Net::new_assert(std::net::Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 0), 127),
    Ipv6Net::new_assert(std::net::Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48),
    Ipv6Net::new_assert(std::net::Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0), 32),
    Ipv6Net::new_assert(std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    Ipv6Net::new_assert(std::net::Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
];

#[cfg(test)]
mod tests;
