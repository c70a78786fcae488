//! The policy in force.
//!
//! **Invariant:** a policy is swapped whole. A reader sees the old one or the new
//! one, never a mixture.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use audit::Name;
use policies::{HostName, Policy, PolicyDoors};

/// The policy that is in force now.
#[derive(Debug)]
pub(crate) struct PolicyCell(ArcSwap<LoadedPolicy>);

/// A policy, and what records call it.
#[derive(Debug)]
pub(crate) struct LoadedPolicy {
    pub(crate) policy: Policy,
    /// The ports that its rules write out.
    doors: PolicyDoors,
    /// Digest of its text.
    pub(crate) hash: Name,
    /// Counts up with every policy that is loaded.
    pub(crate) generation: u64,
}

impl PolicyCell {
    pub(crate) fn new(policy: Policy, hash: impl Into<Name>) -> Self {
        Self(ArcSwap::from_pointee(LoadedPolicy::new(policy, hash.into(), 1)))
    }

    /// Do not keep it across an await: a decision is made under one policy, and
    /// the next one loads again.
    pub(crate) fn load(&self) -> Guard<Arc<LoadedPolicy>> {
        self.0.load()
    }

    pub(crate) fn replace(&self, policy: Policy, hash: Name) -> u64 {
        let generation = self.load().generation + 1;
        self.0.store(Arc::new(LoadedPolicy::new(policy, hash, generation)));
        generation
    }
}

impl LoadedPolicy {
    fn new(policy: Policy, hash: Name, generation: u64) -> Self {
        let doors = policy.doors();
        Self { policy, doors, hash, generation }
    }

    /// Every port on which some rule could let a connection to this name pass.
    pub(crate) fn ports_for(&self, name: Option<&HostName>) -> impl Iterator<Item = u16> {
        let tcp = &self.doors.tcp;
        let named = name.and_then(|name| tcp.binary_search_by(|tcp| tcp.host.cmp(name)).ok());
        let tcp_ports = named.and_then(|at| tcp.get(at)).map(|named| named.ports.as_slice());
        let usual = [443, 80].into_iter();
        usual.chain(self.doors.ports.iter().chain(tcp_ports.unwrap_or_default()).copied())
    }
}
