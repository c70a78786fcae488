//! A command runs: what it prints is passed on, what its caller says is obeyed,
//! and what its limits are is kept.
//!
//! The same for a run, for a command of a session and for one without a sandbox.
//! What is seen on the way is put together for [`crate::outcome::judge`].

use std::io;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use protocol::init::{CommandEnd, CommandOrder, TerminalSize};
use protocol::spool::SpoolEnd;
use tokio::select;
use tokio::sync::{mpsc, oneshot};
use tokio::time;

use crate::backend::{Backend, BackendError, Chunk, Ended, GatewayLog, Sandbox};
use crate::command::{CommandEvent, RunningCommand};
use crate::connector::Connector;
use crate::control::ControlClient;
use crate::disk::Watch;
use crate::outcome::{RunObservations, StopReason, Usage};
use crate::record::Recorder;

/// What whoever started a command says about it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CallerEvent {
    Resized(TerminalSize),
    /// Stop it, by this signal. A third one ends it at once.
    Stop(u8),
}

/// Whoever started a command: what they say, and where its output goes.
pub struct Caller<'c> {
    pub events: &'c mut mpsc::Receiver<CallerEvent>,
    pub sink: &'c mut dyn OutputSink,
    /// What keeps the transcript, unless that is another's business.
    pub recorder: Option<&'c mut Recorder>,
}

/// Where what a command prints goes. One that is slow is only told later: neither
/// the sandbox nor the evidence waits for it.
#[async_trait]
pub trait OutputSink: Send {
    /// `at` is how long after its start. An error means that nobody wants to know.
    async fn printed(&mut self, chunk: &Chunk, at: Duration) -> io::Result<()>;

    /// The command is about to start.
    fn starts(&mut self) {}

    /// The command has ended, and nothing more comes.
    async fn ended(&mut self) {}
}

/// What is kept while a command runs.
pub struct Supervision<'s> {
    /// The first process ends the command at its deadline. If it has not after this
    /// long, the host does.
    pub overdue_after: Duration,
    pub max_output_bytes: u64,
    pub watch: Watch,
    /// Nothing where there is none, or where it is another's business.
    pub gateway: Option<GatewayWatch>,
    /// The sandbox that ends with the command.
    pub sandbox: Option<(&'s dyn Backend, &'s Sandbox)>,
    /// Dropped when nothing of the command is left, which takes an engine a while
    /// to notice.
    pub command_lives: Option<oneshot::Sender<()>>,
}

impl std::fmt::Debug for Caller<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller").field("events", &self.events).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Supervision<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervision").field("gateway", &self.gateway).finish_non_exhaustive()
    }
}

/// Notices that a gateway died.
#[derive(Clone, Debug)]
pub struct GatewayWatch {
    pub log: GatewayLog,
    /// Where it is asked.
    pub control: Connector,
}

impl GatewayWatch {
    /// Waits until it is dead; the last that it said.
    async fn died(&self) -> String {
        loop {
            // An engine may lose a living gateway's output, so the gateway is asked as well.
            if self.log.is_gone() && ControlClient::new(self.control.clone()).is_gone().await {
                return self.log.last_words();
            }
            drop(time::timeout(GATEWAY_ALIVE_POLL, self.log.changed()).await);
        }
    }
}

/// Passing on a piece: the sink, lent to it, and whether anybody wants more.
type Passing<'s> = BoxFuture<'s, (&'s mut dyn OutputSink, io::Result<()>)>;

fn pass_on<'s>(sink: &'s mut dyn OutputSink, chunk: Chunk, at: Duration) -> Passing<'s> {
    Box::pin(async move {
        let passed = sink.printed(&chunk, at).await;
        (sink, passed)
    })
}

/// Waits for something that may never come.
async fn or_never<T>(waiting: Option<impl Future<Output = T>>) -> T {
    match waiting {
        Some(waiting) => waiting.await,
        None => std::future::pending().await,
    }
}

/// Supervises a command to its end, and to that of its sandbox.
pub async fn supervise(
    command: RunningCommand,
    how: Supervision<'_>,
    caller: Caller<'_>,
) -> Result<RunObservations, BackendError> {
    let RunningCommand { mut events, orders } = command;
    let Supervision { overdue_after, mut watch, gateway, sandbox, command_lives, .. } = how;
    let Caller { events: caller_events, sink, recorder } = caller;
    let mut sink = Some(sink);
    let mut passing: Option<Passing<'_>> = None;
    let begun = Instant::now();
    let mut ending = Box::pin(or_never(sandbox.map(|(backend, name)| backend.wait_for_end(name))));
    let mut death = Box::pin(or_never(gateway.as_ref().map(GatewayWatch::died)));
    let overdue = time::sleep(overdue_after);
    tokio::pin!(overdue);

    let mut command = Supervised {
        orders,
        recorder,
        force: Force { sandbox, refused: None },
        lives: command_lives,
        following: true,
        last: None,
        stops: 0,
        seen: RunObservations::default(),
    };
    let mut ended: Option<Ended> = None;
    let mut has_caller = true;
    let mut again = time::interval(KILL_AGAIN_INTERVAL);
    while command.following
        || passing.is_some()
        || (sandbox.is_some() && ended.is_none() && command.needs_word_from_outside())
    {
        select! {
            // What a caller has not taken yet is in the spool, and everything else goes on.
            event = events.recv(), if command.following && passing.is_none() => {
                if let Some((chunk, at)) = command.happened(event) {
                    passing = sink.take().map(|sink| pass_on(sink, chunk, at));
                }
            }
            (lent, passed) = or_never(passing.as_mut()), if passing.is_some() => {
                passing = None;
                match passed {
                    Ok(()) => sink = Some(lent),
                    // Nobody reads us any more, as after `| head`.
                    Err(_) => command.cancel(BROKEN_PIPE),
                }
            }
            end = &mut ending, if ended.is_none() => ended = Some(end?),
            said = caller_events.recv(), if has_caller => match said {
                Some(CallerEvent::Resized(size)) => command.order(CommandOrder::Resize(size)),
                Some(CallerEvent::Stop(number)) => if command.stop(number).await? {
                    // Nor is it passed on any more to a caller who does not take it.
                    passing = None;
                },
                // Nobody is left who could say anything.
                None => has_caller = false,
            },
            full = watch.full(), if command.may_be_stopped() => {
                command.end(StopReason::Disk(full)).await?;
            }
            said = &mut death, if command.last.is_none() && command.seen.gateway_died.is_none() => {
                command.seen.gateway_died = Some(said);
                if command.seen.stopped.is_none() {
                    command.end(StopReason::WithoutGateway).await?;
                }
            }
            _ = again.tick(), if command.force.refused.is_some() && ended.is_none() => {
                command.force.kill().await?;
            }
            () = &mut overdue, if command.is_kept_past_its_time() => {
                command.end(StopReason::Overdue).await?;
                // Nobody inside keeps the time any more.
                command.follow_no_more();
                passing = None;
            }
        }
    }
    let Supervised { mut seen, last, .. } = command;
    // A gateway that takes its sandbox along may be noticed after it.
    if last.is_none() && seen.gateway_died.is_none() && gateway.is_some() {
        seen.gateway_died = time::timeout(GATEWAY_DEATH_WAIT, death).await.ok();
    }
    if seen.stopped.is_none()
        && let Some(full) = watch.last_look().await
    {
        seen.stopped = Some(StopReason::Disk(full));
    }
    Ok(observed(seen, last, ended, how.max_output_bytes, begun.elapsed()))
}

/// A command that is supervised, and what is known of it so far.
struct Supervised<'s> {
    orders: mpsc::UnboundedSender<CommandOrder>,
    recorder: Option<&'s mut Recorder>,
    force: Force<'s>,
    lives: Option<oneshot::Sender<()>>,
    /// Whether there may be more of it.
    following: bool,
    /// The last that it said.
    last: Option<SpoolEnd>,
    /// How often the caller wanted it stopped.
    stops: u32,
    seen: RunObservations,
}

impl Supervised<'_> {
    /// A command that is gone takes no orders, and needs none.
    fn order(&self, order: CommandOrder) {
        self.orders.send(order).unwrap_or_default();
    }

    /// Notes what happened to it; what it printed is to be passed on.
    fn happened(&mut self, event: Option<CommandEvent>) -> Option<(Chunk, Duration)> {
        if let (Some(recorder), Some(event)) = (&mut self.recorder, &event) {
            recorder.record(event);
        }
        match event {
            Some(CommandEvent::Printed(chunk, at)) => {
                self.seen.usage.output += chunk.bytes.len() as u64;
                return Some((chunk, at));
            }
            Some(CommandEvent::Resized(..)) => {}
            Some(CommandEvent::Ended(end)) => {
                self.last = Some(end);
                self.follow_no_more();
            }
            // It vanished. The gateway is not ended yet: whether it died first is of interest.
            None => self.following = false,
        }
        None
    }

    fn follow_no_more(&mut self) {
        self.following = false;
        drop(self.lives.take());
    }

    /// What has ended is not stopped any more, however long its engine takes to notice;
    /// nor is what a limit has stopped.
    fn may_be_stopped(&self) -> bool {
        self.last.is_none() && !is_over(self.seen.stopped)
    }

    /// Whether how its sandbox ended says something that is not known from inside. An engine
    /// takes its time to tell, and the sandbox is removed in any case.
    fn needs_word_from_outside(&self) -> bool {
        match self.last.as_ref().map(|last| &last.end) {
            // As a shell says that memory ran out.
            Some(CommandEnd::Exited(code)) => *code == KILLED,
            Some(CommandEnd::Unstartable { .. }) => false,
            Some(_) | None => true,
        }
    }

    fn is_kept_past_its_time(&self) -> bool {
        self.last.is_none() && self.seen.stopped != Some(StopReason::Overdue)
    }

    /// Passes a signal on, which is why it ends if it does.
    fn cancel(&mut self, signal: u8) {
        self.note_cancelled(signal);
        self.order(CommandOrder::Signal(signal));
    }

    fn note_cancelled(&mut self, signal: u8) {
        if self.may_be_stopped() {
            self.seen.stopped = Some(StopReason::Cancelled { signal });
        }
    }

    /// Does what a caller wants who says stop; whether it was killed for that.
    async fn stop(&mut self, signal: u8) -> Result<bool, BackendError> {
        self.stops += 1;
        // Whoever asks a third time means it.
        if self.stops < 3 {
            self.cancel(signal);
            return Ok(false);
        }
        self.note_cancelled(signal);
        self.kill().await?;
        Ok(true)
    }

    /// Ends it because of one of its limits.
    async fn end(&mut self, why: StopReason) -> Result<(), BackendError> {
        self.seen.stopped = Some(why);
        self.kill().await
    }

    /// From inside, which is at once; then from outside.
    async fn kill(&mut self) -> Result<(), BackendError> {
        self.order(CommandOrder::Kill);
        self.force.kill().await
    }
}

/// Everything that was seen, from inside and from outside.
fn observed(
    mut seen: RunObservations,
    last: Option<SpoolEnd>,
    ended: Option<Ended>,
    max_output_bytes: u64,
    wall: Duration,
) -> RunObservations {
    if let Some(last) = last {
        let RunObservations { end, full, usage, .. } = RunObservations::from_spool(last);
        let output = seen.usage.output;
        (seen.end, seen.full, seen.usage) = (end, full, Usage { output, ..usage });
    }
    seen.usage.wall = wall;
    if seen.end == Some(CommandEnd::OutputLimit) && !is_over(seen.stopped) {
        seen.stopped = Some(StopReason::Output { limit: max_output_bytes });
    }
    if let Some(Ended { code, oom_killed }) = ended {
        seen.code = Some(code);
        seen.oom_killed = oom_killed;
    }
    seen
}

/// Whether a limit has stopped it already; then no later signal did.
fn is_over(stopped: Option<StopReason>) -> bool {
    matches!(
        stopped,
        Some(
            StopReason::Disk(_)
                | StopReason::Output { .. }
                | StopReason::Overdue
                | StopReason::WithoutGateway
        )
    )
}

/// Ends a sandbox from outside. An engine may refuse that for a moment, because
/// the sandbox is ending by itself; whether it has is asked elsewhere.
struct Force<'f> {
    sandbox: Option<(&'f dyn Backend, &'f Sandbox)>,
    /// Since when it is refused.
    refused: Option<Instant>,
}

impl Force<'_> {
    /// Kills the sandbox. A refusal is an error only when it lasts.
    async fn kill(&mut self) -> Result<(), BackendError> {
        let Some((backend, sandbox)) = self.sandbox else { return Ok(()) };
        match backend.kill(sandbox).await {
            Ok(()) => self.refused = None,
            Err(err) => {
                if self.refused.get_or_insert_with(Instant::now).elapsed() > REFUSED_FOR {
                    return Err(err);
                }
            }
        }
        Ok(())
    }
}

const GATEWAY_ALIVE_POLL: Duration = Duration::from_millis(250);
/// A gateway that died with its sandbox is known to be dead by then.
const GATEWAY_DEATH_WAIT: Duration = Duration::from_secs(2);
const KILL_AGAIN_INTERVAL: Duration = Duration::from_millis(250);
/// An engine that still refuses to kill after this is broken.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// How long after the deadline the sandbox has for keeping it by itself.
pub const OVERDUE_SLACK: Duration = Duration::from_secs(10);
const BROKEN_PIPE: u8 = 13;
/// What is left of a process that was killed.
const KILLED: u8 = 137;
