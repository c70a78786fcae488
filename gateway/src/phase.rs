//! The phases of a gateway, from serving to stopped. They only move forward.

use tokio::sync::watch;

/// A gateway's phases, in their order.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum DrainPhase {
    /// Connections are accepted.
    Serving,
    /// No connection is accepted any more; open ones may finish.
    Draining,
    /// The time to finish is over; open connections are cut.
    Cut,
}

/// Notifies its holder of each new phase.
pub(crate) type Phases = watch::Receiver<DrainPhase>;

/// Resolves when `phase` is reached, at once if it has been; never, if the gateway is
/// dropped before.
pub(crate) async fn reached(phases: &mut Phases, phase: DrainPhase) {
    if phases.wait_for(|now| *now >= phase).await.is_err() {
        std::future::pending::<()>().await;
    }
}
