//! What a sandbox takes at this moment.

use bollard::query_parameters::StatsOptionsBuilder;
use futures_util::StreamExt as _;

use super::labels::RunNames;
use super::{Engine, status};
use crate::backend::{BackendError, BackendStep, Stats};
use crate::control::ControlClient;
use crate::plan::RunId;

/// One measurement; nothing when there is no such sandbox.
pub(in crate::backend) async fn stats(
    engine: &Engine,
    run: &RunId,
) -> Result<Option<Stats>, BackendError> {
    let options = StatsOptionsBuilder::new().stream(false).one_shot(true).build();
    let mut answers = engine.api.stats(&RunNames::of(run).sandbox, Some(options));
    let found = match answers.next().await {
        None => return Ok(None),
        Some(Err(err)) if status(&err) == Some(404) => return Ok(None),
        Some(Err(err)) => return Err(engine.broken(BackendStep::Measure, err)),
        Some(Ok(found)) => found,
    };
    let memory = found.memory_stats.unwrap_or_default();
    let pids = found.pids_stats.unwrap_or_default();
    let cpu = found.cpu_stats.and_then(|cpu| cpu.cpu_usage).unwrap_or_default();
    let networks = found.networks.unwrap_or_default();
    let interfaces = || {
        let sent = networks.values().filter_map(|net| net.tx_bytes).sum();
        (sent, networks.values().filter_map(|net| net.rx_bytes).sum())
    };
    // A sandbox that is not running has no limits: that is how it is known.
    let Some(limit) = memory.limit else { return Ok(None) };
    let (sent, received) = match networks.is_empty() {
        false => interfaces(),
        true => gateway_counts(engine, run).await.unwrap_or_default(),
    };
    Ok(Some(Stats {
        cpu_nanoseconds: cpu.total_usage.unwrap_or_default(),
        memory: memory.usage.unwrap_or_default(),
        memory_limit: limit,
        pids: pids.current.unwrap_or_default(),
        pids_limit: pids.limit.unwrap_or_default(),
        sent,
        received,
    }))
}

/// What went out and came in, as the gateway counts it: a sandbox without a network has no
/// interface that could.
pub(in crate::backend) async fn gateway_counts(engine: &Engine, run: &RunId) -> Option<(u64, u64)> {
    let gateway = ControlClient::new(engine.local(run).control());
    let counts = gateway.status().await.ok()?.counts;
    Some((counts.uploaded, counts.downloaded))
}
