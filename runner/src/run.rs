//! One run, from plan to teardown.
//!
//! [`run`] is the story; each line of [`carry_out`] is a file of this crate.
//! Planning is pure and comes before anything is made, so `--dry-run` is
//! exact. Teardown happens on every path out, including the failed ones, and
//! the evidence is closed after it: it says what could not be removed.

mod bare;
pub(crate) mod close;
mod end_summary;
pub mod phases;
pub(crate) mod prepare;
pub(crate) mod record;
pub(crate) mod turn;
pub(crate) mod unsealed;
mod verb;

use std::io;
use std::time::{Duration, Instant};

use gateway::control::Client;
use jiff::Timestamp;
use tokio::sync::{Notify, oneshot};
use tokio::time;

use crate::backend::{Backend, BackendError, GatewayHandle, Used};
use crate::evidence::LeftOut;
use crate::exec::{GatewayWatch, Heard, Signals, Started, exec};
use crate::init::wire::Order;
use crate::link::{LinkError, Listening};
use crate::outcome::{Outcome, Seen, Stopped, Traffic, judge};
use crate::plan::Plan;
use crate::probe::{self, Finding, Isolated};
use crate::request::Understood;
use crate::teardown::{self, Left, Resource, Teardown};
use crate::terminal;
use crate::terminal::output::CallerOutput;
use crate::work_budget::{NotDone, Stop, WorkBudget};
pub use prepare::PrepareError;
use prepare::Prepared;
pub use record::Record;
use record::Recorder;
use unsealed::Unsealed;
pub use verb::{RUNNER_FAILED, verb};

/// Carries out `plan` and leaves nothing behind that it does not report.
///
/// Signals are listened to before anything is made: from here on, being told to
/// stop means to undo what was done. What a person should know before the command
/// starts goes to `say`.
pub async fn run(
    plan: &Plan,
    understood: &Understood,
    backend: &dyn Backend,
    say: &mut dyn FnMut(&str),
) -> Report {
    let phases = &understood.phases;
    let begun = Timestamp::now();
    let mut signals = Signals::listen();
    let mut teardown = Teardown::default();
    teardown.will_make(Resource::Folder(prepare::folder(plan)));
    let prepared = match phases.now("prepare", || prepare::prepare(plan, understood)) {
        Ok(prepared) => prepared,
        Err(err) => {
            let left = teardown.run(backend).await;
            return Report { ended: Err(err.into()), left, ..Report::begun(begun) };
        }
    };
    for words in prepared.secrets_in_words() {
        say(&words);
    }
    let mut findings = Vec::new();
    let work = Work { plan, understood, backend, prepared: &prepared };
    let mut used = Used::default();
    let unsealed = Unsealed::new(plan, understood, &prepared, begun);
    let sealer = unsealed.begin(plan, understood, &prepared.evidence);
    let looked = async { used = phases.of("look", backend.used(&plan.image)).await };
    let carried = carry_out(work, &mut teardown, &mut findings, &mut signals);
    let (ended, ()) = tokio::join!(carried, looked);
    let left = phases.of("teardown", teardown.run(backend)).await;
    let mut report = Report { ended, findings, used, left, ..Report::begun(begun) };
    // The command has ended; what comes now ends at once when somebody says so.
    let stop = Stop::default();
    let listening = signals.stop(stop.clone());
    let budget = WorkBudget::attended(stop);
    close::close(plan, understood, &prepared, &mut report, &budget);
    listening.abort();
    if let Some(sealer) = sealer {
        sealer.done();
    }
    report
}

/// What every step of a run is about.
#[derive(Clone, Copy)]
struct Work<'w> {
    plan: &'w Plan,
    understood: &'w Understood,
    backend: &'w dyn Backend,
    prepared: &'w Prepared,
}

async fn carry_out(
    work: Work<'_>,
    teardown: &mut Teardown,
    findings: &mut Vec<Finding>,
    signals: &mut Signals,
) -> Result<Done, RunError> {
    let Work { plan, understood, backend, prepared } = work;
    let turn = tokio::select! {
        turn = understood.phases.of("turn", prepared.turn(backend)) => turn,
        Heard::Stop(signal) = signals.next() => return Ok(Done::stopped(signal)),
    };
    let raised = {
        let raising = raise(plan, understood, backend, prepared, teardown, findings);
        unless_stopped(raising, signals).await
    };
    let (Standing { started, gateway }, isolated) = match raised {
        Raised::Up(raised) => raised?,
        Raised::Stopped(signal) => return Ok(Done::stopped(signal)),
    };
    drop(turn);
    let resources = backend.resources(plan);
    // What has ended goes at once. One that cannot is tried again with the rest,
    // and then said.
    let remove = async |name, what: Option<&Resource>| {
        if let Some(what) = what {
            drop(understood.phases.of(name, teardown::remove(what, backend)).await);
        }
    };
    let (last_word, spoken) = oneshot::channel();
    let running = async {
        let seen = go(isolated, work, started, signals, last_word).await;
        remove("remove sandbox", resources.last()).await;
        seen
    };
    let finishing = async {
        let gateway = gateway?;
        let log = gateway.log.clone();
        let traffic = finish(work, gateway, spoken).await.ok_or_else(|| log.last_words());
        let mut containers = resources.iter().filter(|made| matches!(made, Resource::Container(_)));
        remove("remove gateway", containers.next()).await;
        Some(traffic)
    };
    // A gateway and a sandbox both take their time to end.
    let (seen, traffic) = tokio::join!(running, finishing);
    let mut seen = seen?;
    match traffic {
        Some(Ok(traffic)) => seen.usage.network = Some(traffic),
        // What it did not count and record nobody knows.
        Some(Err(said)) => drop(seen.gateway_died.get_or_insert(said)),
        None => {}
    }
    seen.fail_on_denied = understood.request.fail_on_denied;
    Ok(Done { outcome: judge(&seen), seen })
}

/// Whether a sandbox stands.
enum Raised<T> {
    Up(T),
    Stopped(u8),
}

/// Waits for `raising` to its end even when told to stop: what an engine is
/// asked for and not waited for may be made after it was removed.
async fn unless_stopped<T>(raising: impl Future<Output = T>, signals: &mut Signals) -> Raised<T> {
    let mut raising = std::pin::pin!(raising);
    let mut told = None;
    loop {
        tokio::select! {
            raised = &mut raising => return match told {
                None => Raised::Up(raised),
                Some(signal) => Raised::Stopped(signal),
            },
            Heard::Stop(signal) = signals.next() => {
                told.get_or_insert(signal);
            }
        }
    }
}

/// Makes the network, the gateway and the sandbox, and measures from inside that
/// the sandbox is as strong as planned. Its first process waits for a word.
///
/// Where the backend permits it, gateway and sandbox are made at the same time:
/// nothing runs in the sandbox but our own first process until both stand.
pub(crate) async fn raise(
    plan: &Plan,
    understood: &Understood,
    backend: &dyn Backend,
    prepared: &Prepared,
    teardown: &mut Teardown,
    findings: &mut Vec<Finding>,
) -> Result<(Standing, Isolated), RunError> {
    for resource in backend.resources(plan) {
        teardown.will_make(resource);
    }
    let phases = &understood.phases;
    let (network, roots) = match &prepared.gateway {
        None => (None, Vec::new()),
        Some(files) => {
            let connecting = phases.of("network", backend.connect(plan, files));
            let roots = phases.of("roots", prepare::tell_roots(understood, prepared));
            let (network, roots) = tokio::join!(connecting, roots);
            (Some(network?), roots?)
        }
    };
    let hopeless = Notify::new();
    let raise_gateway = async {
        let (Some(network), Some(files)) = (&network, &prepared.gateway) else { return Ok(None) };
        phases.now("settings", || {
            prepare::tell_gateway(plan, understood, prepared, network, &roots)
        })?;
        let gateway =
            phases.of("start gateway", backend.start_gateway(plan, network, files)).await?;
        let certificate = phases.of("gateway serves", certificate(prepared, &gateway)).await?;
        phases.now("trust kit", || prepared.trust(&certificate, understood))?;
        Ok::<_, RunError>(Some(gateway))
    };
    let raise_sandbox = async {
        let inside = &prepared.inside;
        let listening = Listening::at(&inside.socket).map_err(LinkError::from)?;
        let watch = prepared.watch(plan);
        let creating = backend.create(plan, inside, network.as_ref());
        let sandbox = phases.of("create sandbox", creating).await?;
        let streams = phases.of("start sandbox", backend.start(plan, &sandbox)).await?;
        let gone = async {
            time::sleep(USUALLY).await;
            backend.ended(&sandbox).await
        };
        let (mut hearing, speaking) = tokio::select! {
            accepted = listening.accept(STARTING) => accepted?,
            _ = gone => return Err(LinkError::Silent.into()),
        };
        // It waits for its gateway, and only we know that there will be none.
        let facts = tokio::select! {
            facts = phases.of("measure", hearing.facts(STARTING)) => facts?,
            () = hopeless.notified() => return Err(LinkError::Silent.into()),
        };
        let link = (hearing, speaking);
        let gateway = None;
        Ok::<_, RunError>((Started { sandbox, streams, link, watch, gateway }, facts))
    };
    let (gateway, raised) = if backend.makes_both_at_once() {
        // Both to their end, also when one of them fails.
        let raise_gateway = async {
            let raised = raise_gateway.await;
            if raised.is_err() {
                hopeless.notify_one();
            }
            raised
        };
        tokio::join!(raise_gateway, raise_sandbox)
    } else {
        let gateway = raise_gateway.await?;
        (Ok(gateway), raise_sandbox.await)
    };
    let gateway = gateway?;
    let (mut started, facts) = raised?;
    started.gateway = gateway
        .as_ref()
        .map(|gateway| GatewayWatch { log: gateway.log.clone(), control: prepared.control() });

    let (found, isolated) = probe::check(&facts, plan);
    *findings = found;
    let isolated =
        isolated.ok_or_else(|| RunError::NotIsolated { shortfalls: shortfalls(findings) })?;
    prepared.let_go();
    Ok((Standing { started, gateway }, isolated))
}

/// A sandbox whose first process waits for a word, and its gateway.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) started: Started,
    pub(crate) gateway: Option<GatewayHandle>,
}

/// Lets the command run, in a sandbox that is as strong as planned.
async fn go(
    _isolated: Isolated,
    work: Work<'_>,
    mut started: Started,
    signals: &mut Signals,
    last_word: oneshot::Sender<()>,
) -> Result<Seen, RunError> {
    let Work { plan, understood, backend, prepared } = work;
    let mut recorder = Recorder::begin(plan, &prepared.evidence).map_err(RunError::Transcript)?;
    // As it was again when the command has ended.
    let mut caller = CallerOutput::new(understood.request.keep_stdout, plan.tty);
    if let Some(size) = terminal::size().filter(|_| plan.tty) {
        // A terminal of the wrong size is no reason not to start.
        drop(backend.resize(&started.sandbox, size).await);
    }
    started.link.1.order(Order::Go).await;
    let running = exec(plan, backend, started, &mut recorder, &mut caller, signals, last_word);
    let seen = understood.phases.of("command", running).await;
    caller.await_answers().await;
    drop(caller);
    let seen = seen?;
    recorder.end(judge(&seen).code()).map_err(RunError::Transcript)?;
    Ok(seen)
}

/// The certificate of the gateway's authority, once it serves.
async fn certificate(prepared: &Prepared, gateway: &GatewayHandle) -> Result<String, RunError> {
    let client = Client::new(prepared.control());
    let deadline = Instant::now() + STARTING;
    loop {
        let err = match client.ca_certificate().await {
            Ok(certificate) => return Ok(certificate),
            Err(err) => err,
        };
        if gateway.log.is_gone() || Instant::now() > deadline {
            return Err(RunError::Gateway { said: gateway.log.last_words(), source: err });
        }
        // It says when it listens; that it does so before we listen to it does
        // not hurt.
        drop(time::timeout(A_MOMENT, gateway.log.changed()).await);
    }
}

/// Lets the gateway finish its log once nobody in the sandbox can speak to it any
/// more; what passed through it, or nothing if it is dead.
async fn finish(
    work: Work<'_>,
    gateway: GatewayHandle,
    spoken: oneshot::Receiver<()>,
) -> Option<Traffic> {
    // Nothing is ever sent: its end is the word, or that there will be none.
    drop(spoken.await);
    let client = Client::new(work.prepared.control());
    let mut counts = client.status().await.ok()?.counts;
    // Its clients are gone; it hears so from the kernel, a little later than we.
    let settled = Instant::now() + SETTLING;
    while counts.open_connections > 0 && Instant::now() < settled {
        time::sleep(A_BLINK).await;
        counts = client.status().await.ok()?.counts;
    }
    let finishing = async {
        if client.drain().await.is_ok() {
            let deadline = Instant::now() + FINISHING;
            while !gateway.log.is_gone() && Instant::now() < deadline {
                drop(time::timeout(A_MOMENT, gateway.log.changed()).await);
            }
        }
    };
    work.understood.phases.of("gateway ends", finishing).await;
    Some(Traffic {
        requests: counts.requests,
        refused: counts.refused,
        sent: counts.uploaded,
        received: counts.downloaded,
    })
}

/// When nobody says that something changed, we look.
const A_MOMENT: Duration = Duration::from_millis(20);
const A_BLINK: Duration = Duration::from_millis(2);
/// What is cut off for good has been noticed by then; what is not is cut by the
/// drain.
const SETTLING: Duration = Duration::from_millis(500);
/// A sandbox or a gateway that has not reported by then will not. Of a hundred that
/// an engine starts at once on a busy machine, some take minutes.
const STARTING: Duration = Duration::from_secs(300);
/// A gateway that was told to finish its log has done so by then.
const FINISHING: Duration = Duration::from_secs(30);
/// One that has not reported by then may have ended, and is asked about.
const USUALLY: Duration = Duration::from_secs(5);

/// What happened, and what could not be cleaned up.
#[derive(Debug)]
#[must_use]
pub struct Report {
    pub begun: Timestamp,
    pub ended: Result<Done, RunError>,
    pub findings: Vec<Finding>,
    /// What the sandbox was made of, and by whom.
    pub used: Used,
    pub left: Vec<Left>,
    /// Parts of the evidence that could not be had, and why.
    pub missing: Vec<String>,
    /// Parts of it that are not whole, for want of time or because of a signal.
    pub not_done: Vec<NotDone>,
    /// What was declared as worth keeping and was not kept.
    pub artifacts_left_out: Vec<LeftOut>,
    /// How many files of the project it changed; nothing where nobody compared.
    pub changed: Option<usize>,
}

impl Report {
    /// Of what has begun and come to nothing yet.
    pub(crate) fn begun(begun: Timestamp) -> Self {
        Self {
            begun,
            ended: Err(RunError::Transcript(io::Error::other("it was not started"))),
            findings: Vec::new(),
            used: Used::default(),
            left: Vec::new(),
            missing: Vec::new(),
            not_done: Vec::new(),
            artifacts_left_out: Vec::new(),
            changed: None,
        }
    }
}

#[derive(Debug)]
pub struct Done {
    pub outcome: Outcome,
    pub seen: Seen,
}

impl Done {
    /// Somebody changed their mind before the command had started.
    fn stopped(signal: u8) -> Self {
        let seen = Seen { stopped: Some(Stopped::Cancelled { signal }), ..Seen::default() };
        Self { outcome: judge(&seen), seen }
    }
}

/// Why there was no run, or no whole one.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("the gateway does not serve; it said: {said}")]
    Gateway { said: String, source: gateway::control::ClientError },
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("the sandbox is weaker than planned, so nothing was started: {shortfalls}")]
    NotIsolated { shortfalls: String },
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error("the transcript cannot be written")]
    Transcript(#[source] io::Error),
    #[error("that there is no sandbox cannot be recorded, so nothing was started")]
    Unrecorded(#[source] anyhow::Error),
}

fn shortfalls(findings: &[Finding]) -> String {
    let missing = findings.iter().filter(|finding| !finding.holds);
    let all: Vec<_> = missing
        .map(|Finding { what, measured, wanted, .. }| {
            format!("{what} (found {measured}, wanted {wanted})")
        })
        .collect();
    all.join("; ")
}
