//! The end of a session: everything in it, its gateway, its evidence, and what
//! was made for it.
//!
//! The same for a person who stops it and for a sweep that finds it over or
//! dead; only that a sweep also removes what the sandbox wrote, since nobody is
//! there to bring it home.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use protocol::spool::SpoolEnd;
use tokio::{task, time};

use super::commands::{self, Closing};
use super::state::State;
use crate::backend::{Backend, Ended, Sandbox};
use crate::control::{self, ControlClient};
use crate::first_process::{self, Answer};
use crate::outcome::{Outcome, RunObservations, StopReason, Usage, judge};
use crate::record::{Record, in_words};
use crate::resource::Resource;
use crate::run_id::RunId;
use crate::run_lock::RunLock;
use crate::spooled::end_of_run;
use crate::teardown::remove;
use crate::unsealed::Ending;
use crate::work_budget::{NotDone, WorkBudget};

/// Why a session is ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Why {
    /// It was found over, or dead.
    Found,
    /// Somebody said so.
    Stopped,
}

/// What came of it.
#[derive(Debug)]
pub struct Finished {
    pub run: RunId,
    /// `run.json`; nothing if it could not be written.
    pub record: Option<Record>,
    pub removed: Vec<String>,
    /// What could not be removed.
    pub left: Vec<String>,
    /// Parts of the evidence that could not be had.
    pub missing: Vec<String>,
    /// Parts of it that are not whole.
    pub not_done: Vec<NotDone>,
}

/// Whether a sweep has to end this session: it is dead, or it is well past its
/// time and did not end by itself. A run that has ended and said how is left, to the
/// end of its time, to whoever wants to attach to it.
pub fn is_due(state: &State) -> bool {
    let now = Timestamp::now();
    let late = state
        .until()
        .saturating_add(state.plan().limits.grace + END_SLACK)
        .is_ok_and(|at| at < now);
    let waits = || !state.is_over(now) && own_end(state).is_some();
    late || (state.answer() == Answer::Gone && !waits())
}

/// How a run's command ended, said where nobody in the sandbox can; nothing for a
/// session.
fn own_end(state: &State) -> Option<SpoolEnd> {
    end_of_run(&state.evidence().ok()?)
}

/// Ends the session, of which `held` proves that nobody else does.
pub async fn finish(
    state: &State,
    why: Why,
    backend: &dyn Backend,
    held: RunLock,
    budget: &WorkBudget,
) -> Finished {
    let begun = Instant::now();
    let by_itself = own_end(state);
    let facts = match &by_itself {
        Some(ended) => Some(ended.facts.iter().cloned().collect()),
        None => ask_to_end(state, backend).await,
    };
    let outcome = match by_itself {
        Some(ended) => judge(&seen_late(state, ended).await),
        // It may have ended before it could answer.
        None if why == Why::Stopped && own_end(state).is_some() => Outcome::Stopped,
        None => outcome(state, why, facts.is_some(), backend).await,
    };
    drain(state).await;
    // Clients of commands that were ended write that down.
    let closing = state.evidence().and_then(|evidence| {
        Ok(Closing::begin(state.folder(), &evidence, CLIENT_RECORDS_TIMEOUT)?)
    });

    let (mut removed, mut left) = remove_made(state, backend).await;
    let usage = facts.map(|facts| {
        let wall = Timestamp::now().duration_since(state.unsealed.begun);
        let wall = wall.try_into().unwrap_or_else(|_| begun.elapsed());
        Usage { wall, ..Usage::measured(&facts) }
    });
    let ending = Ending {
        outcome,
        usage,
        left: left.clone(),
        ended: Some(Timestamp::now()),
        commands: None,
        sealed_by: if why == Why::Found { "sweep" } else { "session stop" },
    };
    let (record, mut missing) = close(state, ending, budget).await;
    if let Err(err) = &closing {
        missing.push(format!("commands may have been recorded while this was sealed: {err:#}"));
    }
    if why == Why::Found
        && let Ok(evidence) = state.evidence()
        && let Err(err) = evidence.remove_scratch()
    {
        left.push(in_words(&err));
    }
    drop(closing);
    // Last: as long as it is there, the session can be found and finished again.
    if left.is_empty() {
        let folder = Resource::Folder(state.folder().to_owned());
        remove_into(&folder, backend, &mut removed, &mut left).await;
    }
    drop(held);
    let not_done = budget.not_done();
    Finished { run: state.run().clone(), record, removed, left, missing, not_done }
}

/// Removes what was made for the session but its folder; what that was, and what is left.
async fn remove_made(state: &State, backend: &dyn Backend) -> (Vec<String>, Vec<String>) {
    let (mut removed, mut left) = (Vec::new(), Vec::new());
    let made = backend.labelled().await.unwrap_or_else(|err| {
        left.push(in_words(&err));
        Vec::new()
    });
    for found in made.into_iter().filter(|found| found.run == *state.run()) {
        remove_into(&found.resource, backend, &mut removed, &mut left).await;
    }
    (removed, left)
}

async fn remove_into(
    resource: &Resource,
    backend: &dyn Backend,
    removed: &mut Vec<String>,
    left: &mut Vec<String>,
) {
    match remove(resource, backend).await {
        Ok(()) => removed.push(resource.to_string()),
        Err(why) => left.push(format!("{resource}: {why}")),
    }
}

/// Closes and seals the evidence, with what its commands came to; the record, and what
/// is missing.
async fn close(
    state: &State,
    ending: Ending,
    budget: &WorkBudget,
) -> (Option<Record>, Vec<String>) {
    let evidence = match state.evidence() {
        Ok(evidence) => evidence,
        Err(err) => return (None, vec![format!("{err:#}")]),
    };
    let ending = Ending { commands: Some(commands::records(&evidence)), ..ending };
    let closed = state.unsealed.close(ending, &evidence, budget).await;
    if let Some(sealer) = state.unsealed.take_over() {
        sealer.done();
    }
    closed
}

/// What a run's command said, and what nobody saw while it ran: that it had no gateway
/// any more, or wrote more than it may.
async fn seen_late(state: &State, ended: SpoolEnd) -> RunObservations {
    let mut seen = RunObservations::from_spool(ended);
    if has_lost_gateway(state).await {
        seen.gateway_died = Some("nothing".to_owned());
    }
    seen.stopped = state.stop_reason();
    // Nobody knows how much a project that is written to directly has grown.
    if seen.stopped.is_none()
        && !state.is_direct()
        && let Some(full) = state.watch().last_look().await
    {
        seen.stopped = Some(StopReason::Disk(full));
    }
    seen
}

/// Whether its gateway is gone although its time is not over: it keeps the time too,
/// and may be the first to end.
async fn has_lost_gateway(state: &State) -> bool {
    let wanted = state.plan().network.is_some() && !state.is_over(Timestamp::now());
    wanted && !drain(state).await
}

/// What the sandbox took, if its first process could still say so.
async fn ask_to_end(state: &State, backend: &dyn Backend) -> Option<BTreeMap<String, String>> {
    let (socket, within) = (state.socket(), state.plan().limits.grace + END_SLACK);
    let asked = task::spawn_blocking(move || first_process::end(&socket, within)).await;
    let facts = asked.ok().flatten();
    if let (None, Some(name)) = (&facts, &state.sandbox) {
        // It is gone already, or does not listen to reason.
        drop(backend.kill(&Sandbox { name: name.clone() }).await);
    }
    facts
}

async fn outcome(state: &State, why: Why, said: bool, backend: &dyn Backend) -> Outcome {
    if said && why == Why::Stopped {
        if has_lost_gateway(state).await {
            let why = "its gateway died before it was stopped".to_owned();
            return Outcome::Failed { why };
        }
        return Outcome::Stopped;
    }
    let name = state.sandbox.clone().unwrap_or_default();
    let ended = time::timeout(END_SLACK, backend.wait_for_end(&Sandbox { name })).await;
    let is_over = state.is_over(Timestamp::now());
    match ended {
        Ok(Ok(Ended { code: EXPIRED, .. })) => Outcome::Expired,
        Ok(Ok(Ended { code, oom_killed })) => {
            match judge(&RunObservations {
                code: Some(code),
                oom_killed,
                ..RunObservations::default()
            }) {
                Outcome::Lost { .. } if is_over => Outcome::Expired,
                judged => judged,
            }
        }
        Ok(Err(_)) | Err(_) if is_over => Outcome::Expired,
        Ok(Err(_)) | Err(_) => judge(&RunObservations::default()),
    }
}

/// The exit code of a first process whose time was over.
const EXPIRED: i64 = 124;

/// Lets the gateway finish its log; whether there was one to do so.
async fn drain(state: &State) -> bool {
    if state.plan().network.is_none() {
        return false;
    }
    let client = ControlClient::new(control::connector_in(state.folder()));
    // One that is gone already has nothing to finish.
    if client.drain().await.is_err() {
        return false;
    }
    let deadline = Instant::now() + END_SLACK;
    while client.status().await.is_ok() && Instant::now() < deadline {
        time::sleep(Duration::from_millis(20)).await;
    }
    true
}

/// Writes down what a living session has changed so far.
pub fn refresh(state: &State) -> Result<(), String> {
    let evidence = state.evidence().map_err(|err| format!("{err:#}"))?;
    let (unsealed, budget) = (&state.unsealed, WorkBudget::unattended());
    unsealed.leftovers(&evidence, &budget).map_or(Ok(()), |leftovers| leftovers.changes().map(drop))
}

/// Beyond what something has for ending by itself.
const END_SLACK: Duration = Duration::from_secs(10);
/// For the last words of commands that were ended.
const CLIENT_RECORDS_TIMEOUT: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use std::fs;

    use protocol::init::CommandEnd;
    use protocol::spool::SpoolEvent;

    use super::*;
    use crate::evidence::RunFolder;
    use crate::origin::Origin;
    use crate::plan::SessionPlan;
    use crate::plan::tests::{planned, request};
    use crate::unsealed::Unsealed;

    #[test]
    fn a_run_that_ended_before_its_owner_came_waits_for_them_to_the_end_of_its_time() {
        let home = tempfile::tempdir().unwrap();
        let (ttl, now) = (Duration::from_secs(60), Timestamp::now());
        let mut plan = planned("version: 1\n", &request());
        plan.session = Some(SessionPlan { name: None, ttl, until: now + ttl });
        let unsealed = Unsealed {
            origin: Origin::default(),
            begun: now,
            folder: home.path().join("runtime").join(plan.run.as_str()),
            runs: home.path().join("runs"),
            state: home.path().to_owned(),
            workspace: None,
            plan,
        };
        let mut state = State { name: "work".to_owned(), sandbox: None, unsealed };
        let run = state.run().to_string();
        let evidence = RunFolder::create(&state.unsealed.runs, &run).unwrap();
        assert!(is_due(&state), "it is gone and nobody knows how it ended");
        let end = SpoolEnd { end: CommandEnd::Exited(0), facts: Vec::new() };
        fs::write(evidence.spool(), SpoolEvent::Ended(end).frame(Duration::ZERO)).unwrap();
        assert!(!is_due(&state), "its owner may still come");
        state.unsealed.plan.session = Some(SessionPlan { name: None, ttl, until: now });
        assert!(is_due(&state), "its time is over");
    }
}
