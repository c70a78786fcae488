//! What the dialer promises, tried on loopback and with a scripted resolver.

mod addresses;
mod facts;
mod http2;
mod kept;
mod lookups;
mod proxied;
mod trust;

use policies::{AddressRange, Destination, Reach};

use super::testing::{Script, TestAuthority, TestServer, self_signed};
use super::{DialError, Dialer, Permit, UpstreamSettings};
use crate::authorize::RequestPermit;

fn to(written: &str) -> Destination {
    Destination::parse(written).unwrap()
}

/// A permit for a request that may go to public addresses alone.
fn public() -> RequestPermit {
    RequestPermit::for_test(Reach::public())
}

/// A permit for a request that may go to these private ranges as well.
fn within(ranges: &[&str]) -> RequestPermit {
    let ranges = ranges.iter().map(|range| AddressRange::parse(range).unwrap());
    RequestPermit::for_test(Reach::with_ranges(ranges.collect()))
}
