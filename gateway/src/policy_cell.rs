//! The policy in force.
//!
//! **Invariant:** a policy is swapped whole. A reader sees the old one or the new
//! one, never a mixture.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use audit::Name;
use policies::Policy;

/// The policy that is in force now.
#[derive(Debug)]
pub(crate) struct PolicyCell(ArcSwap<LoadedPolicy>);

/// A policy, and what records call it.
#[derive(Debug)]
pub(crate) struct LoadedPolicy {
    pub(crate) policy: Policy,
    /// Digest of its text.
    pub(crate) hash: Name,
    /// Counts up with every policy that is loaded.
    pub(crate) generation: u64,
}

impl PolicyCell {
    pub(crate) fn new(policy: Policy, hash: impl Into<Name>) -> Self {
        Self(ArcSwap::from_pointee(LoadedPolicy { policy, hash: hash.into(), generation: 1 }))
    }

    /// Do not keep it across an await: a decision is made under one policy, and
    /// the next one loads again.
    pub(crate) fn load(&self) -> Guard<Arc<LoadedPolicy>> {
        self.0.load()
    }

    pub(crate) fn replace(&self, policy: Policy, hash: Name) -> u64 {
        let generation = self.load().generation + 1;
        self.0.store(Arc::new(LoadedPolicy { policy, hash, generation }));
        generation
    }
}
