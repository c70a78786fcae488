//! The end of a session: everything in it, its gateway, its evidence, and what
//! was made for it.
//!
//! The same for a person who stops it and for a sweep that finds it over or
//! dead; only that a sweep also removes what the sandbox wrote, since nobody is
//! there to bring it home.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gateway::control::Client;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::{task, time};

use super::call::{self, Answer};
use super::commands::{self, Writing};
use super::state::{Layout, State};
use crate::backend::{Backend, Ended, Sandbox};
use crate::evidence::RunFolder;
use crate::outcome::{Outcome, Seen, Usage, judge};
use crate::plan::RunId;
use crate::run::close::{Leavings, in_words};
use crate::sweep::Held;
use crate::teardown::{Resource, remove};

/// Why a session is ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Why {
    /// It was found over, or dead.
    Found,
    /// Somebody said so.
    Stopped,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) run: RunId,
    /// `run.json`.
    pub(crate) record: Value,
    pub(crate) removed: Vec<String>,
    /// What could not be removed.
    pub(crate) left: Vec<String>,
    /// Parts of the evidence that could not be had.
    pub(crate) missing: Vec<String>,
}

/// Whether a sweep has to end this session: it is dead, or it is well past its
/// time and did not end by itself.
pub(crate) fn is_due(state: &State) -> bool {
    let now = Timestamp::now();
    let late = state.until.saturating_add(state.limits.grace() + LATER).is_ok_and(|at| at < now);
    late || state.answer() == Answer::Gone
}

/// Ends the session, of which `held` proves that nobody else does.
pub(crate) async fn finish(state: &State, why: Why, backend: &dyn Backend, held: Held) -> Finished {
    let begun = Instant::now();
    let facts = ask_to_end(state, backend).await;
    let outcome = outcome(state, why, facts.is_some(), backend).await;
    drain(state).await;
    // Clients of commands that were ended write that down.
    let writing = Writing::alone(&state.folder(), CLIENTS);

    let (mut removed, mut left) = (Vec::new(), Vec::new());
    let made = backend.found().await.unwrap_or_else(|err| {
        left.push(in_words(&err));
        Vec::new()
    });
    let made = made.into_iter().filter(|found| found.run == state.run);
    for resource in made.map(|found| found.resource) {
        match remove(&resource, backend).await {
            Ok(()) => removed.push(resource.to_string()),
            Err(why) => left.push(format!("{resource}: {why}")),
        }
    }
    let usage = facts.map(|facts| Usage::measured(&facts));
    let ending = Ending { outcome, usage, left: left.clone(), since: begun };
    let (record, missing) = match state.evidence() {
        Ok(evidence) => ending.close(state, &evidence),
        Err(err) => (Value::Null, vec![format!("{err:#}")]),
    };
    if why == Why::Found
        && let Ok(evidence) = state.evidence()
        && let Err(err) = evidence.remove_scratch()
    {
        left.push(in_words(&err));
    }
    drop(writing);
    // Last: as long as it is there, the session can be found and finished again.
    let folder = Resource::Folder(state.folder());
    if left.is_empty() {
        match remove(&folder, backend).await {
            Ok(()) => removed.push(folder.to_string()),
            Err(why) => left.push(format!("{folder}: {why}")),
        }
    }
    drop(held);
    Finished { run: state.run.clone(), record, removed, left, missing }
}

/// What the sandbox took, if its first process could still say so.
async fn ask_to_end(state: &State, backend: &dyn Backend) -> Option<BTreeMap<String, String>> {
    let (socket, within) = (state.socket(), state.limits.grace() + LATER);
    let asked = task::spawn_blocking(move || call::end(&socket, within)).await;
    let facts = asked.ok().flatten();
    if let (None, Some(name)) = (&facts, &state.sandbox) {
        // It is gone already, or does not listen to reason.
        drop(backend.kill(&Sandbox { name: name.clone() }).await);
    }
    facts
}

async fn outcome(state: &State, why: Why, said: bool, backend: &dyn Backend) -> Outcome {
    if said && why == Why::Stopped {
        return Outcome::Stopped;
    }
    let name = state.sandbox.clone().unwrap_or_default();
    let ended = time::timeout(LATER, backend.ended(&Sandbox { name })).await;
    let is_over = state.is_over(Timestamp::now());
    match ended {
        Ok(Ok(Ended { code: EXPIRED, .. })) => Outcome::Expired,
        Ok(Ok(Ended { code, oom_killed })) => {
            match judge(&Seen { code: Some(code), oom_killed, ..Seen::default() }) {
                Outcome::Lost { .. } if is_over => Outcome::Expired,
                judged => judged,
            }
        }
        Ok(Err(_)) | Err(_) if is_over => Outcome::Expired,
        Ok(Err(_)) | Err(_) => judge(&Seen::default()),
    }
}

/// The exit code of a first process whose time was over.
const EXPIRED: i64 = 124;

/// Lets the gateway finish its log.
async fn drain(state: &State) {
    if !state.network {
        return;
    }
    let client = Client::new(state.folder().join("control").join("control.sock"));
    // One that is gone already has nothing to finish.
    if client.drain().await.is_err() {
        return;
    }
    let deadline = Instant::now() + LATER;
    while client.status().await.is_ok() && Instant::now() < deadline {
        time::sleep(Duration::from_millis(20)).await;
    }
}

struct Ending {
    outcome: Outcome,
    usage: Option<Usage>,
    left: Vec<String>,
    since: Instant,
}

impl Ending {
    /// Writes and seals what there is; the record, and what is missing.
    fn close(self, state: &State, evidence: &RunFolder) -> (Value, Vec<String>) {
        if evidence.path().join("seal.json").exists() {
            // Closed before, by somebody who could not remove everything.
            return (evidence.read_run().unwrap_or_default(), Vec::new());
        }
        let mut missing = keep(state, evidence);
        let mut record = evidence.read_run::<Value>().unwrap_or_else(|err| {
            missing.push(format!("record: {}", in_words(&err)));
            json!({"run": state.run})
        });
        let usage = self.usage.map(|usage| {
            let wall = Timestamp::now().duration_since(state.begun);
            Usage { wall: wall.try_into().unwrap_or(self.since.elapsed()), ..usage }
        });
        let news = json!({
            "ended": Timestamp::now(),
            "exit_code": self.outcome.code(),
            "outcome": self.outcome,
            "usage": usage,
            "left": self.left,
            "missing": missing,
            "commands": commands::records(evidence),
        });
        if let (Value::Object(record), Value::Object(news)) = (&mut record, news) {
            record.extend(news);
        }
        if let Err(err) = evidence.write_run(&record) {
            missing.push(format!("record: {}", in_words(&err)));
        }
        if let Err(err) = evidence.seal(&state.state) {
            missing.push(format!("seal: {}", in_words(&err)));
        }
        (record, missing)
    }
}

/// Keeps what changed and what was to be made; what is missing.
fn keep(state: &State, evidence: &RunFolder) -> Vec<String> {
    let Some(layout) = &state.workspace else { return Vec::new() };
    let (changes, artifacts) = with_leavings(state, layout, evidence, |leavings| {
        (leavings.changes(), leavings.artifacts())
    });
    let parts = [("changes", changes), ("artifacts", artifacts)];
    parts.into_iter().filter_map(|(what, had)| Some(format!("{what}: {}", had.err()?))).collect()
}

/// Writes down what a living session has changed so far.
pub(crate) fn refresh(state: &State) -> Result<(), String> {
    let evidence = state.evidence().map_err(|err| format!("{err:#}"))?;
    let Some(layout) = &state.workspace else { return Ok(()) };
    with_leavings(state, layout, &evidence, |leavings| leavings.changes())
}

fn with_leavings<T>(
    state: &State,
    layout: &Layout,
    evidence: &RunFolder,
    use_them: impl FnOnce(Leavings<'_>) -> T,
) -> T {
    use_them(Leavings {
        evidence,
        begun: state.begun,
        root: Some(&layout.root),
        upper: layout.upper.as_deref(),
        protect: &layout.protect,
        deny: &layout.deny,
        artifacts: &layout.artifacts,
    })
}

/// Beyond what something has for ending by itself.
const LATER: Duration = Duration::from_secs(10);
/// For the last words of commands that were ended.
const CLIENTS: Duration = Duration::from_secs(3);
