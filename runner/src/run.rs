//! One run, from plan to teardown.
//!
//! [`run`] is the story; each line of [`carry_out`] is a file of this crate.
//! Planning is pure and comes before anything is made, so `--dry-run` is
//! exact. Teardown happens on every path out, including the failed ones, and
//! the evidence is closed after it: it says what could not be removed.

mod close;
mod prepare;
mod record;
mod verb;

use std::io;
use std::time::{Duration, Instant};

use gateway::control::Client;
use jiff::Timestamp;
use tokio::time;

use crate::backend::{Backend, BackendError, GatewayHandle};
use crate::exec::{Started, exec};
use crate::init::wire::Order;
use crate::link::{LinkError, Listening};
use crate::outcome::{Outcome, Seen, judge};
use crate::plan::Plan;
use crate::probe::{self, Finding, Isolated};
use crate::request::Understood;
use crate::teardown::{Left, Resource, Teardown};
use crate::terminal;
pub use prepare::PrepareError;
use prepare::Prepared;
pub use record::Record;
use record::Recorder;
pub use verb::verb;

/// Carries out `plan` and leaves nothing behind that it does not report.
pub async fn run(plan: &Plan, understood: &Understood, backend: &dyn Backend) -> Report {
    let begun = Timestamp::now();
    let mut teardown = Teardown::default();
    teardown.will_make(Resource::Folder(prepare::folder(plan)));
    let prepared = match prepare::prepare(plan, understood) {
        Ok(prepared) => prepared,
        Err(err) => {
            let left = teardown.run(backend).await;
            return Report {
                begun,
                ended: Err(err.into()),
                findings: Vec::new(),
                left,
                missing: Vec::new(),
            };
        }
    };
    let mut findings = Vec::new();
    let ended = carry_out(plan, understood, backend, &prepared, &mut teardown, &mut findings).await;
    let left = teardown.run(backend).await;
    let mut report = Report { begun, ended, findings, left, missing: Vec::new() };
    report.missing = close::close(plan, understood, &prepared, &report);
    report
}

async fn carry_out(
    plan: &Plan,
    understood: &Understood,
    backend: &dyn Backend,
    prepared: &Prepared,
    teardown: &mut Teardown,
    findings: &mut Vec<Finding>,
) -> Result<Done, RunError> {
    for resource in backend.resources(plan) {
        teardown.will_make(resource);
    }
    let network = match &plan.network {
        None => None,
        Some(_) => Some(backend.connect(plan).await?),
    };
    let gateway = match (&network, &prepared.gateway) {
        (Some(network), Some(files)) => {
            prepare::tell_gateway(plan, understood, prepared, network)?;
            Some(backend.start_gateway(plan, network, files).await?)
        }
        (Some(_) | None, _) => None,
    };
    let mut inside = prepared.inside.clone();
    if let Some(gateway) = &gateway {
        let certificate = certificate(prepared, gateway).await?;
        inside.trust = Some(prepared.trust(&certificate, understood)?);
    }
    let watch = prepared.watch(plan);
    let listening = Listening::at(&inside.socket).map_err(LinkError::from)?;
    let sandbox = backend.create(plan, &inside, network.as_ref()).await?;
    let streams = backend.start(plan, &sandbox).await?;
    let (mut hearing, speaking) = listening.accept(STARTING).await?;

    let facts = hearing.facts(STARTING).await?;
    let (found, isolated) = probe::check(&facts, plan);
    *findings = found;
    let isolated =
        isolated.ok_or_else(|| RunError::NotIsolated { shortfalls: shortfalls(findings) })?;
    prepared.let_go();
    let started = Started { sandbox, streams, link: (hearing, speaking), watch };
    let keep_stdout = understood.request.keep_stdout;
    let seen = go(isolated, plan, backend, prepared, started, keep_stdout).await?;

    if let Some(gateway) = gateway {
        finish(prepared, gateway).await;
    }
    Ok(Done { outcome: judge(&seen), seen })
}

/// Lets the command run, in a sandbox that is as strong as planned.
async fn go(
    _isolated: Isolated,
    plan: &Plan,
    backend: &dyn Backend,
    prepared: &Prepared,
    mut started: Started,
    keep_stdout: bool,
) -> Result<Seen, RunError> {
    let mut recorder = Recorder::begin(plan, &prepared.evidence).map_err(RunError::Transcript)?;
    // As it was again when the command has ended.
    let _raw = if plan.tty { terminal::Raw::enter().ok() } else { None };
    if let Some(size) = terminal::size().filter(|_| plan.tty) {
        // A terminal of the wrong size is no reason not to start.
        drop(backend.resize(&started.sandbox, size).await);
    }
    started.link.1.order(Order::Go).await;
    let seen = exec(plan, backend, started, &mut recorder, keep_stdout).await?;
    recorder.end(judge(&seen).code()).map_err(RunError::Transcript)?;
    Ok(seen)
}

/// The certificate of the gateway's authority, once it serves.
async fn certificate(prepared: &Prepared, gateway: &GatewayHandle) -> Result<String, RunError> {
    let client = Client::new(prepared.control());
    let deadline = Instant::now() + STARTING;
    loop {
        let err = match client.ca_certificate().await {
            Ok(certificate) => return Ok(certificate),
            Err(err) => err,
        };
        if gateway.log.is_gone() || Instant::now() > deadline {
            return Err(RunError::Gateway { said: last_words(&gateway.log.text()), source: err });
        }
        time::sleep(A_MOMENT).await;
    }
}

/// Lets the gateway finish its log.
async fn finish(prepared: &Prepared, gateway: GatewayHandle) {
    // One that is gone already has nothing to finish.
    if Client::new(prepared.control()).drain().await.is_ok() {
        let deadline = Instant::now() + STARTING;
        while !gateway.log.is_gone() && Instant::now() < deadline {
            time::sleep(A_MOMENT).await;
        }
    }
}

fn last_words(log: &str) -> String {
    let mut lines: Vec<&str> = log.lines().rev().take(4).collect();
    lines.reverse();
    if lines.is_empty() { "nothing".to_owned() } else { lines.join(" / ") }
}

const A_MOMENT: Duration = Duration::from_millis(20);
/// A sandbox or a gateway that has not reported by then will not.
const STARTING: Duration = Duration::from_secs(30);

/// What happened, and what could not be cleaned up.
#[derive(Debug)]
#[must_use]
pub struct Report {
    pub begun: Timestamp,
    pub ended: Result<Done, RunError>,
    pub findings: Vec<Finding>,
    pub left: Vec<Left>,
    /// Parts of the evidence that could not be had, and why.
    pub missing: Vec<String>,
}

#[derive(Debug)]
pub struct Done {
    pub outcome: Outcome,
    pub seen: Seen,
}

/// Why there was no run, or no whole one.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("the gateway does not serve; it said: {said}")]
    Gateway { said: String, source: gateway::control::ClientError },
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("the sandbox is weaker than planned, so nothing was started: {shortfalls}")]
    NotIsolated { shortfalls: String },
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error("the transcript cannot be written")]
    Transcript(#[source] io::Error),
}

fn shortfalls(findings: &[Finding]) -> String {
    let missing = findings.iter().filter(|finding| !finding.holds);
    let all: Vec<_> = missing
        .map(|Finding { what, measured, wanted, .. }| {
            format!("{what} (found {measured}, wanted {wanted})")
        })
        .collect();
    all.join("; ")
}
