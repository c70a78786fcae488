//! A run that outlives whoever started it.
//!
//! [`start`] gives back a [`Handle`] that can be written down; any process of the
//! same user can [`attach`] with it, [`signal`] the command and [`finish`] the run. A
//! handle carries no authority: whoever may enter the run's folder may do all of it.
//! The first process and the gateway keep the run's deadline by themselves; what the
//! command prints is in the spool, whoever reads it and when.

use std::path::PathBuf;

use anyhow::Context as _;
use inside::passing;
use jiff::Timestamp;
use protocol::init::{CommandOrder, TerminalSize};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use crate::backend::Backend;
use crate::command::{self, RunningCommand};
use crate::disk::Watch;
use crate::first_process;
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
    let starting = move || command::start(&socket, spec, &spool, user, None);
    let started = spawn_blocking(starting).await?;
    if let Err(err) = started {
        let handle = Handle { run: state.run().clone(), folder: state.folder().to_owned() };
        drop(finish(&handle, backend).await);
        return Err(err.into());
    }
    Ok(Handle { run: state.run().clone(), folder: state.folder().to_owned() })
}

/// Follows the command from `offset` in its spool until it has ended, and passes on
/// what the caller says. Leaving does not end it.
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
        watch: Watch::nothing(),
        gateway: None,
        sandbox: None,
        command_lives: None,
    };
    let command = handle.follow(offset).await?;
    Ok(supervise(command, how, caller).await?)
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
    let held = run_lock::try_hold(&handle.folder).context("somebody else is finishing it")?;
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

const NO_TERMINAL: TerminalSize = TerminalSize { columns: 80, rows: 24 };
