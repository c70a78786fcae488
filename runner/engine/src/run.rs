//! One run, from plan to teardown.
//!
//! [`run`] is the story and [`carry_out`] its middle: [`bring_up`], the command
//! ([`run_command`]), the gateway's end ([`finish_gateway`]).
//! Planning is pure and comes before anything is made, so `--dry-run` is
//! exact. Teardown happens on every path out, including the failed ones, and
//! the evidence is closed after it: it says what could not be removed.

pub mod close;
pub mod unsandboxed;

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use protocol::init::{CommandEnd, CommandSpec, Streams, TerminalSize};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::{task, time};

use crate::backend::{
    Backend, ContentFiles, CreatedGateway, CreatedSandbox, GatewayHandle, ListenerSource, Network,
    OpenDoors, Provenance, Sandbox,
};
use crate::command::{self, Input};
use crate::control::ControlClient;
use crate::disk::Watch;
use crate::first_process::{self, CallError};
use crate::isolation::{self, Finding, Isolated};
use crate::link::{Link, LinkError};
use crate::outcome::{RunObservations, Traffic, judge};
use crate::plan::Plan;
use crate::prepare::{self, PrepareError, Prepared};
use crate::record::Recorder;
use crate::report::{Done, RunError, RunReport};
use crate::resource::Resource;
use crate::settings;
use crate::spec::ResolvedRun;
use crate::supervise::{
    Caller, CallerEvent, GatewayWatch, OVERDUE_SLACK, OutputSink, Supervision, supervise,
};
use crate::teardown::{self, Teardown};
use crate::unsealed::Unsealed;
use crate::work_budget::{Announce, StopToken, WorkBudget};

/// Whoever starts a run and stays with it.
pub struct Starter<'s> {
    /// What they say. Being told to stop means to undo what was done.
    pub events: mpsc::Receiver<CallerEvent>,
    pub sink: &'s mut dyn OutputSink,
    pub input: Option<Input>,
    /// The size of their terminal.
    pub size: TerminalSize,
    /// What they should know before the command starts.
    pub say: &'s mut dyn FnMut(&str),
    /// Called when closing the evidence takes long.
    pub announce: Announce,
}

impl std::fmt::Debug for Starter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Starter").field("size", &self.size).finish_non_exhaustive()
    }
}

/// Carries out `plan` and leaves nothing behind that it does not report.
pub async fn run(
    plan: &Plan,
    resolved: &ResolvedRun,
    backend: &dyn Backend,
    mut starter: Starter<'_>,
) -> RunReport {
    let phases = &resolved.phases;
    let begun = Timestamp::now();
    let mut teardown = Teardown::default();
    teardown.will_make(Resource::Folder(prepare::folder(plan, &resolved.environment)));
    let prepared = match phases.now("prepare", || prepare::prepare(plan, resolved)) {
        Ok(prepared) => prepared,
        Err(err) => {
            let left = teardown.run(backend).await;
            return RunReport { ended: Err(err.into()), left, ..RunReport::begun(begun) };
        }
    };
    for words in prepared.secrets_in_words() {
        (starter.say)(&words);
    }
    let mut findings = Vec::new();
    let work = RunParts { plan, resolved, backend, prepared: &prepared };
    let mut used = Provenance::default();
    let unsealed = Unsealed::new(plan, resolved, &prepared, begun);
    let sealer = unsealed.begin(resolved, &prepared.evidence);
    let looked = async { used = phases.of("look", backend.provenance(&plan.image)).await };
    let carried = carry_out(work, &mut teardown, &mut findings, &mut starter);
    let (ended, ()) = tokio::join!(carried, looked);
    let left = phases.of("teardown", teardown.run(backend)).await;
    let mut report = RunReport { ended, findings, used, left, ..RunReport::begun(begun) };
    // The command has ended; what comes now ends at once when somebody says so.
    let stop = StopToken::default();
    let listening = stop_by(starter.events, stop.clone());
    let budget = WorkBudget::attended(stop).announcing(starter.announce);
    close::close(plan, resolved, &prepared, &mut report, &budget);
    listening.abort();
    if let Some(sealer) = sealer {
        sealer.done();
    }
    report
}

/// From now on being told to stop ends `work`, until the task is aborted.
pub fn stop_by(mut events: mpsc::Receiver<CallerEvent>, work: StopToken) -> task::JoinHandle<()> {
    tokio::spawn(async move {
        while let Some(event) = events.recv().await {
            if let CallerEvent::Stop(signal) = event {
                work.because_of(signal);
            }
        }
    })
}

/// What every step of a run is about.
#[derive(Clone, Copy)]
struct RunParts<'w> {
    plan: &'w Plan,
    resolved: &'w ResolvedRun,
    backend: &'w dyn Backend,
    prepared: &'w Prepared,
}

async fn carry_out(
    work: RunParts<'_>,
    teardown: &mut Teardown,
    findings: &mut Vec<Finding>,
    starter: &mut Starter<'_>,
) -> Result<Done, RunError> {
    let RunParts { plan, resolved, backend, prepared } = work;
    let turn = tokio::select! {
        turn = resolved.phases.of("turn", prepared.turn(backend)) => turn,
        signal = told_to_stop(&mut starter.events) => return Ok(Done::stopped(signal)),
    };
    let brought_up = {
        let bringing_up = bring_up(plan, resolved, backend, prepared, teardown, findings);
        unless_stopped(bringing_up, &mut starter.events).await
    };
    let (BroughtUp { started, gateway }, isolated) = match brought_up {
        BringUp::Up(brought_up) => brought_up?,
        BringUp::Stopped(signal) => return Ok(Done::stopped(signal)),
    };
    drop(turn);
    let resources = backend.resources(plan);
    // What has ended is removed at once. What cannot be removed now is tried again by
    // the teardown, which reports it.
    let remove = async |name, what: &Resource| {
        drop(resolved.phases.of(name, teardown::remove(what, backend)).await);
    };
    let (command_lives, command_gone) = oneshot::channel();
    let running = async {
        let seen = run_command(isolated, work, started, starter, command_lives).await;
        remove("remove sandbox", &resources.sandbox).await;
        seen
    };
    let finishing = async {
        let gateway = gateway?;
        let log = gateway.log.clone();
        let traffic =
            finish_gateway(work, gateway, command_gone).await.ok_or_else(|| log.last_words());
        if let Some(made) = &resources.gateway {
            remove("remove gateway", made).await;
        }
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
    seen.fail_on_denied = resolved.request.fail_on_denied;
    Ok(Done { outcome: judge(&seen), seen })
}

/// Whether a sandbox stands.
enum BringUp<T> {
    Up(T),
    Stopped(u8),
}

/// Waits for `bringing_up` to its end even when told to stop: what an engine is
/// asked for and not waited for may be made after it was removed.
async fn unless_stopped<T>(
    bringing_up: impl Future<Output = T>,
    events: &mut mpsc::Receiver<CallerEvent>,
) -> BringUp<T> {
    let mut bringing_up = std::pin::pin!(bringing_up);
    let mut told = None;
    loop {
        tokio::select! {
            brought_up = &mut bringing_up => return match told {
                None => BringUp::Up(brought_up),
                Some(signal) => BringUp::Stopped(signal),
            },
            signal = told_to_stop(events) => {
                told.get_or_insert(signal);
            }
        }
    }
}

/// Waits until somebody says so.
async fn told_to_stop(events: &mut mpsc::Receiver<CallerEvent>) -> u8 {
    loop {
        match events.recv().await {
            Some(CallerEvent::Stop(signal)) => return signal,
            Some(CallerEvent::Resized(_)) => {}
            None => std::future::pending().await,
        }
    }
}

/// Makes the network, the gateway and the sandbox, and measures from inside that
/// the sandbox is as strong as planned. Its first process waits for a word.
///
/// Where the backend permits it, gateway and sandbox are made at the same time:
/// nothing runs in the sandbox but our own first process until both stand.
pub async fn bring_up(
    plan: &Plan,
    resolved: &ResolvedRun,
    backend: &dyn Backend,
    prepared: &Prepared,
    teardown: &mut Teardown,
    findings: &mut Vec<Finding>,
) -> Result<(BroughtUp, Isolated), RunError> {
    for resource in backend.resources(plan).all() {
        teardown.will_make(resource.clone());
    }
    let phases = &resolved.phases;
    let parts = match &prepared.gateway {
        None => None,
        Some(content) => {
            let network = phases.of("network", backend.make_network(plan));
            let gateway = phases.of("create gateway", backend.create_gateway(plan, content));
            let roots = phases.of("roots", prepare::upstream_roots(resolved));
            let (network, gateway, roots) = tokio::join!(network, gateway, roots);
            Some((network?, gateway?, roots?))
        }
    };
    // The gateway's sockets may have to be opened in a sandbox that has started.
    let (doors_opened, doors) = oneshot::channel();
    let mut waits_for_doors = None;
    let mut network = None;
    let parts = parts.map(|(made, gateway, roots)| {
        match (made.network.listeners, made.doors) {
            (ListenerSource::Inherited, None) => waits_for_doors = Some(doors_opened),
            (_, opened) => drop(doors_opened.send(opened.unwrap_or_default())),
        }
        network = Some(made.network.clone());
        GatewayParts { network: made.network, gateway, doors, roots }
    });
    let in_any_order = waits_for_doors.is_some() || backend.starts_gateway_concurrently();
    let hopeless = Notify::new();
    let gateway = async {
        let Some(parts) = parts else { return Ok(None) };
        let brought_up = bring_up_gateway(plan, resolved, backend, prepared, parts).await;
        if brought_up.is_err() {
            hopeless.notify_one();
        }
        brought_up
    };
    let sandbox = SandboxParts { network: network.as_ref(), waits_for_doors, hopeless: &hopeless };
    let sandbox = bring_up_sandbox(plan, resolved, backend, prepared, sandbox);
    let (gateway, brought_up) = if in_any_order {
        // Both to their end, also when one of them fails.
        tokio::join!(gateway, sandbox)
    } else {
        let gateway = gateway.await?;
        (Ok(gateway), sandbox.await)
    };
    let gateway = gateway?;
    let (mut started, facts) = brought_up?;
    started.gateway = gateway
        .as_ref()
        .map(|gateway| GatewayWatch { log: gateway.log.clone(), control: gateway.control.clone() });

    let (found, isolated) = isolation::check(&facts, plan);
    *findings = found;
    let isolated =
        isolated.ok_or_else(|| RunError::NotIsolated { shortfalls: shortfalls(findings) })?;
    prepared.unmount_staging();
    Ok((BroughtUp { started, gateway }, isolated))
}

/// What must be there before a gateway can be started.
struct GatewayParts {
    network: Network,
    gateway: CreatedGateway,
    doors: oneshot::Receiver<OpenDoors>,
    /// The CA certificates by which it verifies upstreams.
    roots: ContentFiles,
}

/// What a sandbox is made with besides its content.
struct SandboxParts<'p> {
    network: Option<&'p Network>,
    /// Told of the gateway's sockets, where they are opened in the sandbox.
    waits_for_doors: Option<oneshot::Sender<OpenDoors>>,
    /// Notified when there will be no gateway.
    hopeless: &'p Notify,
}

/// Starts the gateway, and gives the sandbox its certificate. Nothing where the sandbox
/// that it waited for did not come: that one says why.
async fn bring_up_gateway(
    plan: &Plan,
    resolved: &ResolvedRun,
    backend: &dyn Backend,
    prepared: &Prepared,
    parts: GatewayParts,
) -> Result<Option<GatewayHandle>, RunError> {
    let (phases, GatewayParts { network, gateway, doors, roots }) = (&resolved.phases, parts);
    let planned = plan.network.as_ref().expect("there is a gateway only with a network");
    let (policy, upstream) = (&resolved.for_gateway, &resolved.upstream);
    let settings = settings::gateway_files(plan, planned, policy, &network, upstream, roots);
    let Ok(doors) = doors.await else { return Ok(None) };
    let starting = backend.start_gateway(plan, gateway, &network, doors, &settings);
    let gateway = phases.of("start gateway", starting).await?;
    let certificate = phases.of("gateway serves", certificate(&gateway)).await?;
    let kit = phases.now("trust kit", || prepared.trust_kit(&certificate, resolved))?;
    backend.write_trust_kit(&plan.run, &kit).await?;
    Ok(Some(gateway))
}

/// Starts the sandbox, and hears what its first process measured.
async fn bring_up_sandbox(
    plan: &Plan,
    resolved: &ResolvedRun,
    backend: &dyn Backend,
    prepared: &Prepared,
    parts: SandboxParts<'_>,
) -> Result<(MeasuredSandbox, BTreeMap<String, String>), RunError> {
    let phases = &resolved.phases;
    let SandboxParts { network, waits_for_doors, hopeless } = parts;
    let watch = prepared.watch(plan);
    let creating = backend.create_sandbox(plan, &prepared.sandbox, network);
    let CreatedSandbox { sandbox, link } = phases.of("create sandbox", creating).await?;
    phases.of("start sandbox", backend.start_sandbox(&sandbox)).await?;
    let gone = async {
        time::sleep(USUAL_START_TIME).await;
        backend.wait_for_end(&sandbox).await
    };
    let mut link = tokio::select! {
        accepted = link.accept(START_TIMEOUT) => accepted?,
        _ = gone => return Err(LinkError::Silent.into()),
    };
    if let Some(opened) = waits_for_doors {
        let first_process = link.first_process()?;
        let doors = phases.of("open doors", backend.open_doors(plan, first_process)).await?;
        drop(opened.send(doors));
    }
    // It waits for its gateway, and only we know that there will be none.
    let facts = tokio::select! {
        facts = phases.of("measure", link.facts(START_TIMEOUT)) => facts?,
        () = hopeless.notified() => return Err(LinkError::Silent.into()),
    };
    Ok((MeasuredSandbox { sandbox, link, watch, gateway: None }, facts))
}

/// A sandbox that is ready for commands, and its gateway.
#[derive(Debug)]
pub struct BroughtUp {
    pub started: MeasuredSandbox,
    pub gateway: Option<GatewayHandle>,
}

/// A sandbox whose first process has reported its facts and waits for the socket to
/// serve.
#[derive(Debug)]
pub struct MeasuredSandbox {
    pub sandbox: Sandbox,
    pub link: Link,
    pub watch: Watch,
    /// Nothing where there is no gateway.
    pub gateway: Option<GatewayWatch>,
}

impl MeasuredSandbox {
    /// Hands the first process the socket that commands are served on. Only this
    /// folder's owner can open it, and nothing in the sandbox sees it.
    pub async fn hand_over_socket(&self, socket: &Path) -> Result<(), RunError> {
        let failed = |source| {
            let (doing, path) = ("listen at", socket.to_owned());
            RunError::Prepare(PrepareError::Disk { doing, path, source })
        };
        let listener = UnixListener::bind(socket).map_err(failed)?;
        fs::set_permissions(socket, Permissions::from_mode(0o600)).map_err(failed)?;
        // As long as we held it too, nobody would be told that the sandbox is gone.
        Ok(self.link.hand_over_socket(&listener).await?)
    }
}

/// Lets the command run, in a sandbox that is as strong as planned.
async fn run_command(
    _isolated: Isolated,
    work: RunParts<'_>,
    started: MeasuredSandbox,
    starter: &mut Starter<'_>,
    command_lives: oneshot::Sender<()>,
) -> Result<RunObservations, RunError> {
    let RunParts { plan, resolved, backend, prepared } = work;
    let socket = first_process::socket_in(&prepared.folder);
    started.hand_over_socket(&socket).await?;
    let evidence = &prepared.evidence;
    let Starter { events, sink, input, size, .. } = starter;
    let recorder =
        Recorder::begin(&evidence.transcript(), &plan.command, plan.limits.output, *size);
    let mut recorder = recorder.map_err(RunError::Transcript)?;
    sink.starts();
    let supervised = async {
        let (spec, spool) = (run_spec(plan, *size), evidence.spool());
        let (user, input) = (plan.host_user, input.take());
        let starting = move || command::start(&socket, spec, &spool, user, input);
        let command = match task::spawn_blocking(starting).await.map_err(io::Error::other) {
            Ok(Ok(command)) => command,
            Ok(Err(CallError::Unstartable { code, why })) => {
                let end = Some(CommandEnd::Unstartable { code, why });
                return Ok(RunObservations { end, ..RunObservations::default() });
            }
            Ok(Err(err)) => return Err(RunError::Command(err)),
            Err(err) => return Err(RunError::Command(err.into())),
        };
        let how = Supervision {
            overdue_after: plan.limits.timeout + plan.limits.grace + OVERDUE_SLACK,
            max_output_bytes: plan.limits.output,
            watch: started.watch,
            gateway: started.gateway,
            sandbox: Some((backend, &started.sandbox)),
            command_lives: Some(command_lives),
        };
        let caller = Caller { events, sink: &mut **sink, recorder: Some(&mut recorder) };
        Ok(resolved.phases.of("command", supervise(command, how, caller)).await?)
    };
    let seen = supervised.await;
    sink.ended().await;
    let seen = seen?;
    recorder.end(judge(&seen).code()).map_err(RunError::Transcript)?;
    // All of it is in the transcript. Otherwise closing the evidence uses it.
    drop(fs::remove_file(evidence.spool()));
    Ok(seen)
}

/// The one command that the sandbox ends with.
pub fn run_spec(plan: &Plan, size: TerminalSize) -> CommandSpec {
    CommandSpec {
        words: plan.command.clone(),
        directory: None,
        environment: Vec::new(),
        streams: Streams::Spooled {
            max_output_bytes: plan.limits.output,
            terminal: plan.tty.then_some(size),
        },
        deadline: Some(plan.limits.timeout),
        ends_sandbox: true,
        outlives_client: plan.session.is_some(),
    }
}

/// The certificate of the gateway's authority, once it serves.
async fn certificate(gateway: &GatewayHandle) -> Result<String, RunError> {
    let client = ControlClient::new(gateway.control.clone());
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        let err = match client.ca_certificate().await {
            Ok(certificate) => return Ok(certificate),
            Err(err) => err,
        };
        if gateway.log.is_gone() || Instant::now() > deadline {
            return Err(RunError::Gateway { said: gateway.log.last_words(), source: err });
        }
        // Its log changes when it begins to listen. Had it done so before we waited, the
        // timeout makes us look again.
        drop(time::timeout(GATEWAY_START_POLL, gateway.log.changed()).await);
    }
}

/// Lets the gateway finish its log once nobody in the sandbox can speak to it any
/// more; what passed through it, or nothing if it is dead.
async fn finish_gateway(
    work: RunParts<'_>,
    gateway: GatewayHandle,
    command_gone: oneshot::Receiver<()>,
) -> Option<Traffic> {
    // Nothing is ever sent: the sender is dropped when the command is gone.
    drop(command_gone.await);
    let client = ControlClient::new(gateway.control.clone());
    let mut counts = client.status().await.ok()?.counts;
    // Its clients are gone; it hears so from the kernel, a little later than we.
    let settled = Instant::now() + CONNECTIONS_SETTLE_TIME;
    while counts.open_connections > 0 && Instant::now() < settled {
        time::sleep(CONNECTIONS_POLL_INTERVAL).await;
        counts = client.status().await.ok()?.counts;
    }
    let finishing = async {
        if client.drain().await.is_ok() {
            let deadline = Instant::now() + GATEWAY_FINISH_TIMEOUT;
            while !gateway.log.is_gone() && Instant::now() < deadline {
                drop(time::timeout(GATEWAY_START_POLL, gateway.log.changed()).await);
            }
        }
    };
    work.resolved.phases.of("gateway ends", finishing).await;
    Some(Traffic {
        requests: counts.requests,
        refused: counts.refused,
        sent: counts.uploaded,
        received: counts.downloaded,
    })
}

/// When nobody says that something changed, we look.
const GATEWAY_START_POLL: Duration = Duration::from_millis(20);
const CONNECTIONS_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// By then the gateway has noticed that its clients are gone; the drain cuts what is
/// still open.
const CONNECTIONS_SETTLE_TIME: Duration = Duration::from_millis(500);
/// A sandbox or a gateway that has not reported by then will not. Of a hundred that
/// an engine starts at once on a busy machine, some take minutes.
const START_TIMEOUT: Duration = Duration::from_secs(300);
/// A gateway that was told to finish its log has done so by then.
const GATEWAY_FINISH_TIMEOUT: Duration = Duration::from_secs(30);
/// One that has not reported by then may have ended, and is asked about.
const USUAL_START_TIME: Duration = Duration::from_secs(5);

fn shortfalls(findings: &[Finding]) -> String {
    let missing = findings.iter().filter(|finding| !finding.holds);
    let all: Vec<_> = missing
        .map(|Finding { what, measured, wanted, .. }| {
            format!("{what} (found {measured}, wanted {wanted})")
        })
        .collect();
    all.join("; ")
}
