//! The command runs: streams, terminal, signals, clock and limits.
//!
//! Ends when the sandbox has ended and everything it printed was passed on. What
//! is seen on the way is put together for [`crate::outcome::judge`].

use std::io;
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::select;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time;

use crate::backend::{Backend, BackendError, Chunk, Ended, Sandbox, Side, Streams};
use crate::disk::Watch;
use crate::init::wire::Order;
use crate::link::{Hearing, Speaking};
use crate::outcome::{Seen, Stopped, Usage};
use crate::plan::Plan;
use crate::terminal;

/// Where what the command prints goes besides the caller.
pub trait Tap {
    fn printed(&mut self, chunk: &Chunk);
    fn resized(&mut self, size: crate::backend::TerminalSize);
}

/// A sandbox whose first process was told to go, and what looks after its disk.
#[derive(Debug)]
pub struct Started {
    pub sandbox: Sandbox,
    pub streams: Streams,
    pub link: (Hearing, Speaking),
    pub watch: Watch,
}

/// Passes everything through until the sandbox has ended. With `keep_stdout`
/// our own result goes there, and what the command prints goes to stderr.
///
/// `last_word` goes when nothing but its first process is left in the sandbox,
/// which takes an engine a while to notice.
pub(crate) async fn exec(
    plan: &Plan,
    backend: &dyn Backend,
    started: Started,
    tap: &mut dyn Tap,
    keep_stdout: bool,
    signals: &mut Signals,
    last_word: oneshot::Sender<()>,
) -> Result<Seen, BackendError> {
    let Started { sandbox, streams, link: (mut hearing, mut speaking), mut watch } = started;
    let sandbox = &sandbox;
    let begun = Instant::now();
    let Streams { input, mut output } = streams;
    let feeding = tokio::spawn(feed(input));

    let mut said = Box::pin(async move { hearing.end().await });
    let mut ending = backend.ended(sandbox);
    let overdue = time::sleep(plan.limits.timeout + plan.limits.grace + LATER);
    tokio::pin!(overdue);

    let mut seen = Seen::default();
    let mut ended: Option<Ended> = None;
    let mut heard = None;
    let mut last_word = Some(last_word);
    let (mut flowing, mut passing) = (true, true);
    while flowing || ended.is_none() || heard.is_none() {
        select! {
            piece = output.next(), if flowing => match piece {
                Some(Ok(chunk)) => {
                    seen.usage.output += chunk.bytes.len() as u64;
                    let most = plan.limits.output;
                    if seen.usage.output > most {
                        if seen.stopped.is_none() {
                            seen.stopped = Some(Stopped::Output { limit: most });
                            kill(backend, sandbox, &mut output).await?;
                        }
                        continue;
                    }
                    tap.printed(&chunk);
                    if passing && pass_on(&chunk, keep_stdout).await.is_err() {
                        // Nobody reads us any more, as after `| head`.
                        passing = false;
                        seen.stopped = Some(Stopped::Cancelled { signal: PIPE });
                        speaking.order(Order::Signal(PIPE)).await;
                    }
                }
                // The engine hung up: what it did to the sandbox is asked below.
                Some(Err(_)) | None => flowing = false,
            },
            told = &mut said, if heard.is_none() => {
                heard = Some(told);
                drop(last_word.take());
            }
            end = &mut ending, if ended.is_none() => ended = Some(end?),
            number = signals.next() => match number {
                Heard::Resized => {
                    if let Some(size) = terminal::size().filter(|_| plan.tty) {
                        tap.resized(size);
                        // A terminal of the wrong size is no reason to end.
                        drop(backend.resize(sandbox, size).await);
                    }
                }
                Heard::Stop(number) => {
                    signals.count += 1;
                    seen.stopped = Some(Stopped::Cancelled { signal: number });
                    // Whoever asks a third time means it.
                    if signals.count < 3 {
                        speaking.order(Order::Signal(number)).await;
                    } else {
                        kill(backend, sandbox, &mut output).await?;
                    }
                }
            },
            full = watch.full(), if seen.stopped.is_none() => {
                seen.stopped = Some(Stopped::Disk { place: plan.workspace.target, full });
                // From inside, which is at once; then as always.
                speaking.order(Order::Kill).await;
                kill(backend, sandbox, &mut output).await?;
            }
            () = &mut overdue, if ended.is_none() && seen.stopped != Some(Stopped::Overdue) => {
                seen.stopped = Some(Stopped::Overdue);
                kill(backend, sandbox, &mut output).await?;
            }
        }
    }
    feeding.abort();

    let (facts, end) = heard.unwrap_or_default();
    let output = seen.usage.output;
    seen.usage = Usage { wall: begun.elapsed(), output, ..Usage::measured(&facts) };
    seen.full = facts.get("full").filter(|full| *full != "none").cloned();
    seen.end = end;
    if let Some(Ended { code, oom_killed }) = ended {
        seen.code = Some(code);
        seen.oom_killed = oom_killed;
    }
    Ok(seen)
}

/// Kills the sandbox, and reads what it still prints meanwhile: the engine does
/// not answer before it has handed over all of it.
async fn kill<E>(
    backend: &dyn Backend,
    sandbox: &Sandbox,
    output: &mut (impl Stream<Item = Result<Chunk, E>> + Unpin),
) -> Result<(), BackendError> {
    let mut killed = std::pin::pin!(backend.kill(sandbox));
    loop {
        select! {
            done = &mut killed => return done,
            piece = output.next() => {
                if !matches!(piece, Some(Ok(_))) {
                    return killed.await;
                }
            }
        }
    }
}

/// How long after the deadline the sandbox has for keeping it by itself.
pub(crate) const LATER: Duration = Duration::from_secs(10);
pub(crate) const PIPE: u8 = 13;

/// Our standard input into the sandbox's, until either ends.
pub(crate) async fn feed(mut input: std::pin::Pin<Box<dyn tokio::io::AsyncWrite + Send>>) {
    let mut ours = tokio::io::stdin();
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length) = ours.read(&mut buffer).await {
        let Some(bytes) = buffer.get(..length).filter(|bytes| !bytes.is_empty()) else { break };
        if input.write_all(bytes).await.is_err() || input.flush().await.is_err() {
            return;
        }
    }
    drop(input.shutdown().await);
}

pub(crate) async fn pass_on(chunk: &Chunk, keep_stdout: bool) -> io::Result<()> {
    match if keep_stdout { Side::Err } else { chunk.to } {
        Side::Err => {
            let mut ours = tokio::io::stderr();
            ours.write_all(&chunk.bytes).await?;
            ours.flush().await
        }
        Side::Out => {
            let mut ours = tokio::io::stdout();
            ours.write_all(&chunk.bytes).await?;
            ours.flush().await
        }
    }
}

/// What the caller's side can do to a run.
pub(crate) enum Heard {
    Resized,
    Stop(u8),
}

/// The signals that are passed on. One that cannot be listened for is not.
pub(crate) struct Signals {
    stops: Vec<(u8, Signal)>,
    resized: Option<Signal>,
    pub(crate) count: u32,
}

impl Signals {
    pub(crate) fn listen() -> Self {
        let stops = [
            SignalKind::hangup(),
            SignalKind::interrupt(),
            SignalKind::quit(),
            SignalKind::terminate(),
        ];
        let listen = |kind: SignalKind| {
            let number = u8::try_from(kind.as_raw_value()).ok()?;
            signal(kind).ok().map(|signal| (number, signal))
        };
        Self {
            stops: stops.into_iter().filter_map(listen).collect(),
            resized: signal(SignalKind::window_change()).ok(),
            count: 0,
        }
    }

    pub(crate) async fn next(&mut self) -> Heard {
        let stops = self.stops.iter_mut().map(|(number, signal)| {
            let number = *number;
            Box::pin(async move {
                match signal.recv().await {
                    Some(()) => Heard::Stop(number),
                    None => std::future::pending().await,
                }
            })
        });
        let stop = futures_util::future::select_all(stops);
        let resized = async {
            match &mut self.resized {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        select! {
            (stop, _, _) = stop => stop,
            _ = resized => Heard::Resized,
        }
    }
}
