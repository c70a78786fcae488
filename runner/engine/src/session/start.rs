//! Makes a sandbox that is kept, hands it its socket, and leaves it.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::time;

use super::state::State;
use crate::backend::Backend;
use crate::first_process::{self, Answer};
use crate::isolation::Finding;
use crate::plan::Plan;
use crate::prepare::{self, Prepared};
use crate::record::{Record, in_words};
use crate::report::{RunError, RunReport};
use crate::resource::Resource;
use crate::run::{BroughtUp, bring_up, close};
use crate::spec::ResolvedRun;
use crate::teardown::Teardown;
use crate::unsealed::Unsealed;
use crate::work_budget::WorkBudget;

/// Makes the sandbox; what was made is undone if it cannot be left alone.
pub async fn start(
    plan: &Plan,
    resolved: &ResolvedRun,
    backend: &dyn Backend,
    name: String,
    say: &mut dyn FnMut(&str),
) -> anyhow::Result<State> {
    let begun = Timestamp::now();
    let mut teardown = Teardown::default();
    teardown.will_make(Resource::Folder(prepare::folder(plan, &resolved.environment)));
    let prepared = match prepare::prepare(plan, resolved) {
        Ok(prepared) => prepared,
        Err(err) => {
            drop(teardown.run(backend).await);
            return Err(err.into());
        }
    };
    for words in prepared.secrets_in_words() {
        say(&words);
    }
    let unsealed = Unsealed::new(plan, resolved, &prepared, begun);
    let mut state = State { name, sandbox: None, unsealed };
    if let Err(err) = state.claim() {
        drop(teardown.run(backend).await);
        drop(prepared.evidence.remove());
        return Err(err);
    }
    // Held while it is being made; after that it goes on without us.
    let sealer = state.unsealed.begin(resolved, &prepared.evidence);
    let mut findings = Vec::new();
    let brought_up = leave(plan, resolved, backend, &prepared, &mut teardown, &mut findings);
    match brought_up.await {
        Ok(sandbox) => {
            state.sandbox = Some(sandbox);
            let used = backend.provenance(&plan.image).await;
            let record = Record {
                used,
                isolation: findings,
                phases: resolved.phases.taken(),
                ..Record::begun(plan, begun)
            };
            prepared.evidence.write_run(&record)?;
            state.write()?;
            drop(sealer);
            Ok(state)
        }
        Err(err) => {
            let words = in_words(&err);
            let left = teardown.run(backend).await;
            let mut report =
                RunReport { ended: Err(err), findings, left, ..RunReport::begun(begun) };
            let budget = WorkBudget::unattended();
            close::close(plan, resolved, &prepared, &mut report, &budget);
            if let Some(sealer) = sealer {
                sealer.done();
            }
            Err(anyhow::anyhow!(words))
        }
    }
}

/// Brings the sandbox up, hands it its socket, and returns what its backend calls it.
/// From here on nothing of it depends on us.
async fn leave(
    plan: &Plan,
    resolved: &ResolvedRun,
    backend: &dyn Backend,
    prepared: &Prepared,
    teardown: &mut Teardown,
    findings: &mut Vec<Finding>,
) -> Result<String, RunError> {
    let turn = prepared.turn(backend).await;
    let brought_up = bring_up(plan, resolved, backend, prepared, teardown, findings).await?;
    drop(turn);
    let (BroughtUp { started, gateway }, _isolated) = brought_up;
    let path = first_process::socket_in(&prepare::folder(plan, &resolved.environment));
    started.hand_over_socket(&path).await?;
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    while !matches!(first_process::hello(&path), Answer::Alive { .. }) {
        if Instant::now() > deadline {
            return Err(RunError::Link(crate::link::LinkError::Silent));
        }
        time::sleep(Duration::from_millis(5)).await;
    }
    // What we held of it goes, and nothing of it with us.
    drop((started.link, gateway));
    Ok(started.sandbox.name)
}

const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
