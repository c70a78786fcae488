//! What stays of a run: `run.json`, beside the policy, the log and the transcript.

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use audit::ErrorChain;
use jiff::Timestamp;
use protocol::init::TerminalSize;
use serde::{Deserialize, Serialize};

use crate::backend::{Chunk, OutputSide, Provenance};
use crate::command::CommandEvent;
use crate::evidence::{Header, LeftOut, RunFolder, Stream, Transcript};
use crate::isolation::Finding;
use crate::origin::Origin;
use crate::outcome::{Outcome, Usage};
use crate::phases::{Phase, Phases};
use crate::plan::Plan;
use crate::report::{Done, RunReport};
use crate::run_id::RunId;
use crate::settings;
use crate::spec::ResolvedRun;
use crate::work_budget::NotDone;

/// The run, for whoever reads its folder.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Record {
    pub run: RunId,
    #[serde(flatten)]
    pub origin: Origin,
    pub state: RunState,
    pub begun: Timestamp,
    /// Nothing while it is going on, and where nobody was there to see.
    pub ended: Option<Timestamp>,
    pub outcome: Option<Outcome>,
    /// Why there is none.
    pub error: Option<String>,
    pub exit_code: u8,
    pub usage: Option<Usage>,
    /// What the sandbox was made of, and by whom.
    pub used: Provenance,
    /// How long each part took; parts overlap.
    pub phases: Vec<Phase>,
    /// What isolation was in force, measured from inside.
    pub isolation: Vec<Finding>,
    /// What could not be removed.
    pub left: Vec<String>,
    /// Parts of the evidence that could not be had.
    pub missing: Vec<String>,
    /// Parts of it that are not whole, for want of time or because of a signal.
    pub not_done: Vec<NotDone>,
    /// What was declared as worth keeping and was not kept.
    pub artifacts_left_out: Vec<LeftOut>,
    pub plan: Plan,
    /// Who closed it, if that was not its own runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed_by: Option<Cow<'static, str>>,
    /// What a session's commands came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<Vec<CommandRecord>>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    Ended,
    Running,
}

/// One command of a session: `command.json`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CommandRecord {
    pub number: u32,
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    pub tty: bool,
    pub begun: Timestamp,
    pub ended: Option<Timestamp>,
    pub outcome: Option<Outcome>,
    pub exit_code: Option<u8>,
    pub usage: Option<Usage>,
}

impl Record {
    /// Of what has begun and has no end yet. Left as it is, it is lost.
    pub fn begun(plan: &Plan, begun: Timestamp) -> Self {
        Self {
            run: plan.run.clone(),
            origin: plan.origin.clone(),
            state: RunState::Running,
            begun,
            ended: None,
            outcome: None,
            error: None,
            exit_code: 125,
            usage: None,
            used: Provenance::default(),
            phases: Vec::new(),
            isolation: Vec::new(),
            left: Vec::new(),
            missing: Vec::new(),
            not_done: Vec::new(),
            artifacts_left_out: Vec::new(),
            plan: plan.clone(),
            sealed_by: None,
            commands: None,
        }
    }

    pub fn new(plan: &Plan, report: &RunReport, phases: &Phases) -> Self {
        let done = report.ended.as_ref().ok();
        let left = report.left.iter().map(|left| format!("{}: {}", left.resource, left.why));
        Self {
            state: RunState::Ended,
            ended: Some(Timestamp::now()),
            outcome: done.map(|Done { outcome, .. }| outcome.clone()),
            error: report.ended.as_ref().err().map(|err| in_words(err)),
            exit_code: done.map_or(125, |done| done.outcome.code()),
            usage: done.map(|Done { seen, .. }| seen.usage.clone()),
            used: report.used.clone(),
            phases: phases.taken(),
            isolation: report.findings.clone(),
            left: left.collect(),
            missing: report.missing.clone(),
            not_done: report.not_done.clone(),
            artifacts_left_out: report.artifacts_left_out.clone(),
            ..Self::begun(plan, report.begun)
        }
    }
}

/// Keeps what a command printed, as it happens and whoever else wants to know. A
/// recording that cannot be written any more ends; the command goes on, and the run is
/// reported as failed when it has ended.
#[derive(Debug)]
pub struct Recorder {
    transcript: Option<Transcript>,
    /// What the transcript takes for the time.
    at: Arc<AtomicU64>,
}

impl Recorder {
    /// Records a command in a new file, up to so many bytes of what it prints.
    pub fn begin(
        path: &Path,
        command: &[String],
        limit: u64,
        size: TerminalSize,
    ) -> io::Result<Self> {
        let header = Header::new(command, size.columns, size.rows);
        let at = Arc::new(AtomicU64::new(0));
        let now = Arc::clone(&at);
        let clock = Box::new(move || Duration::from_micros(now.load(Ordering::Relaxed)));
        let transcript = Transcript::create(path, &header, limit, clock)?;
        Ok(Self { transcript: Some(transcript), at })
    }

    pub fn record(&mut self, event: &CommandEvent) {
        let Some(transcript) = &mut self.transcript else { return };
        let (at, chunk) = match event {
            CommandEvent::Ended(_) => return,
            CommandEvent::Printed(chunk, at) => (at, Ok(chunk)),
            CommandEvent::Resized(size, at) => (at, Err(size)),
        };
        self.at.store(u64::try_from(at.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        let written = match chunk {
            Ok(Chunk { to: OutputSide::Err, bytes }) => transcript.output(Stream::Error, bytes),
            Ok(Chunk { to: OutputSide::Out, bytes }) => transcript.output(Stream::Output, bytes),
            Err(size) => transcript.resize(size.columns, size.rows),
        };
        if written.is_err() {
            self.transcript = None;
        }
    }

    pub fn end(self, code: u8) -> io::Result<()> {
        match self.transcript {
            Some(transcript) => transcript.exit(code.into()).map(drop),
            None => Err(io::Error::other("the transcript broke off")),
        }
    }
}

/// The policy's own file first, then what it extends, as they were read.
pub fn policy_text(resolved: &ResolvedRun) -> String {
    let mut text = settings::registries_meant(&resolved.upstream.registries);
    for host in &resolved.for_gateway.allow {
        text.push_str(&format!("# this run may also reach {host}\n"));
    }
    for (path, part) in &resolved.for_gateway.texts {
        text.push_str(&format!("# {}\n{part}", path.display()));
        if !part.ends_with('\n') {
            text.push('\n');
        }
    }
    text
}

pub fn write_policy(resolved: &ResolvedRun, evidence: &RunFolder) -> Result<(), String> {
    evidence.write_policy(&policy_text(resolved)).map_err(|err| in_words(&err))
}

/// An error with what caused it.
pub fn in_words(err: &dyn std::error::Error) -> String {
    ErrorChain(err).to_string()
}
