//! `sluice session start`: makes a sandbox, hands it its socket, and leaves it.

use clap::Args;
use engine::plan::{RunId, SessionPlan};
use engine::session::start::start;
use engine::session::state;
use jiff::Timestamp;
use policies::Span;
use serde::Serialize;

use super::ls::short;
use crate::caller;
use crate::console::{Console, Format};
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::request::{PlannedRun, RunFlags, print_plan};

/// Start a session, and print its name.
#[derive(Clone, Debug, Args)]
#[command(
    mut_arg("command", |arg| arg.hide(true)),
    mut_arg("shell", |arg| arg.hide(true)),
    after_help = "--timeout and --output-limit apply to each command; the other limits to the \
session as a whole.

  sluice session start --name work --ttl 2h
  sluice session exec work -- make test
  sluice session stop work"
)]
pub(crate) struct Start {
    /// Name of the session [default: the last part of its run id].
    #[arg(long, value_parser = state::name, env = "SLUICE_SESSION_NAME")]
    name: Option<String>,

    /// Lifetime, such as 30m, after which the session ends by itself.
    #[arg(
        long,
        value_name = "SPAN",
        value_parser = Span::parse,
        default_value = "2h",
        env = "SLUICE_SESSION_TTL"
    )]
    ttl: Span,

    #[command(flatten)]
    flags: RunFlags,
}

/// What is told of a session that was started.
#[derive(Debug, Serialize)]
struct Begun<'b> {
    name: &'b str,
    run: &'b RunId,
    until: Timestamp,
}

pub(crate) fn run(asked: &Start, console: &mut Console) -> Result<Exit, Failure> {
    if asked.flags.names_a_command() {
        let words =
            "`session start` takes no command; `sluice session exec` runs one in the session";
        return Err(Failure::Usage(words.to_owned()));
    }
    let mut resolved = asked.flags.resolve(environment::of_this_process(), console)?;
    if resolved.request.no_sandbox {
        return Err(Failure::Usage(
            "a session always has a sandbox; only `sluice run` can go without".to_owned(),
        ));
    }
    // Each command has a terminal or none.
    resolved.request.tty = false;
    let runtime = caller::runtime()?;
    let mut planned = PlannedRun::new(resolved, &runtime)?;
    let name = asked.name.clone().unwrap_or_else(|| planned.plan.run.short().to_owned());
    planned.plan.session = Some(asked.session_plan(&name)?);
    if asked.flags.dry_run {
        return print_plan(&planned.plan, console);
    }
    planned.say_notes(console);
    let started = runtime.block_on(async {
        planned.clear_the_way(console).await?;
        // All that took time, which is not the session's.
        planned.plan.session = Some(asked.session_plan(&name)?);
        let PlannedRun { plan, resolved, backend, .. } = &planned;
        start(plan, resolved, &**backend, name, &mut |note| console.note(note)).await
    });
    runtime.shutdown_background();
    let state = started.map_err(Failure::NotStarted)?;
    if console.format == Format::Table {
        console.line(&state.name)?;
        if !asked.flags.quiet {
            let (name, run, left) = (&state.name, state.run(), short(asked.ttl.get()));
            console.say(format_args!("session {name}, run {run}, ends in {left}"));
        }
    } else {
        console.json(&Begun { name: &state.name, run: state.run(), until: state.until() })?;
    }
    Ok(Exit::Success)
}

impl Start {
    /// The session as it would be if it began now.
    fn session_plan(&self, name: &str) -> Result<SessionPlan, Failure> {
        let ttl = self.ttl.get();
        let until = Timestamp::now().checked_add(ttl);
        let until = until.map_err(|_| Failure::Usage("--ttl is too long".to_owned()))?;
        Ok(SessionPlan { name: Some(name.to_owned()), ttl, until })
    }
}
