//! Which addresses a sandbox's network gets.
//!
//! The engine's own pools end after some thirty networks, so we choose. From
//! 198.18.0.0/15: it is reserved for measuring between networks, nobody routes
//! it, and the gateway's address check refuses to dial into it, so a sandbox's
//! network never hides a real one.

use std::net::Ipv4Addr;

use crate::plan::RunId;

/// Eight addresses: the network's own, the bridge's (which it does not get),
/// the gateway's, the sandbox's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::backend) struct Subnet {
    base: u32,
}

impl Subnet {
    /// Subnets to try for a run, each once. They begin at a place of the run's
    /// own, so that runs that start together do not all try the same.
    pub(in crate::backend) fn candidates(run: &RunId) -> impl Iterator<Item = Self> {
        let chance = u32::from_str_radix(run.short(), 16).unwrap_or_default();
        (0..COUNT).map(move |step| Self { base: FIRST + ((chance + step) % COUNT) * SIZE })
    }

    pub(in crate::backend) fn cidr(self) -> String {
        format!("{}/29", Ipv4Addr::from(self.base))
    }

    pub(in crate::backend) fn bridge(self) -> Ipv4Addr {
        Ipv4Addr::from(self.base + 1)
    }

    pub(in crate::backend) fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::from(self.base + 2)
    }

    pub(in crate::backend) fn sandbox(self) -> Ipv4Addr {
        Ipv4Addr::from(self.base + 3)
    }
}

const FIRST: u32 = 198 << 24 | 18 << 16;
const SIZE: u32 = 8;
/// All of 198.18.0.0/16; the second half of the range is for what gateways
/// share.
const COUNT: u32 = 65536 / SIZE;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_subnet_is_tried_once_and_stays_in_range() {
        let run = RunId::parse("20261116-031045-ffffff").unwrap();
        let all: HashSet<_> = Subnet::candidates(&run).map(|subnet| subnet.base).collect();
        assert_eq!(all.len(), COUNT as usize);
        assert!(all.iter().all(|base| (FIRST..FIRST + 65536).contains(base) && base % SIZE == 0));
    }

    #[test]
    fn runs_begin_at_different_places() {
        let first = |run| Subnet::candidates(&RunId::parse(run).unwrap()).next().unwrap().cidr();
        assert_eq!(first("20261116-031045-000001"), "198.18.0.8/29");
        assert_eq!(first("20261116-031045-000002"), "198.18.0.16/29");
    }
}
