//! What came of a run.

use std::io;

use jiff::Timestamp;

use crate::backend::{BackendError, Provenance};
use crate::control::ControlError;
use crate::evidence::LeftOut;
use crate::first_process::CallError;
use crate::isolation::Finding;
use crate::link::LinkError;
use crate::outcome::{Outcome, RunObservations, StopReason, judge};
use crate::prepare::PrepareError;
use crate::teardown::Left;
use crate::work_budget::NotDone;

/// What happened, and what could not be cleaned up.
#[derive(Debug)]
#[must_use]
pub struct RunReport {
    pub begun: Timestamp,
    pub ended: Result<Done, RunError>,
    pub findings: Vec<Finding>,
    /// What the sandbox was made of, and by whom.
    pub used: Provenance,
    pub left: Vec<Left>,
    /// Parts of the evidence that could not be had, and why.
    pub missing: Vec<String>,
    /// Parts of it that are not whole, for want of time or because of a signal.
    pub not_done: Vec<NotDone>,
    /// What was declared as worth keeping and was not kept.
    pub artifacts_left_out: Vec<LeftOut>,
    /// How many files of the project it changed; nothing where nobody compared.
    pub changed: Option<usize>,
}

impl RunReport {
    /// Of what has begun and come to nothing yet.
    pub fn begun(begun: Timestamp) -> Self {
        Self {
            begun,
            ended: Err(RunError::NotStarted),
            findings: Vec::new(),
            used: Provenance::default(),
            left: Vec::new(),
            missing: Vec::new(),
            not_done: Vec::new(),
            artifacts_left_out: Vec::new(),
            changed: None,
        }
    }
}

#[derive(Debug)]
pub struct Done {
    pub outcome: Outcome,
    pub seen: RunObservations,
}

impl Done {
    /// Somebody changed their mind before the command had started.
    pub fn stopped(signal: u8) -> Self {
        let seen = RunObservations {
            stopped: Some(StopReason::Cancelled { signal }),
            ..RunObservations::default()
        };
        Self { outcome: judge(&seen), seen }
    }
}

/// Why there was no run, or no whole one.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("the gateway does not serve; it said: {said}")]
    Gateway { said: String, source: ControlError },
    #[error("the command cannot be started")]
    Command(#[source] CallError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("the sandbox is weaker than planned, so nothing was started: {shortfalls}")]
    NotIsolated { shortfalls: String },
    #[error("the run was not started")]
    NotStarted,
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error("the transcript cannot be written")]
    Transcript(#[source] io::Error),
    #[error("that there is no sandbox cannot be recorded, so nothing was started")]
    Unrecorded(#[source] anyhow::Error),
}
