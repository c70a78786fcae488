//! What all connections of one gateway share.
//!
//! There is one [`Gateway`] per sandbox. Nothing in it belongs to a single
//! connection, and nothing outside it is shared between two.
//!
//! **Invariant:** every connection is notified of a new policy.

use std::collections::HashSet;
use std::sync::Arc;

use audit::{Log, Name};
use certs::Serving;
use parking_lot::Mutex;
use policies::{Admission, Destination, Policy};
use tokio::sync::watch;

use crate::dial::Dialer;
use crate::limits::GatewayLimits;
use crate::metrics::Metrics;
use crate::per_worker::{PerWorker, WorkerCount, WorkerRuntimes};
use crate::policy_cell::PolicyCell;

/// The way out of one sandbox.
#[derive(Debug)]
pub struct Gateway {
    pub(crate) policy: PolicyCell,
    pub(crate) tls: Serving,
    pub(crate) dialer: Dialer,
    pub(crate) log: Log,
    pub(crate) limits: GatewayLimits,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) recorded: RecordedDestinations,
    /// Requests that are under way.
    pub(crate) in_flight: PerWorker<WorkerCount>,
    pub(crate) runtimes: WorkerRuntimes,
    signals: watch::Sender<GatewaySignal>,
}

impl Gateway {
    pub(crate) fn new(
        policy: PolicyCell,
        tls: Serving,
        dialer: Dialer,
        log: Log,
        limits: GatewayLimits,
        metrics: Metrics,
    ) -> Self {
        let signal = GatewaySignal { generation: policy.load().generation, draining: false };
        let signals = watch::Sender::new(signal);
        let metrics = Arc::new(metrics);
        let (recorded, in_flight) =
            (RecordedDestinations::default(), PerWorker::new(WorkerCount::default));
        let runtimes = WorkerRuntimes::default();
        Self { policy, tls, dialer, log, limits, metrics, recorded, in_flight, runtimes, signals }
    }

    /// Swaps in a policy, and closes what it no longer allows.
    ///
    /// The order matters: when a connection is notified, the new policy is what it
    /// loads, and no pooled connection is left to reuse.
    pub(crate) fn load_policy(&self, policy: Policy, hash: impl Into<Name>) -> u64 {
        self.limits.rebind(&policy.net.limits);
        let generation = self.policy.replace(policy, hash.into());
        let loaded = self.policy.load();
        self.dialer.close_unless(|to| !matches!(loaded.policy.admit(to), Admission::Deny(_)));
        self.signals.send_modify(|signal| signal.generation = generation);
        generation
    }

    /// Asks idle connections to end; those at work end after it.
    pub(crate) fn drain(&self) {
        self.signals.send_modify(|signal| signal.draining = true);
    }

    pub(crate) fn signals(&self) -> GatewaySignals {
        GatewaySignals(self.signals.subscribe())
    }
}

/// What every connection is notified of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct GatewaySignal {
    generation: u64,
    draining: bool,
}

/// One connection's receiver of signals.
#[derive(Clone, Debug)]
pub(crate) struct GatewaySignals(watch::Receiver<GatewaySignal>);

impl GatewaySignals {
    pub(crate) fn draining(&self) -> bool {
        self.0.borrow().draining
    }

    /// Resolves at the next signal. Never, once the gateway is gone: what is
    /// left of it then ends by its own time limits.
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Destinations that a record was opened for, so that the first request to each
/// is in the log before it leaves.
#[derive(Debug, Default)]
pub(crate) struct RecordedDestinations(Mutex<HashSet<Destination>>);

/// Beyond this every destination counts as new: safer, and slower only for a
/// sandbox that talks to thousands of hosts.
const MAX_REMEMBERED: usize = 4096;

impl RecordedDestinations {
    pub(crate) fn has(&self, to: &Destination) -> bool {
        self.0.lock().contains(to)
    }

    pub(crate) fn remember(&self, to: &Destination) {
        let mut seen = self.0.lock();
        if seen.len() < MAX_REMEMBERED {
            seen.insert(to.clone());
        }
    }
}
