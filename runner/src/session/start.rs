//! `sluice session start`: makes a sandbox, hands it its socket, and leaves it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use policies::Span;
use serde::Serialize;
use tokio::runtime::Runtime;
use tokio::time;

use super::call::Answer;
use super::ls::short;
use super::state::{self, CommandLimits, State};
use crate::backend::Backend;
use crate::console::{Console, Format, Tone};
use crate::exit::{Exit, Failure};
use crate::plan::{Machine, Plan, RunId, SessionPlan, Shown as ShownPlan, plan};
use crate::probe::Finding;
use crate::request::{AGENT_IMAGE, RunFlags, Understood};
use crate::run::prepare::{self, Prepared};
use crate::run::record::{Chain, Record};
use crate::run::unsealed;
use crate::run::{PrepareError, Report, RunError, Standing, close, raise};
use crate::shown::Shown;
use crate::sweep::sweep;
use crate::teardown::{Resource, Teardown};
use crate::work_budget::WorkBudget;
use crate::{backend, config, place};

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
    let config = config::load(&place::environment)?;
    let mut understood = asked.flags.understand(&config, &place::environment, console)?;
    if !understood.request.command.is_empty() {
        let words = "a session begins without a command; `sluice session exec` runs one in it";
        return Err(Failure::Usage(words.to_owned()));
    }
    if understood.request.no_sandbox {
        return Err(Failure::Usage("a session without a sandbox is your own shell".to_owned()));
    }
    // Each command has a terminal or none.
    understood.request.tty = false;
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let opened = match runtime.block_on(backend::open(understood.request.backend)) {
        Ok(opened) => opened,
        Err(err) => return Ok(not_started(&anyhow::Error::new(err), console)),
    };
    let (backend, machine) = (&*opened.backend, Machine::this());
    let Understood { request, policy, .. } = &understood;
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
            Format::Table => console.raw(ShownPlan(&plan).to_string().as_bytes())?,
        }
        return Ok(Exit::Success);
    }
    for note in opened.why.iter().chain(&plan.notes) {
        let word = console.toned_aside(Tone::Warn, "note:");
        console.say(format_args!("{word} {}", Shown(note)));
    }
    let started = runtime.block_on(async {
        // Any other image is its owner's business; creating the sandbox says so.
        if plan.image == AGENT_IMAGE && !backend.has_image(AGENT_IMAGE).await {
            console.say(format_args!("building {AGENT_IMAGE}, this once; about a minute"));
            backend.build_image(AGENT_IMAGE).await?;
        }
        // Whatever was killed, or is over, goes first; and makes room for names.
        drop(sweep(backend).await);
        // All that took time, which is not the session's.
        let until = until().map_err(anyhow::Error::new)?;
        plan.session = Some(SessionPlan { name: Some(name.clone()), ttl, until });
        let mut say = |note: &str| {
            let word = console.toned_aside(Tone::Warn, "note:");
            console.say(format_args!("{word} {}", Shown(note)));
        };
        start(&plan, &understood, backend, name, &mut say).await
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
            console.say(format_args!("session {}, run {}, ends in {left}", state.name, state.run));
        }
    } else {
        console.json(&Begun { name: &state.name, run: &state.run, until: state.until })?;
    }
    Ok(Exit::Success)
}

fn not_started(err: &anyhow::Error, console: &mut Console) -> Exit {
    let word = console.toned_aside(Tone::Bad, "error:");
    console.say(format_args!("{word} {}", Shown(&format!("{err:#}"))));
    Exit::Command(125)
}

/// Makes the sandbox; what was made is undone if it cannot be left alone.
async fn start(
    plan: &Plan,
    understood: &Understood,
    backend: &dyn Backend,
    name: String,
    say: &mut dyn FnMut(&str),
) -> anyhow::Result<State> {
    let begun = Timestamp::now();
    let mut teardown = Teardown::default();
    teardown.will_make(Resource::Folder(prepare::folder(plan)));
    let prepared = match prepare::prepare(plan, understood) {
        Ok(prepared) => prepared,
        Err(err) => {
            drop(teardown.run(backend).await);
            return Err(err.into());
        }
    };
    for words in prepared.secrets_in_words() {
        say(&words);
    }
    let mut state = describe(plan, understood, &prepared, name, begun);
    if let Err(err) = state.claim() {
        drop(teardown.run(backend).await);
        drop(prepared.evidence.remove());
        return Err(err);
    }
    // Held while it is being made; after that it goes on without us.
    let sealer = state.unsealed().begin(plan, understood, &prepared.evidence);
    let mut findings = Vec::new();
    let raised = leave(plan, understood, backend, &prepared, &mut teardown, &mut findings);
    match raised.await {
        Ok(sandbox) => {
            state.sandbox = Some(sandbox);
            let used = backend.used(&plan.image).await;
            let record = Record::begun(plan, begun, &findings, &used, &understood.phases);
            prepared.evidence.write_run(&record)?;
            state.write()?;
            drop(sealer);
            Ok(state)
        }
        Err(err) => {
            let words = Chain(&err).to_string();
            let left = teardown.run(backend).await;
            let mut report = Report { ended: Err(err), findings, left, ..Report::begun(begun) };
            let budget = WorkBudget::unattended();
            close::close(plan, understood, &prepared, &mut report, &budget);
            if let Some(sealer) = sealer {
                sealer.done();
            }
            Err(anyhow::anyhow!(words))
        }
    }
}

/// Raises the sandbox and hands it its socket; what the backend calls it. From
/// here on nothing of it depends on us.
async fn leave(
    plan: &Plan,
    understood: &Understood,
    backend: &dyn Backend,
    prepared: &Prepared,
    teardown: &mut Teardown,
    findings: &mut Vec<Finding>,
) -> Result<String, RunError> {
    let turn = prepared.turn(backend).await;
    let raised = raise(plan, understood, backend, prepared, teardown, findings).await?;
    drop(turn);
    let (Standing { started, gateway }, _isolated) = raised;
    let path = state::socket(&prepare::folder(plan));
    let failed = |source| {
        let (doing, path) = ("listen at", path.clone());
        RunError::Prepare(PrepareError::Disk { doing, path, source })
    };
    let door = UnixListener::bind(&path).map_err(failed)?;
    fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(failed)?;
    let (_hearing, speaking) = started.link;
    speaking.serve(&door).await?;
    // As long as we hold it too, nobody would be told that the sandbox is gone.
    drop(door);
    let deadline = Instant::now() + ANSWERING;
    while !matches!(super::call::hello(&path), Answer::Alive { .. }) {
        if Instant::now() > deadline {
            return Err(RunError::Link(crate::link::LinkError::Silent));
        }
        time::sleep(Duration::from_millis(5)).await;
    }
    // What we held of it goes, and nothing of it with us.
    drop((started.streams, gateway));
    Ok(started.sandbox.name)
}

const ANSWERING: Duration = Duration::from_secs(10);

fn describe(
    plan: &Plan,
    understood: &Understood,
    prepared: &Prepared,
    name: String,
    begun: Timestamp,
) -> State {
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    State {
        name,
        run: plan.run.clone(),
        backend: plan.backend.to_owned(),
        sandbox: None,
        image: plan.image.clone(),
        uid: plan.host_user.uid,
        gid: plan.host_user.gid,
        begun,
        until: plan.session.as_ref().map_or(begun, |session| session.until),
        network: plan.network.is_some(),
        limits: CommandLimits {
            timeout_millis: millis(plan.limits.timeout),
            grace_millis: millis(plan.limits.grace),
            output: plan.limits.output,
            disk: plan.limits.disk,
            files: plan.limits.files(),
        },
        runs: understood.request.runs.clone(),
        state: understood.state.clone(),
        workspace: unsealed::layout(plan, understood, prepared),
    }
}
