//! The command runs: streams, terminal, signals, clock and limits.
//!
//! Ends when the sandbox has ended and everything it printed was passed on. What
//! is seen on the way is put together for [`crate::outcome::judge`].

use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt as _};
use gateway::control::Client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::select;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time;

use crate::backend::{Backend, BackendError, Chunk, Ended, GatewayLog, Sandbox, Streams};
use crate::disk::Watch;
use crate::init::wire::Order;
use crate::link::{Hearing, Speaking};
use crate::outcome::{Seen, Stopped, Usage};
use crate::plan::Plan;
use crate::terminal;
use crate::terminal::output::CallerOutput;
use crate::work_budget::Stop;

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
    /// Nothing where there is no gateway.
    pub gateway: Option<GatewayWatch>,
}

/// Notices that a gateway died.
#[derive(Clone, Debug)]
pub struct GatewayWatch {
    pub log: GatewayLog,
    /// Where it is asked.
    pub control: PathBuf,
}

impl GatewayWatch {
    /// Waits until it is dead; the last that it said.
    async fn died(&self) -> String {
        loop {
            // An engine may lose its output without losing it.
            if self.log.is_gone() && Client::new(self.control.clone()).status().await.is_err() {
                return self.log.last_words();
            }
            drop(time::timeout(GATEWAY_POLL_INTERVAL, self.log.changed()).await);
        }
    }
}

/// The death of the gateway, or nothing ever.
async fn death_of(gateway: Option<&GatewayWatch>) -> String {
    match gateway {
        Some(gateway) => gateway.died().await,
        None => std::future::pending().await,
    }
}

const GATEWAY_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Passes everything through until the sandbox has ended.
///
/// `last_word` goes when nothing but its first process is left in the sandbox,
/// which takes an engine a while to notice.
pub(crate) async fn exec(
    plan: &Plan,
    backend: &dyn Backend,
    started: Started,
    tap: &mut dyn Tap,
    caller: &mut CallerOutput,
    signals: &mut Signals,
    last_word: oneshot::Sender<()>,
) -> Result<Seen, BackendError> {
    let Started { sandbox, streams, link: (mut hearing, mut speaking), mut watch, gateway } =
        started;
    let sandbox = &sandbox;
    let begun = Instant::now();
    let Streams { input, mut output } = streams;
    let feeding = tokio::spawn(feed(input));

    let mut said = Box::pin(async move { hearing.end().await });
    let mut ending = backend.ended(sandbox);
    let mut death = Box::pin(death_of(gateway.as_ref()));
    let overdue = time::sleep(plan.limits.timeout + plan.limits.grace + LATER);
    tokio::pin!(overdue);

    let mut seen = Seen::default();
    let mut ended: Option<Ended> = None;
    let mut heard = None;
    let mut last_word = Some(last_word);
    let (mut flowing, mut passing) = (true, true);
    let mut force = Force { backend, sandbox, refused: None };
    let mut again = time::interval(KILL_AGAIN);
    while flowing || ended.is_none() || heard.is_none() {
        select! {
            piece = output.next(), if flowing => match piece {
                Some(Ok(chunk)) => {
                    seen.usage.output += chunk.bytes.len() as u64;
                    let most = plan.limits.output;
                    if seen.usage.output > most {
                        if seen.stopped.is_none() {
                            seen.stopped = Some(Stopped::Output { limit: most });
                            force.kill(&mut output).await?;
                        }
                        continue;
                    }
                    tap.printed(&chunk);
                    if passing && caller.pass_on(&chunk).await.is_err() {
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
                    // Who has ended is not stopped any more, however long its
                    // engine takes to notice.
                    if !matches!(heard, Some((_, Some(_)))) && !is_over(seen.stopped) {
                        seen.stopped = Some(Stopped::Cancelled { signal: number });
                    }
                    // Whoever asks a third time means it.
                    if signals.count < 3 {
                        speaking.order(Order::Signal(number)).await;
                    } else {
                        force.kill(&mut output).await?;
                    }
                }
            },
            full = watch.full(), if seen.stopped.is_none() => {
                seen.stopped = Some(Stopped::Disk { place: plan.workspace.target, full });
                // From inside, which is at once; then as always.
                speaking.order(Order::Kill).await;
                force.kill(&mut output).await?;
            }
            said = &mut death, if heard.is_none() && seen.gateway_died.is_none() => {
                seen.gateway_died = Some(said);
                if seen.stopped.is_none() {
                    seen.stopped = Some(Stopped::WithoutGateway);
                    speaking.order(Order::Kill).await;
                    force.kill(&mut output).await?;
                }
            }
            _ = again.tick(), if force.refused.is_some() && ended.is_none() => {
                force.kill(&mut output).await?;
            }
            () = &mut overdue, if ended.is_none() && seen.stopped != Some(Stopped::Overdue) => {
                seen.stopped = Some(Stopped::Overdue);
                force.kill(&mut output).await?;
            }
        }
    }
    feeding.abort();
    // One that takes its sandbox along may be noticed after it.
    let vanished = !matches!(heard, Some((_, Some(_))));
    if vanished && seen.gateway_died.is_none() && gateway.is_some() {
        seen.gateway_died = time::timeout(GATEWAY_LATER, death).await.ok();
    }
    if seen.stopped.is_none()
        && let Some(full) = watch.last_look().await
    {
        seen.stopped = Some(Stopped::Disk { place: plan.workspace.target, full });
    }

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

/// Whether a limit has ended it already; then no later signal did.
pub(crate) fn is_over(stopped: Option<Stopped>) -> bool {
    matches!(
        stopped,
        Some(
            Stopped::Disk { .. }
                | Stopped::Output { .. }
                | Stopped::Overdue
                | Stopped::WithoutGateway
        )
    )
}

/// Ends a sandbox from outside. An engine may refuse that for a moment, because
/// the sandbox is ending by itself; whether it has is asked elsewhere.
struct Force<'f> {
    backend: &'f dyn Backend,
    sandbox: &'f Sandbox,
    /// Since when it is refused.
    refused: Option<Instant>,
}

impl Force<'_> {
    /// Kills the sandbox, and reads what it still prints meanwhile: the engine
    /// does not answer before it has handed over all of it. A refusal is an error
    /// only when it lasts.
    async fn kill<E>(
        &mut self,
        output: &mut (impl Stream<Item = Result<Chunk, E>> + Unpin),
    ) -> Result<(), BackendError> {
        match kill(self.backend, self.sandbox, output).await {
            Ok(()) => self.refused = None,
            Err(err) => {
                if self.refused.get_or_insert_with(Instant::now).elapsed() > LATER {
                    return Err(err);
                }
            }
        }
        Ok(())
    }
}

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

/// A gateway that died with its sandbox is known to be dead by then.
const GATEWAY_LATER: Duration = Duration::from_secs(2);
const KILL_AGAIN: Duration = Duration::from_millis(250);
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

    /// From now on a signal stops `work`, until the task is aborted.
    pub(crate) fn stop(mut self, work: Stop) -> JoinHandle<()> {
        tokio::spawn(async move {
            loop {
                if let Heard::Stop(signal) = self.next().await {
                    work.because_of(signal);
                }
            }
        })
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
