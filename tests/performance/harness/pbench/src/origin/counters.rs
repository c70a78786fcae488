//! What reached the origin.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

#[derive(Default)]
pub(super) struct OriginCounters {
    pub(super) tcp: AtomicU64,
    pub(super) tls_full: AtomicU64,
    pub(super) tls_resumed: AtomicU64,
    pub(super) tls_failed: AtomicU64,
    pub(super) tls12: AtomicU64,
    pub(super) h2_conns: AtomicU64,
    pub(super) h1_requests: AtomicU64,
    pub(super) h2_requests: AtomicU64,
    open: AtomicU64,
}

/// A connection that is counted as open until this is dropped.
pub(super) struct OpenConnection(Arc<OriginCounters>);

impl OriginCounters {
    pub(super) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn open_connection(self: &Arc<Self>) -> OpenConnection {
        Self::count(&self.open);
        OpenConnection(Arc::clone(self))
    }

    pub(super) fn json(&self) -> Value {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        json!({
            "tcp": read(&self.tcp),
            "tls_full": read(&self.tls_full),
            "tls_resumed": read(&self.tls_resumed),
            "tls_failed": read(&self.tls_failed),
            "tls12": read(&self.tls12),
            "h2_conns": read(&self.h2_conns),
            "h1_requests": read(&self.h1_requests),
            "h2_requests": read(&self.h2_requests),
            "open": read(&self.open),
        })
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
