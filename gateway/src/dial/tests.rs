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
use super::{DialError, Dialer, Settings};

fn to(written: &str) -> Destination {
    Destination::parse(written).unwrap()
}

fn reach(ranges: &[&str]) -> Reach {
    Reach::with_ranges(ranges.iter().map(|r| AddressRange::parse(r).unwrap()).collect())
}
