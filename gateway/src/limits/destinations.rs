//! Which hosts one sandbox has reached, and how much each was sent.
//!
//! Under a wildcard the sandbox chooses part of a name, and whoever answers for the
//! suffix learns it when the name is looked up: so such names are counted by their
//! bytes, each name once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use policies::Host;

use super::{Bounds, LimitKind, LimitReached};

/// Bytes that were sent to one host.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostCount(Arc<AtomicU64>);

impl HostCount {
    pub(super) fn spend(&self, bytes: u64, bound: Option<u64>) -> Result<(), LimitReached> {
        super::spend(&self.0, bytes, bound, LimitKind::HostUpload)
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
pub(super) struct ReachedHosts {
    known: HashMap<Host, HostCount>,
    /// What hosts share that there was no room to remember. Each time one of them is
    /// reached it counts as new, so that nobody gains by filling the map.
    forgotten: HostCount,
    hosts: u64,
    /// Bytes of their names that the sandbox chose.
    chosen: u64,
}

/// Hosts that are remembered.
const MAX_KNOWN: usize = 4096;

impl ReachedHosts {
    /// Counts a host that is about to be reached for the first time. `chosen` is how
    /// much of its name the sandbox chose.
    pub(super) fn reach(
        &mut self,
        host: &Host,
        chosen: u64,
        bounds: &Bounds,
    ) -> Result<HostCount, LimitReached> {
        if let Some(count) = self.known.get(host) {
            return Ok(count.clone());
        }
        let hosts = within(self.hosts, 1, bounds.hosts.map(u64::from), LimitKind::Hosts)?;
        let chosen = within(self.chosen, chosen, bounds.wildcard_names, LimitKind::WildcardNames)?;
        (self.hosts, self.chosen) = (hosts, chosen);
        if self.known.len() >= MAX_KNOWN {
            return Ok(self.forgotten.clone());
        }
        Ok(self.known.entry(host.clone()).or_default().clone())
    }
}

/// A count and what is added to it, if that is not beyond the bound.
pub(super) fn within(
    count: u64,
    more: u64,
    bound: Option<u64>,
    limit: LimitKind,
) -> Result<u64, LimitReached> {
    let (reached, value) = (count.saturating_add(more), bound.unwrap_or(u64::MAX));
    // What adds nothing goes beyond nothing.
    if more > 0 && reached > value {
        return Err(LimitReached { limit, value, reached, retry_after: None });
    }
    Ok(reached)
}
