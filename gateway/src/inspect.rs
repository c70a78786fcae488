//! Step 7 of 10: what is looked at while bytes go by.
//!
//! Budgets, so far: a [`TrafficMeter`] stands in the way of every byte of a request,
//! an answer or a tunnel, and is asked before it is sent. It never holds bytes back
//! to look at them later, so inspecting takes no memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use audit::TrafficRecord;

use crate::dial::DialError;
use crate::gateway::Gateway;
use crate::limits::HostCount;
use crate::refuse::Refusal;

/// The counts of one request or tunnel, held to the bounds of the whole run.
///
/// Both directions share it, so it is atomic; each is counted before it is sent,
/// so that a budget is never exceeded and then regretted.
#[derive(Debug)]
pub(crate) struct TrafficMeter {
    gateway: Arc<Gateway>,
    host: HostCount,
    sent: AtomicU64,
    received: AtomicU64,
    body: AtomicU64,
    body_limit: u64,
}

/// Bytes that are going to leave: the budget has room for them, and none has been
/// sent yet. Dropping it gives the room back.
#[derive(Debug)]
#[must_use = "dropping it gives the room back"]
pub(crate) struct ReservedBytes {
    gateway: Arc<Gateway>,
    host: HostCount,
    bytes: u64,
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        self.gateway.limits.not_uploaded(&self.host, self.bytes);
    }
}

impl TrafficMeter {
    /// For traffic with the host whose count this is.
    pub(crate) fn new(gateway: Arc<Gateway>, host: HostCount) -> Self {
        let body_limit = gateway.limits.bounds().body.unwrap_or(u64::MAX);
        let zero = || AtomicU64::new(0);
        Self { gateway, host, sent: zero(), received: zero(), body: zero(), body_limit }
    }

    /// Counts bytes that are about to go upstream: heads, names, tunnels.
    pub(crate) fn sent(&self, bytes: usize) -> Result<(), Refusal> {
        let bytes = bytes as u64;
        self.gateway.limits.upload(&self.host, bytes)?;
        self.sent.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Reserves room in the budget for bytes, before there is an upstream.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<ReservedBytes, Refusal> {
        let bytes = bytes as u64;
        self.gateway.limits.upload(&self.host, bytes)?;
        let (gateway, host) = (Arc::clone(&self.gateway), self.host.clone());
        Ok(ReservedBytes { gateway, host, bytes })
    }

    /// Counts what was reserved as sent.
    pub(crate) fn sent_reserved(&self, reserved: ReservedBytes) {
        let all = reserved.bytes;
        self.count_sent(reserved, all);
    }

    /// Counts what was reserved as sent if the dial succeeded. Of a dial that failed,
    /// at most the name was sent.
    pub(crate) fn settle<T>(&self, reserved: ReservedBytes, dialled: &Result<T, DialError>) {
        match dialled {
            Ok(_) => self.sent_reserved(reserved),
            Err(err) => self.not_dialled(reserved, err),
        }
    }

    pub(crate) fn not_dialled(&self, reserved: ReservedBytes, err: &DialError) {
        self.count_sent(reserved, self.gateway.dialer.name_bytes_sent(err) as u64);
    }

    fn count_sent(&self, mut reserved: ReservedBytes, bytes: u64) {
        let left = bytes.min(reserved.bytes);
        self.sent.fetch_add(left, Ordering::Relaxed);
        reserved.bytes -= left;
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

    /// Counts bytes that have come and go no further. They are counted even if
    /// they are too many: nobody can send them back.
    pub(crate) fn arrived(&self, bytes: u64) -> Result<(), Refusal> {
        if bytes == 0 {
            return Ok(());
        }
        self.received.fetch_add(bytes, Ordering::Relaxed);
        Ok(self.gateway.limits.arrived(bytes)?)
    }

    /// What was counted so far.
    pub(crate) fn traffic(&self) -> TrafficRecord {
        TrafficRecord {
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }
}
