//! Step 7 of 10: what is looked at while bytes go by.
//!
//! Budgets, so far: a [`Meter`] stands in the way of every byte of a request, an
//! answer or a tunnel, and is asked before it is sent. It never holds bytes back
//! to look at them later, so inspecting takes no memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use audit::Traffic;

use crate::gateway::Gateway;
use crate::refuse::Refusal;

/// The counts of one request or tunnel, held to the bounds of the whole run.
///
/// Both directions share it, so it is atomic; each is counted before it is sent,
/// so that a budget is never exceeded and then regretted.
#[derive(Debug)]
pub(crate) struct Meter {
    gateway: Arc<Gateway>,
    sent: AtomicU64,
    received: AtomicU64,
    body: AtomicU64,
    body_limit: u64,
}

impl Meter {
    pub(crate) fn new(gateway: Arc<Gateway>) -> Self {
        let body_limit = gateway.limits.body().unwrap_or(u64::MAX);
        let zero = || AtomicU64::new(0);
        Self { gateway, sent: zero(), received: zero(), body: zero(), body_limit }
    }

    /// Counts bytes that are about to go upstream: heads, names, tunnels.
    pub(crate) fn sent(&self, bytes: usize) -> Result<(), Refusal> {
        let bytes = bytes as u64;
        self.gateway.limits.upload(bytes)?;
        self.sent.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Counts bytes of a request's body that are about to go upstream.
    pub(crate) fn body(&self, bytes: usize) -> Result<(), Refusal> {
        let before = self.body.fetch_add(bytes as u64, Ordering::Relaxed);
        if before.saturating_add(bytes as u64) > self.body_limit {
            return Err(Refusal::BodyTooLarge { limit: self.body_limit });
        }
        self.sent(bytes)
    }

    /// Refuses a body by the length it announces, before any of it is sent.
    pub(crate) fn announced(&self, length: u64) -> Result<(), Refusal> {
        if length > self.body_limit {
            return Err(Refusal::BodyTooLarge { limit: self.body_limit });
        }
        Ok(())
    }

    /// Counts bytes that are about to reach the sandbox.
    pub(crate) fn received(&self, bytes: usize) -> Result<(), Refusal> {
        let bytes = bytes as u64;
        self.gateway.limits.download(bytes)?;
        self.received.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// What was counted so far.
    pub(crate) fn traffic(&self) -> Traffic {
        Traffic {
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }
}
