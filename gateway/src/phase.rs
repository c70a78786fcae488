//! How far a gateway is on its way from start to stop. It only moves forward.

use tokio::sync::watch;

/// A gateway's phases, in their order.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Phase {
    /// Who is outside is let in.
    Serving,
    /// Nobody is let in any more, and who is inside may finish.
    Draining,
    /// The time to finish is over.
    Cut,
}

/// Everybody who has to know hears of it here.
pub(crate) type Phases = watch::Receiver<Phase>;

/// Resolves when `phase` is reached, at once if it has been. Never, if the
/// gateway is gone before: then nobody is left to tell.
pub(crate) async fn reached(phases: &mut Phases, phase: Phase) {
    if phases.wait_for(|now| *now >= phase).await.is_err() {
        std::future::pending::<()>().await;
    }
}
