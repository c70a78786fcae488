//! Which addresses a destination is reached at.
//!
//! [`Dialable`] is the proof that an address may be dialled, and there are three
//! ways to one: the permit's reach allows it, the operator pinned the name to
//! it, or it is the operator's own proxy. The first is by far the strictest, and
//! the only one open to an answer from DNS.

use std::net::{IpAddr, SocketAddr};

use policies::{AddressClass, DialAddr, Forbidden, Reach};

use super::settings::Pin;

/// An address that may be dialled, and on whose word.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub(super) struct Dialable {
    address: SocketAddr,
    source: AddressSource,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum AddressSource {
    /// The operator pinned the name.
    Pinned,
    /// It is the operator's proxy.
    Proxy,
    /// The reach of a permit holds it.
    Reach,
}

impl Dialable {
    pub(super) fn pinned(pin: Pin, port: u16) -> Self {
        Self { address: pin.address(port), source: AddressSource::Pinned }
    }

    pub(super) fn get(self) -> SocketAddr {
        self.address
    }

    /// Whether a connection to here may carry another request, whose permit has
    /// this reach.
    ///
    /// The reach of two rules can differ for one destination, so a connection that
    /// one permit opened may be forbidden to another.
    pub(super) fn is_within(self, reach: &Reach) -> bool {
        match self.source {
            AddressSource::Pinned | AddressSource::Proxy => true,
            AddressSource::Reach => reach.check(self.address).is_ok(),
        }
    }

    pub(super) fn is_proxy(self) -> bool {
        self.source == AddressSource::Proxy
    }
}

impl From<DialAddr> for Dialable {
    fn from(checked: DialAddr) -> Self {
        Self { address: checked.get(), source: AddressSource::Reach }
    }
}

/// Every answer that may be dialled, in order; or the fault of the first.
///
/// A mixed answer is not refused whole: public services do publish stray private
/// addresses, and those are simply never dialled.
pub(super) fn check_each(
    reach: &Reach,
    answers: &[IpAddr],
    port: u16,
) -> Result<Vec<Dialable>, Option<Forbidden>> {
    let mut dialable = Vec::with_capacity(answers.len());
    let mut first = None;
    for answer in answers {
        match reach.check(SocketAddr::new(*answer, port)) {
            Ok(checked) => dialable.push(checked.into()),
            Err(why) => first = first.or(Some(why)),
        }
    }
    if dialable.is_empty() { Err(first) } else { Ok(dialable) }
}

/// The addresses of the operator's proxy. It may stand on a private network,
/// even on this machine; it does not stand at a metadata address.
pub(super) fn of_proxy(answers: &[IpAddr], port: u16) -> Vec<Dialable> {
    answers
        .iter()
        .map(IpAddr::to_canonical)
        .filter(|answer| AddressClass::of(*answer) != AddressClass::Metadata)
        .map(|answer| Dialable {
            address: SocketAddr::new(answer, port),
            source: AddressSource::Proxy,
        })
        .collect()
}
