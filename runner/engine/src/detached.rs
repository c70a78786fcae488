//! A run that outlives whoever started it.
//!
//! [`start`] gives back a [`Handle`] that can be written down; any process of the
//! same user can [`attach`] with it, [`signal`] the command and [`finish`] the run. A
//! handle carries no authority: whoever may enter the run's folder may do all of it.
//! The first process and the gateway keep the run's deadline by themselves; what the
//! command prints is in the spool, whoever reads it and when.
//!
//! Nobody but who attaches sees that the project's disk is full or that the gateway
//! died: until then a run without a gateway has no network, and one that wrote too much
//! is found out when it is finished.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use inside::passing;
use jiff::Timestamp;
use protocol::init::{CommandEnd, CommandOrder, TerminalSize};
use protocol::spool::{SpoolEnd, SpoolEvent};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use crate::backend::Backend;
use crate::command::{self, RunningCommand};
use crate::first_process::{self, CallError};
use crate::outcome::RunObservations;
use crate::plan::{Plan, SessionPlan};
use crate::run::run_spec;
use crate::run_id::RunId;
use crate::run_lock;
use crate::session::finish::{Finished, Why, finish as finish_session};
use crate::session::start::start as start_session;
use crate::session::state::State;
use crate::spec::ResolvedRun;
use crate::supervise::{Caller, OVERDUE_SLACK, Supervision, supervise};
use crate::work_budget::WorkBudget;

/// A run that goes on by itself.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Handle {
    pub run: RunId,
    /// The folder that goes with it.
    pub folder: PathBuf,
}

/// Starts the plan's command in a sandbox of its own, and leaves it.
pub async fn start(
    mut plan: Plan,
    resolved: &ResolvedRun,
    backend: &dyn Backend,
    say: &mut dyn FnMut(&str),
) -> anyhow::Result<Handle> {
    // The sandbox keeps the command's deadline, and a little later its own.
    let ttl = plan.limits.timeout + plan.limits.grace + OVERDUE_SLACK;
    let until = Timestamp::now().checked_add(ttl).context("the timeout is too long")?;
    plan.session = Some(SessionPlan { name: None, ttl, until });
    plan.tty = false;
    let name = plan.run.short().to_owned();
    let state = start_session(&plan, resolved, backend, name, say).await?;
    let (socket, spool) = (state.socket(), state.evidence()?.spool());
    let (spec, user) = (run_spec(&plan, NO_TERMINAL), plan.host_user);
    let starting = move || {
        let started = command::start(&socket, spec, &spool, user, None);
        started.inspect_err(|err| drop(explain(err, &spool)))
    };
    let handle = Handle { run: state.run().clone(), folder: state.folder().to_owned() };
    match spawn_blocking(starting).await? {
        Ok(_) => Ok(handle),
        Err(err) => {
            drop(finish(&handle, backend).await);
            Err(err.into())
        }
    }
}

/// Writes down why a command was not started, where its end would have been and where
/// a shell would have said so.
fn explain(err: &CallError, spool: &Path) -> io::Result<()> {
    let CallError::Unstartable { code, why } = err else { return Ok(()) };
    let end = CommandEnd::Unstartable { code: *code, why: why.clone() };
    let said = SpoolEvent::Error(format!("{why}\n").into_bytes());
    let ended = SpoolEvent::Ended(SpoolEnd { end, facts: Vec::new() });
    let frames = [said, ended].map(|event| event.frame(Duration::ZERO));
    OpenOptions::new().append(true).open(spool)?.write_all(&frames.concat())
}

/// Follows the command from `offset` in its spool until it has ended, and passes on
/// what the caller says. Leaving does not end it; being there does, when it has written
/// more than it may or has lost its gateway.
pub async fn attach(
    handle: &Handle,
    offset: u64,
    caller: Caller<'_>,
) -> anyhow::Result<RunObservations> {
    let state = handle.state()?;
    let limits = &state.plan().limits;
    let how = Supervision {
        overdue_after: limits.timeout + limits.grace + OVERDUE_SLACK,
        max_output_bytes: limits.output,
        watch: state.watch(),
        gateway: state.gateway(),
        sandbox: None,
        command_lives: None,
    };
    let command = handle.follow(offset).await?;
    let seen = supervise(command, how, caller).await?;
    if let Some(reason) = seen.stopped {
        state.write_stop_reason(reason)?;
    }
    Ok(seen)
}

/// Sends the command a signal.
pub async fn signal(handle: &Handle, number: u8) -> anyhow::Result<()> {
    let socket = handle.state()?.socket();
    let sending = move || {
        let connection = first_process::attach(&socket)?;
        let line = passing::line(&CommandOrder::Signal(number))?;
        anyhow::Ok(passing::send_all(&connection, &line, &[])?)
    };
    spawn_blocking(sending).await?
}

/// Ends whatever still lives of it, closes and seals its evidence, and removes what
/// was made for it.
pub async fn finish(handle: &Handle, backend: &dyn Backend) -> anyhow::Result<Finished> {
    let state = handle.state()?;
    let held = run_lock::try_lock(&handle.folder).context("somebody else is finishing it")?;
    let budget = WorkBudget::unattended();
    Ok(finish_session(&state, Why::Stopped, backend, held, &budget).await)
}

impl Handle {
    fn state(&self) -> anyhow::Result<State> {
        let state = State::in_folder(&self.folder);
        state.with_context(|| format!("there is no run in {}", self.folder.display()))
    }

    async fn follow(&self, offset: u64) -> anyhow::Result<RunningCommand> {
        let state = self.state()?;
        let (socket, spool) = (state.socket(), state.evidence()?.spool());
        Ok(spawn_blocking(move || command::attach(&socket, &spool, offset)).await??)
    }
}

/// The size of a terminal that nobody looks at.
pub(crate) const NO_TERMINAL: TerminalSize = TerminalSize { columns: 80, rows: 24 };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::RunFolder;
    use crate::spooled::{end_of_run, finish_transcripts};

    #[test]
    fn a_command_that_was_not_started_is_on_record_with_its_reason() {
        let home = tempfile::tempdir().unwrap();
        let evidence = RunFolder::create(&home.path().join("runs"), "r1").unwrap();
        std::fs::write(evidence.spool(), "").unwrap();
        let why = "cannot start `nope`: there is none".to_owned();
        let err = CallError::Unstartable { code: 127, why: why.clone() };
        explain(&err, &evidence.spool()).unwrap();
        let end = end_of_run(&evidence).unwrap().end;
        assert_eq!(end, CommandEnd::Unstartable { code: 127, why: why.clone() });
        finish_transcripts(&evidence, &[]).unwrap();
        let text = std::fs::read_to_string(evidence.transcript()).unwrap();
        assert!(text.contains(&why) && text.contains(r#""x", "127""#), "{text}");
    }
}
