//! `sluice session exec` and `shell`: one command in a session.
//!
//! What the command printed before its end is all passed on; for what a process in
//! the background might still print, nobody waits.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use engine::command;
use engine::first_process::CallError;
use engine::outcome::{Outcome, RunObservations, judge};
use engine::session::commands::{CommandEntry, Writing};
use engine::session::state::State;
use engine::supervise::{Caller, OVERDUE_SLACK, OutputSink as _, Supervision, supervise};
use policies::Span;
use protocol::init::{CommandEnd, CommandSpec, Streams, TerminalSize};
use tokio::task::spawn_blocking;

use super::find;
use crate::console::{Console, Format, Tone};
use crate::exit::{Exit, Failure};
use crate::terminal::output::CallerOutput;
use crate::{caller, credentials, terminal};

/// Run a command in a session. Its exit code is the command's.
#[derive(Clone, Debug, Args)]
pub(crate) struct Exec {
    /// Name of the session.
    #[arg(value_name = "NAME")]
    name: String,

    /// Allocate a terminal [default: if stdin and stdout are one].
    #[arg(short, long, env = "SLUICE_EXEC_TTY")]
    tty: bool,

    /// Pass on stdin without a terminal, unless with -t.
    #[arg(short, long, env = "SLUICE_EXEC_INTERACTIVE")]
    interactive: bool,

    /// Working directory [default: /workspace].
    #[arg(short = 'w', long = "workdir", value_name = "DIR", env = "SLUICE_EXEC_WORKDIR")]
    directory: Option<String>,

    /// Set a variable: NAME=VALUE, or NAME to pass on your own value.
    #[arg(
        short = 'e',
        long = "env",
        value_name = "NAME[=VALUE]",
        env = "SLUICE_EXEC_ENV",
        value_delimiter = ','
    )]
    env: Vec<String>,

    /// Time limit (wall clock), such as 30s; at most the session's.
    #[arg(long, value_parser = Span::parse, env = "SLUICE_EXEC_TIMEOUT")]
    timeout: Option<Span>,

    /// The command and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Open a shell in a session.
#[derive(Clone, Debug, Args)]
pub(crate) struct Shell {
    /// Name of the session.
    #[arg(value_name = "NAME")]
    name: String,
}

pub(crate) fn run(asked: &Exec, console: &mut Console) -> Result<Exit, Failure> {
    let ours = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let wanted = ExecRequest {
        words: asked.command.clone(),
        directory: asked.directory.clone(),
        environment: crate::request::environment(
            &asked.env,
            crate::environment::of_this_process(),
        )?,
        tty: asked.tty || (ours && !asked.interactive),
        timeout: asked.timeout.map(Span::get),
    };
    for warning in credentials::warnings(&wanted.environment, &wanted.words) {
        console.note(warning);
    }
    carry_out(&find(&asked.name)?, wanted, console)
}

pub(crate) fn shell(asked: &Shell, console: &mut Console) -> Result<Exit, Failure> {
    // Whatever the image has: one for people, else the one that is always there.
    let script = "command -v bash >/dev/null && exec bash -l; exec sh -l";
    let wanted = ExecRequest {
        words: ["sh", "-c", script].map(str::to_owned).to_vec(),
        directory: None,
        environment: Vec::new(),
        tty: true,
        timeout: None,
    };
    carry_out(&find(&asked.name)?, wanted, console)
}

/// A command, as it was meant.
struct ExecRequest {
    words: Vec<String>,
    directory: Option<String>,
    environment: Vec<(String, String)>,
    tty: bool,
    timeout: Option<Duration>,
}

fn carry_out(state: &State, wanted: ExecRequest, console: &mut Console) -> Result<Exit, Failure> {
    let most = state.plan().limits.timeout;
    let timeout = wanted.timeout.unwrap_or(most);
    if timeout > most {
        return Err(Failure::Usage(format!(
            "--timeout is more than this session's {most:?}, which `session start --timeout` sets"
        )));
    }
    let evidence = state.evidence()?;
    let writing =
        Writing::among_others(state.folder(), &evidence).context("the session has ended")?;
    let size = terminal::size_or_usual();
    let mut environment = wanted.environment;
    if wanted.tty && !environment.iter().any(|(name, _)| name == "TERM") {
        let kind = std::env::var("TERM").unwrap_or_else(|_| "xterm".to_owned());
        environment.push(("TERM".to_owned(), kind));
    }
    let command = CommandSpec {
        words: wanted.words.clone(),
        directory: wanted.directory.clone(),
        environment,
        streams: Streams::Spooled {
            max_output_bytes: state.plan().limits.output,
            terminal: wanted.tty.then_some(size),
        },
        deadline: Some(timeout),
        ends_sandbox: false,
        outlives_client: false,
    };
    let entry = CommandEntry::begin(&writing, wanted.words, wanted.directory, wanted.tty);
    let entry = entry.context("cannot record the command")?;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().context("cannot start the runtime")?;
    let mut caller = CallerOutput::new(console.format != Format::Table, wanted.tty);
    let carried = runtime.block_on(carry(state, command, timeout, size, &entry, &mut caller));
    // A read of the caller's terminal cannot be called back.
    runtime.shutdown_background();
    let seen = match carried {
        Ok(seen) => seen,
        Err(Uncarried::Call(err)) => {
            let CallError::Unstartable { code, why } = err else {
                entry.remove();
                return Err(anyhow::Error::new(err).context(NO_ANSWER).into());
            };
            console.error(&why);
            RunObservations {
                end: Some(CommandEnd::Unstartable { code, why }),
                ..RunObservations::default()
            }
        }
        Err(Uncarried::Failed(err)) => return Err(err.into()),
    };
    let outcome = judge(&seen);
    if !matches!(outcome, Outcome::Exited { .. }) {
        console.say_labelled(Tone::Bad, "sluice:", &outcome);
    }
    let code = outcome.code();
    let record = entry.end(outcome, seen.usage).context("cannot record how the command ended")?;
    drop(writing);
    if console.format != Format::Table {
        console.json(&record)?;
    }
    Ok(Exit::Command(code))
}

/// Why a command was not carried out.
enum Uncarried {
    Call(CallError),
    Failed(anyhow::Error),
}

/// Starts the command and supervises it to its end.
async fn carry(
    state: &State,
    command: CommandSpec,
    timeout: Duration,
    size: TerminalSize,
    entry: &CommandEntry,
    caller: &mut CallerOutput,
) -> Result<RunObservations, Uncarried> {
    let mut events = caller::listen();
    let user = state.plan().host_user;
    let (socket, spool) = (state.socket(), entry.spool());
    let input = Some(caller::input());
    let starting = move || command::start(&socket, command, &spool, user, input);
    let started = spawn_blocking(starting).await;
    let command = started.map_err(|err| Uncarried::Failed(err.into()))?.map_err(Uncarried::Call)?;
    let recorder = entry.recorder(state.plan().limits.output, size);
    let unwritten = |err: io::Error| {
        Uncarried::Failed(anyhow::Error::new(err).context("cannot write the transcript"))
    };
    let mut recorder = recorder.map_err(unwritten)?;
    caller.starts();
    let how = Supervision {
        overdue_after: timeout + state.plan().limits.grace + OVERDUE_SLACK,
        max_output_bytes: state.plan().limits.output,
        watch: state.watch(),
        gateway: None,
        sandbox: None,
        command_lives: None,
    };
    let seen = supervise(
        command,
        how,
        Caller { events: &mut events, sink: caller, recorder: Some(&mut recorder) },
    )
    .await;
    caller.ended().await;
    let seen = seen.map_err(|err| Uncarried::Failed(err.into()))?;
    recorder.end(judge(&seen).code()).map_err(unwritten)?;
    entry.remove_spool();
    Ok(seen)
}

const NO_ANSWER: &str = "the session does not answer; `sluice session ls` shows its state";
