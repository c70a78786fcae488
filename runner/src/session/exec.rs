//! `sluice session exec` and `shell`: one command in a session.
//!
//! Streams go from process to process; the sandbox's first process only starts
//! the command and says how it ended. What the command printed before its end is
//! all passed on; for what a process in the background might still print, nobody
//! waits.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use policies::Span;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::{select, time};

use super::call::{self, Begun, CallError, Ends};
use super::commands::{Entry, Writing};
use super::flow::Flow;
use super::state::State;
use crate::backend::{Chunk, Side, TerminalSize};
use crate::console::{Console, Format, Tone};
use crate::disk::{Watch, Watched};
use crate::exec::{Heard, LATER, PIPE, Signals, Tap, feed, is_over};
use crate::exit::{Exit, Failure};
use crate::init::wire::Order;
use crate::init::wire::ask::{Command, Size, Streams};
use crate::link;
use crate::outcome::{Outcome, Seen, Stopped, Usage, judge};
use crate::plan::UserIds;
use crate::shown::Shown;
use crate::terminal::output::CallerOutput;
use crate::{credentials, terminal, workspace};

/// Run a command in a session. Its exit code is the command's.
#[derive(Clone, Debug, Args)]
pub(crate) struct Exec {
    /// The session.
    #[arg(value_name = "NAME")]
    name: String,

    /// Give it a terminal [default: if we have one].
    #[arg(short, long, env = "SLUICE_EXEC_TTY", hide_env_values = true)]
    tty: bool,

    /// Give it our input and no terminal, unless with -t.
    #[arg(short, long, env = "SLUICE_EXEC_INTERACTIVE", hide_env_values = true)]
    interactive: bool,

    /// Where it starts [default: /workspace].
    #[arg(
        short = 'w',
        long = "workdir",
        value_name = "DIR",
        env = "SLUICE_EXEC_WORKDIR",
        hide_env_values = true
    )]
    directory: Option<String>,

    /// A variable for it: NAME=VALUE, or NAME to pass ours on.
    #[arg(
        short = 'e',
        long = "env",
        value_name = "NAME[=VALUE]",
        env = "SLUICE_EXEC_ENV",
        value_delimiter = ',',
        hide_env_values = true
    )]
    env: Vec<String>,

    /// Wall clock, such as 30s; at most what the session permits.
    #[arg(long, value_parser = Span::parse, env = "SLUICE_EXEC_TIMEOUT", hide_env_values = true)]
    timeout: Option<Span>,

    /// The command and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Open a shell in a session.
#[derive(Clone, Debug, Args)]
pub(crate) struct Shell {
    /// The session.
    #[arg(value_name = "NAME")]
    name: String,
}

pub(crate) fn run(asked: &Exec, console: &mut Console) -> Result<Exit, Failure> {
    let ours = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let wanted = Wanted {
        words: asked.command.clone(),
        directory: asked.directory.clone(),
        environment: crate::request::environment(&asked.env, &crate::place::environment)?,
        tty: asked.tty || (ours && !asked.interactive),
        timeout: asked.timeout.map(Span::get),
    };
    for warning in credentials::warnings(&wanted.environment, &wanted.words) {
        let word = console.toned_aside(Tone::Warn, "note:");
        console.say(format_args!("{word} {}", Shown(&warning)));
    }
    carry_out(&State::find(&asked.name)?, wanted, console)
}

pub(crate) fn shell(asked: &Shell, console: &mut Console) -> Result<Exit, Failure> {
    // Whatever the image has: one for people, else the one that is always there.
    let script = "command -v bash >/dev/null && exec bash -l; exec sh -l";
    let wanted = Wanted {
        words: ["sh", "-c", script].map(str::to_owned).to_vec(),
        directory: None,
        environment: Vec::new(),
        tty: true,
        timeout: None,
    };
    carry_out(&State::find(&asked.name)?, wanted, console)
}

/// A command, as it was meant.
struct Wanted {
    words: Vec<String>,
    directory: Option<String>,
    environment: Vec<(String, String)>,
    tty: bool,
    timeout: Option<Duration>,
}

fn carry_out(state: &State, wanted: Wanted, console: &mut Console) -> Result<Exit, Failure> {
    let most = state.limits.timeout();
    let timeout = wanted.timeout.unwrap_or(most);
    if timeout > most {
        return Err(Failure::Usage(format!(
            "a command of this session has {most:?} at most; `session start --timeout` sets it"
        )));
    }
    let evidence = state.evidence()?;
    let folder = state.folder();
    let writing = Writing::among_others(&folder).context("the session is not there any more")?;
    let size = terminal::size().unwrap_or(TerminalSize { columns: 80, rows: 24 });
    let mut environment = wanted.environment;
    if wanted.tty && !environment.iter().any(|(name, _)| name == "TERM") {
        let kind = std::env::var("TERM").unwrap_or_else(|_| "xterm".to_owned());
        environment.push(("TERM".to_owned(), kind));
    }
    let command = Command {
        words: wanted.words.clone(),
        directory: wanted.directory.clone(),
        environment,
        streams: match wanted.tty {
            true => Streams::Terminal(Size { columns: size.columns, rows: size.rows }),
            false => Streams::Pipes,
        },
        deadline: Some(timeout),
    };
    let user = UserIds { uid: state.uid, gid: state.gid };
    let begun = call::run(&state.socket(), command, user);
    let begun = match begun {
        Err(err @ (CallError::Io(_) | CallError::Long | CallError::NotAnAnswer)) => {
            return Err(anyhow::Error::new(err).into());
        }
        begun => begun,
    };
    let entry = Entry::begin(&evidence, wanted.words, wanted.directory, wanted.tty);
    let entry = entry.context("the command cannot be written down")?;
    let seen = match begun {
        Ok(begun) => {
            let tap = entry.recorder(state.limits.output);
            let mut tap = tap.context("the transcript cannot be written")?;
            let conduct = Conduct {
                tty: wanted.tty,
                timeout,
                grace: state.limits.grace(),
                output: state.limits.output,
                keep_stdout: console.format != Format::Table,
            };
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().context("cannot start the runtime")?;
            let watch = watch(state);
            let seen = runtime.block_on(conduct.through(begun, watch, &mut tap));
            // A read of the caller's terminal cannot be called back.
            runtime.shutdown_background();
            let seen = seen.context("the command's streams broke")?;
            tap.end(judge(&seen).code()).context("the transcript cannot be written")?;
            seen
        }
        Err(err) => {
            let word = console.toned_aside(Tone::Bad, "error:");
            console.say(format_args!("{word} {}", Shown(&err.to_string())));
            let CallError::Unstartable { code, why } = err else { return Ok(Exit::Failed) };
            let end = Some(crate::init::wire::End::Unstartable { code, why });
            Seen { end, ..Seen::default() }
        }
    };
    let outcome = judge(&seen);
    if !matches!(outcome, Outcome::Exited { .. }) {
        let word = console.toned_aside(Tone::Bad, "sluice:");
        console.say(format_args!("{word} {}", Shown(&outcome.to_string())));
    }
    let code = outcome.code();
    let record = entry.end(outcome, seen.usage).context("its end cannot be written down")?;
    drop(writing);
    if console.format != Format::Table {
        console.json(&record)?;
    }
    Ok(Exit::Command(code))
}

/// How a command is carried out.
struct Conduct {
    tty: bool,
    timeout: Duration,
    grace: Duration,
    output: u64,
    keep_stdout: bool,
}

/// Feeds a command, and says that there is no more for as long as it has not
/// heard: a program that sets its terminal loses what was typed before.
async fn feed_to_the_end(input: Flow) {
    let terminal = input.terminal();
    feed(Box::pin(input)).await;
    let Some(mut terminal) = terminal else { return };
    loop {
        time::sleep(AGAIN).await;
        if terminal.shutdown().await.is_err() {
            return;
        }
    }
}

const AGAIN: Duration = Duration::from_millis(500);

impl Conduct {
    /// Passes everything through until the command has ended.
    async fn through(
        &self,
        begun: Begun,
        mut watch: Watch,
        tap: &mut dyn Tap,
    ) -> std::io::Result<Seen> {
        let started = Instant::now();
        begun.link.set_nonblocking(true)?;
        let (mut hearing, mut speaking) =
            link::split(tokio::net::UnixStream::from_std(begun.link)?);
        let (input, mut output, mut errors) = match begun.streams {
            Ends::Pipes { input, output, errors } => {
                let flow = |descriptor| Flow::new(descriptor, false);
                (flow(input)?, flow(output)?, Some(flow(errors)?))
            }
            Ends::Terminal(terminal) => {
                let terminal = Flow::new(terminal, true)?;
                (terminal.clone(), terminal, None)
            }
        };
        let mut signals = Signals::listen();
        // As it was again when the command has ended.
        let mut caller = CallerOutput::new(self.keep_stdout, self.tty);
        let feeding = tokio::spawn(feed_to_the_end(input));
        let mut said = Box::pin(async move { hearing.end().await });
        let overdue = time::sleep(self.timeout + self.grace + LATER);
        tokio::pin!(overdue);

        let mut seen = Seen::default();
        let mut heard = None;
        let (mut flowing, mut passing) = ([true, errors.is_some()], true);
        let (mut first, mut second) = (vec![0; PIECE], vec![0; PIECE]);
        // Only once the command has ended.
        let mut last_call = None;
        while flowing.contains(&true) || heard.is_none() {
            let [out, err] = flowing;
            let quiet = async {
                match last_call {
                    Some(at) => time::sleep_until(time::Instant::min(at, soon())).await,
                    None => std::future::pending().await,
                }
            };
            let piece = select! {
                biased;
                length = read(&mut output, &mut first), if out => {
                    flowing = [length > 0, err];
                    Some((Side::Out, first.get(..length).unwrap_or_default()))
                }
                length = read_some(&mut errors, &mut second), if err => {
                    flowing = [out, length > 0];
                    Some((Side::Err, second.get(..length).unwrap_or_default()))
                }
                told = &mut said, if heard.is_none() => {
                    heard = Some(told);
                    last_call = Some(time::Instant::now() + LAST_CALL);
                    None
                }
                signal = signals.next() => {
                    match signal {
                        Heard::Resized => {
                            if let Some(size) = terminal::size().filter(|_| self.tty) {
                                tap.resized(size);
                                let TerminalSize { columns, rows } = size;
                                speaking.order(Order::Size(Size { columns, rows })).await;
                            }
                        }
                        Heard::Stop(number) => {
                            signals.count += 1;
                            // Who has ended is not stopped any more.
                            if !matches!(heard, Some((_, Some(_)))) && !is_over(seen.stopped) {
                                seen.stopped = Some(Stopped::Cancelled { signal: number });
                            }
                            // Whoever asks a third time means it.
                            let order = match signals.count {
                                0..3 => Order::Signal(number),
                                _ => Order::Kill,
                            };
                            speaking.order(order).await;
                        }
                    }
                    None
                }
                full = watch.full(), if seen.stopped.is_none() => {
                    seen.stopped = Some(Stopped::Disk { place: WORKSPACE, full });
                    speaking.order(Order::Kill).await;
                    None
                }
                () = &mut overdue, if heard.is_none() && seen.stopped != Some(Stopped::Overdue) => {
                    seen.stopped = Some(Stopped::Overdue);
                    speaking.order(Order::Kill).await;
                    // Nobody inside keeps the time any more.
                    heard = Some(Default::default());
                    last_call = Some(time::Instant::now() + LAST_CALL);
                    None
                }
                () = quiet => break,
            };
            let Some((to, bytes)) = piece.filter(|(_, bytes)| !bytes.is_empty()) else { continue };
            seen.usage.output += bytes.len() as u64;
            if seen.usage.output > self.output {
                if seen.stopped.is_none() {
                    seen.stopped = Some(Stopped::Output { limit: self.output });
                    speaking.order(Order::Kill).await;
                }
                continue;
            }
            let chunk = Chunk { to, bytes: Bytes::copy_from_slice(bytes) };
            tap.printed(&chunk);
            if passing && caller.pass_on(&chunk).await.is_err() {
                // Nobody reads us any more, as after `| head`.
                passing = false;
                seen.stopped = Some(Stopped::Cancelled { signal: PIPE });
                speaking.order(Order::Signal(PIPE)).await;
            }
        }
        feeding.abort();
        caller.await_answers().await;
        drop(caller);
        if seen.stopped.is_none()
            && let Some(full) = watch.last_look().await
        {
            seen.stopped = Some(Stopped::Disk { place: WORKSPACE, full });
        }

        let (facts, end) = heard.unwrap_or_default();
        let output = seen.usage.output;
        seen.usage = Usage { wall: started.elapsed(), output, ..Usage::measured(&facts) };
        seen.full = facts.get("full").filter(|full| *full != "none").cloned();
        seen.end = end;
        Ok(seen)
    }
}

/// Looks after what the session has written to the project, this command and
/// those before it.
fn watch(state: &State) -> Watch {
    let Some(layout) = &state.workspace else { return Watch::nothing() };
    let most = workspace::usage::Usage { bytes: state.limits.disk, files: state.limits.files };
    let (directory, growth_alone) = match (&layout.upper, layout.direct) {
        (Some(upper), _) => (upper.clone(), false),
        (None, true) => (layout.root.clone(), true),
        (None, false) => return Watch::nothing(),
    };
    Watch::over(Watched { directory, most, growth_alone })
}

/// How much was read; nothing when there is no more, or it cannot be read.
async fn read(from: &mut (impl AsyncRead + Unpin), into: &mut [u8]) -> usize {
    from.read(into).await.unwrap_or_default()
}

async fn read_some(from: &mut Option<Flow>, into: &mut [u8]) -> usize {
    match from {
        Some(from) => read(from, into).await,
        None => std::future::pending().await,
    }
}

/// What the command itself wrote is there when its end is known; so a moment
/// without anything is the end of it, whoever still holds the pipe.
fn soon() -> time::Instant {
    time::Instant::now() + Duration::from_millis(30)
}

/// For something in the background that prints without end.
const LAST_CALL: Duration = Duration::from_secs(1);
const PIECE: usize = 64 * 1024;
const WORKSPACE: &str = "/workspace";
