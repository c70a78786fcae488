//! `sluice session start`: makes a sandbox, hands it its socket, and leaves it.

use anyhow::Context as _;
use clap::Args;
use engine::backend;
use engine::plan::{Machine, PlanText, RunId, SessionPlan, plan};
use engine::session::start::start;
use engine::session::state;
use engine::sweep::sweep;
use files::printable::Printable;
use jiff::Timestamp;
use policies::Span;
use serde::Serialize;
use tokio::runtime::Runtime;

use super::ls::short;
use crate::config;
use crate::console::{Console, Format, Tone};
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::request::{AGENT_IMAGE, ResolvedRun, RunFlags};

/// Start a sandbox that is kept, and print its name.
#[derive(Clone, Debug, Args)]
#[command(
    mut_arg("command", |arg| arg.hide(true)),
    mut_arg("shell", |arg| arg.hide(true)),
    after_help = "--timeout and --output-limit are for each command; the other limits for all \
of them together.

  sluice session start --name work --ttl 2h
  sluice session exec work -- make test
  sluice session stop work"
)]
pub(crate) struct Start {
    /// How it is called [default: the last part of its run].
    #[arg(long, value_parser = state::name, env = "SLUICE_SESSION_NAME", hide_env_values = true)]
    name: Option<String>,

    /// How long it lives, such as 30m; then it ends by itself.
    #[arg(
        long,
        value_name = "SPAN",
        value_parser = Span::parse,
        default_value = "2h",
        env = "SLUICE_SESSION_TTL",
        hide_env_values = true
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
    let config = config::load(environment::of_this_process())?;
    let mut resolved = asked.flags.understand(&config, environment::of_this_process(), console)?;
    if !resolved.request.command.is_empty() {
        let words = "a session begins without a command; `sluice session exec` runs one in it";
        return Err(Failure::Usage(words.to_owned()));
    }
    if resolved.request.no_sandbox {
        return Err(Failure::Usage("a session without a sandbox is your own shell".to_owned()));
    }
    // Each command has a terminal or none.
    resolved.request.tty = false;
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let opened = match runtime
        .block_on(backend::open(resolved.request.backend, environment::of_this_process()))
    {
        Ok(opened) => opened,
        Err(err) => return Ok(not_started(&anyhow::Error::new(err), console)),
    };
    let (backend, machine) = (&*opened.backend, Machine::this());
    let ResolvedRun { request, policy, .. } = &resolved;
    let planned = plan(RunId::now(), request, policy, &machine, &backend.abilities());
    let mut plan = planned.map_err(|err| Failure::Usage(err.to_string()))?;
    let ttl = asked.ttl.get();
    let until = || {
        let until = Timestamp::now().checked_add(ttl);
        until.map_err(|_| Failure::Usage("--ttl is too long".to_owned()))
    };
    let name = asked.name.clone().unwrap_or_else(|| plan.run.short().to_owned());
    plan.session = Some(SessionPlan { name: Some(name.clone()), ttl, until: until()? });
    if asked.flags.dry_run {
        match console.format {
            Format::Json | Format::Jsonl => console.json(&plan)?,
            Format::Table => console.raw(PlanText(&plan).to_string().as_bytes())?,
        }
        return Ok(Exit::Success);
    }
    for note in opened.why.iter().chain(&plan.notes) {
        let word = console.toned_aside(Tone::Warn, "note:");
        console.say(format_args!("{word} {}", Printable(note)));
    }
    let started = runtime.block_on(async {
        // Any other image is its owner's business; creating the sandbox says so.
        if plan.image == AGENT_IMAGE && !backend.has_image(AGENT_IMAGE).await {
            console.say(format_args!("building {AGENT_IMAGE}, this once; about a minute"));
            backend.build_image(AGENT_IMAGE).await?;
        }
        // Whatever was killed, or is over, goes first; and makes room for names.
        drop(sweep(backend, &resolved.environment).await);
        // All that took time, which is not the session's.
        let until = until().map_err(anyhow::Error::new)?;
        plan.session = Some(SessionPlan { name: Some(name.clone()), ttl, until });
        let mut say = |note: &str| {
            let word = console.toned_aside(Tone::Warn, "note:");
            console.say(format_args!("{word} {}", Printable(note)));
        };
        start(&plan, &resolved, backend, name, &mut say).await
    });
    runtime.shutdown_background();
    let state = match started {
        Ok(state) => state,
        Err(err) => return Ok(not_started(&err, console)),
    };
    if console.format == Format::Table {
        console.line(&state.name)?;
        if !asked.flags.quiet {
            let left = short(ttl);
            console.say(format_args!(
                "session {}, run {}, ends in {left}",
                state.name,
                state.run()
            ));
        }
    } else {
        console.json(&Begun { name: &state.name, run: state.run(), until: state.until() })?;
    }
    Ok(Exit::Success)
}

fn not_started(err: &anyhow::Error, console: &mut Console) -> Exit {
    let word = console.toned_aside(Tone::Bad, "error:");
    console.say(format_args!("{word} {}", Printable(&format!("{err:#}"))));
    Exit::Command(125)
}
