//! What stays of a run: `run.json`, beside the policy, the log and the transcript.

use std::io;
use std::path::Path;

use jiff::Timestamp;
use serde::Serialize;

use super::phases::{Phase, Phases};
use super::{Done, Report};
use crate::backend::{Chunk, Side, TerminalSize, Used};
use crate::evidence::{Header, LeftOut, RunFolder, Stream, Transcript};
use crate::exec::Tap;
use crate::outcome::{Outcome, Usage};
use crate::plan::{Origin, Plan};
use crate::probe::Finding;
use crate::terminal;
use crate::work_budget::NotDone;

/// The run, for whoever reads its folder.
#[derive(Debug, Serialize)]
pub struct Record<'r> {
    pub run: &'r str,
    #[serde(flatten)]
    pub origin: &'r Origin,
    /// `running`, or `ended`.
    pub state: &'static str,
    pub begun: String,
    /// Nothing while it is going on.
    pub ended: Option<String>,
    pub outcome: Option<&'r Outcome>,
    /// Why there is none.
    pub error: Option<String>,
    pub exit_code: u8,
    pub usage: Option<&'r Usage>,
    /// What the sandbox was made of, and by whom.
    pub used: &'r Used,
    /// How long each part took; parts overlap.
    pub phases: Vec<Phase>,
    /// What isolation was in force, measured from inside.
    pub isolation: &'r [Finding],
    /// What could not be removed.
    pub left: Vec<String>,
    /// Parts of the evidence that could not be had.
    pub missing: &'r [String],
    /// Parts of it that are not whole, for want of time or because of a signal.
    pub not_done: &'r [NotDone],
    /// What was declared as worth keeping and was not kept.
    pub artifacts_left_out: &'r [LeftOut],
    pub plan: &'r Plan,
}

impl<'r> Record<'r> {
    /// Of what has begun and has no end yet. Left as it is, it is lost.
    pub fn begun(
        plan: &'r Plan,
        begun: Timestamp,
        isolation: &'r [Finding],
        used: &'r Used,
        phases: &Phases,
    ) -> Self {
        Self {
            run: plan.run.as_str(),
            origin: &plan.origin,
            state: "running",
            begun: begun.to_string(),
            ended: None,
            outcome: None,
            error: None,
            exit_code: 125,
            usage: None,
            used,
            phases: phases.taken(),
            isolation,
            left: Vec::new(),
            missing: &[],
            not_done: &[],
            artifacts_left_out: &[],
            plan,
        }
    }

    pub fn new(plan: &'r Plan, report: &'r Report, phases: &Phases) -> Self {
        let done = report.ended.as_ref().ok();
        Self {
            run: plan.run.as_str(),
            origin: &plan.origin,
            state: "ended",
            begun: report.begun.to_string(),
            ended: Some(Timestamp::now().to_string()),
            outcome: done.map(|Done { outcome, .. }| outcome),
            error: report.ended.as_ref().err().map(|err| format!("{:#}", Chain(err))),
            exit_code: done.map_or(125, |done| done.outcome.code()),
            usage: done.map(|Done { seen, .. }| &seen.usage),
            used: &report.used,
            phases: phases.taken(),
            isolation: &report.findings,
            left: report
                .left
                .iter()
                .map(|left| format!("{}: {}", left.resource, left.why))
                .collect(),
            missing: &report.missing,
            not_done: &report.not_done,
            artifacts_left_out: &report.artifacts_left_out,
            plan,
        }
    }
}

/// An error with what caused it, in one line.
pub(crate) struct Chain<'e>(pub(crate) &'e dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(err) = cause {
            write!(f, ": {err}")?;
            cause = err.source();
        }
        Ok(())
    }
}

/// What the command printed, kept as it happens. A recording that cannot be
/// written any more ends; the run does not.
#[derive(Debug)]
pub(crate) struct Recorder(Option<Transcript>);

impl Recorder {
    pub(crate) fn begin(plan: &Plan, folder: &RunFolder) -> io::Result<Self> {
        Self::at(&folder.transcript(), &plan.command, plan.limits.output)
    }

    /// Records a command in a new file, up to so many bytes of what it prints.
    pub(crate) fn at(path: &Path, command: &[String], limit: u64) -> io::Result<Self> {
        let size = terminal::size().unwrap_or(TerminalSize { columns: 80, rows: 24 });
        let header = Header::new(command, size.columns, size.rows);
        Transcript::create(path, &header, limit).map(|transcript| Self(Some(transcript)))
    }

    pub(crate) fn end(self, code: u8) -> io::Result<()> {
        match self.0 {
            Some(transcript) => transcript.exit(code.into()).map(drop),
            None => Err(io::Error::other("the transcript broke off")),
        }
    }
}

impl Tap for Recorder {
    fn printed(&mut self, chunk: &Chunk) {
        let stream = match chunk.to {
            Side::Err => Stream::Error,
            Side::Out => Stream::Output,
        };
        if let Some(transcript) = &mut self.0
            && transcript.output(stream, &chunk.bytes).is_err()
        {
            self.0 = None;
        }
    }

    fn resized(&mut self, size: TerminalSize) {
        if let Some(transcript) = &mut self.0
            && transcript.resize(size.columns, size.rows).is_err()
        {
            self.0 = None;
        }
    }
}
