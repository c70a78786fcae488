//! Idle HTTP/1.1 connections, kept for the next request to the same destination.
//!
//! A connection is handed out again only for the very destination it was opened
//! for, only while the new request's reach still holds its address, and only if
//! nothing arrived on it in the meantime. How many are kept is bounded per
//! destination and in all, and a connection that nobody wants is closed after a
//! while even if no request ever comes again.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use policies::{Destination, Scheme};
use tokio::time::{self, Instant};

use super::Permit;
use super::facts::UpstreamFacts;
use super::route::Dialable;
use super::settings::PoolSizes;
use super::stream::UpstreamStream;

/// The idle connections of one gateway.
#[derive(Debug)]
pub(super) struct Pool {
    sizes: PoolSizes,
    kept: Mutex<KeptConnections>,
}

#[derive(Debug, Default)]
struct KeptConnections {
    idle: HashMap<PoolKey, Vec<IdleConnection>>,
    count: usize,
    sweeping: bool,
}

/// What two requests must share to share a connection.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct PoolKey {
    pub(super) scheme: Scheme,
    pub(super) to: Destination,
}

/// A connection between two exchanges.
#[derive(Debug)]
pub(super) struct IdleConnection {
    pub(super) stream: UpstreamStream,
    pub(super) at: Dialable,
    pub(super) facts: UpstreamFacts,
    since: Instant,
}

impl IdleConnection {
    pub(super) fn new(stream: UpstreamStream, at: Dialable, facts: UpstreamFacts) -> Self {
        Self { stream, at, facts, since: Instant::now() }
    }
}

impl Pool {
    pub(super) fn new(sizes: PoolSizes) -> Arc<Self> {
        Arc::new(Self { sizes, kept: Mutex::default() })
    }

    /// The connection that was used last, because it is the likeliest to live.
    pub(super) fn take(&self, permit: Permit<'_>, place: &PoolKey) -> Option<IdleConnection> {
        let now = Instant::now();
        let mut kept = self.kept.lock();
        let KeptConnections { idle, count, .. } = &mut *kept;
        let here = idle.get_mut(place)?;
        let mut found = None;
        // From the back. What is dead is dropped on the way; what this request
        // may not use stays for one that may.
        let mut at = here.len();
        while at > 0 && found.is_none() {
            at -= 1;
            let Some(candidate) = here.get_mut(at) else { break };
            let fresh = now.duration_since(candidate.since) < self.sizes.idle_timeout;
            if !fresh || !candidate.stream.is_quiet() {
                here.remove(at);
                *count -= 1;
            } else if candidate.at.is_within(permit.reach()) {
                found = Some(here.remove(at));
                *count -= 1;
            }
        }
        // An empty list stays: the connection will most likely be back. What does not
        // come back the sweep removes.
        found.map(|idle| IdleConnection { facts: idle.facts.as_reused(), ..idle })
    }

    /// Keeps a connection, or closes it if there are enough.
    pub(super) fn put(self: &Arc<Self>, place: PoolKey, mut connection: IdleConnection) {
        if !connection.stream.is_quiet() {
            return;
        }
        connection.since = Instant::now();
        let mut kept = self.kept.lock();
        if kept.count >= self.sizes.idle_total {
            return;
        }
        let here = kept.idle.entry(place).or_default();
        if here.len() >= self.sizes.idle_per_destination {
            return;
        }
        here.push(connection);
        kept.count += 1;
        if !kept.sweeping {
            kept.sweeping = true;
            tokio::spawn(sweep(Arc::downgrade(self), self.sizes));
        }
    }

    /// Closes what leads to where `keep` says no.
    pub(super) fn close_unless(&self, keep: impl Fn(&Destination) -> bool) {
        self.retain(|place, _| keep(&place.to));
    }

    fn retain(&self, keep: impl Fn(&PoolKey, &IdleConnection) -> bool) -> usize {
        let mut kept = self.kept.lock();
        kept.idle.retain(|place, here| {
            here.retain(|connection| keep(place, connection));
            !here.is_empty()
        });
        kept.count = kept.idle.values().map(Vec::len).sum();
        kept.count
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.kept.lock().count
    }
}

/// Closes connections that were idle for too long, until none is left.
async fn sweep(pool: Weak<Pool>, sizes: PoolSizes) {
    loop {
        time::sleep(sizes.idle_timeout / 2).await;
        let Some(pool) = pool.upgrade() else { return };
        let now = Instant::now();
        let left = pool.retain(|_, idle| now.duration_since(idle.since) < sizes.idle_timeout);
        if left == 0 {
            let mut kept = pool.kept.lock();
            // One may have come back since.
            if kept.count == 0 {
                kept.sweeping = false;
                return;
            }
        }
    }
}
