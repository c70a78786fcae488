//! A run without a sandbox: what a policy permits in so many words, and somebody
//! asked for.
//!
//! It is as loud as it can be, and recorded like any other: what it printed, how
//! it ended, what it took, sealed. Nothing is isolated and nothing is promised:
//! the plan says so, and the record has no findings.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use audit::{Log, Operator, Options, Text};
use bytes::Bytes;
use inside::process_tree::ProcessStat;
use jiff::Timestamp;
use protocol::init::{CommandEnd, CommandOrder};
use protocol::spool::SpoolEnd;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::{select, time};

use super::Starter;
use crate::abilities::{Abilities, Enforcement, UserOf};
use crate::backend::{Chunk, Side};
use crate::command::{CommandEvent, RunningCommand};
use crate::disk::Watch;
use crate::evidence::RunFolder;
use crate::outcome::{RunObservations, judge};
use crate::plan::{self, Machine, Plan};
use crate::prepare;
use crate::record::{Record, Recorder, in_words, write_policy};
use crate::report::{Done, RunError, RunReport};
use crate::run_id::RunId;
use crate::spec::ResolvedRun;
use crate::supervise::{Caller, OVERDUE_SLACK, Supervision, supervise};
use crate::unsealed::Unsealed;

/// The plan of a run that isolates nothing.
pub fn plan(run: RunId, resolved: &ResolvedRun) -> Plan {
    let abilities = Abilities {
        backend: "none",
        image: "none",
        interfaces: "all",
        cpus: Enforcement::Enforced,
        memory: Enforcement::Enforced,
        pids: Enforcement::Enforced,
        inotify: Enforcement::Enforced,
        pipes: Enforcement::Enforced,
        terminals: Enforcement::Enforced,
        user: UserOf::Caller,
    };
    let request = &resolved.request;
    let planned = plan::plan(run, request, &resolved.policy, &Machine::this(), &abilities);
    let mut plan = planned.expect("nothing is refused that is not promised");
    plan.image = "none".to_owned();
    plan.network = None;
    plan.mounts.clear();
    plan.tmpfs.clear();
    plan.unenforced = ["cpus", "memory", "pids", "disk"].map(Into::into).to_vec();
    plan.directory = request.workspace.display().to_string();
    plan.environment = request.environment.clone();
    plan.environment.push(("SLUICE_RUN".to_owned(), plan.run.as_str().to_owned()));
    plan.recorded = plan::recorded(&plan.environment, request);
    plan.notes = vec![
        format!(
            "`{}` runs as you, with your files, your network and your rights",
            plan.command.join(" ")
        ),
        "no rule of the policy is in force but the time and the output it may take".to_owned(),
    ];
    plan
}

/// Carries it out.
pub async fn run(plan: &Plan, resolved: &ResolvedRun, mut starter: Starter<'_>) -> RunReport {
    let mut report = RunReport::begun(Timestamp::now());
    let evidence = match RunFolder::create(&resolved.request.runs, plan.run.as_str()) {
        Ok(evidence) => evidence,
        Err(err) => {
            report.ended = Err(prepare::PrepareError::from(err).into());
            return report;
        }
    };
    let unsealed = Unsealed::without_project(plan, resolved, report.begun);
    let sealer = unsealed.begin(resolved, &evidence);
    report.ended = carry_out(plan, &evidence, &mut starter).await;
    report.missing.push("changes: the command worked in the project itself".to_owned());
    if plan.tty {
        report.missing.push("transcript: the command had the terminal itself".to_owned());
    }
    report.missing.extend(write_policy(resolved, &evidence).err());
    let record = Record::new(plan, &report, &resolved.phases);
    let written = evidence.write_run(&record).map_err(|err| in_words(&err)).err();
    report.missing.extend(written);
    let sealed = evidence.seal(&resolved.state).map(drop).map_err(|err| in_words(&err)).err();
    report.missing.extend(sealed);
    if let Some(sealer) = sealer {
        sealer.done();
    }
    report
}

async fn carry_out(
    plan: &Plan,
    evidence: &RunFolder,
    starter: &mut Starter<'_>,
) -> Result<Done, RunError> {
    note(plan, evidence).await.map_err(RunError::Unrecorded)?;
    let Starter { events, sink, size, .. } = starter;
    let recorder =
        Recorder::begin(&evidence.transcript(), &plan.command, plan.limits.output, *size);
    let mut recorder = recorder.map_err(RunError::Transcript)?;
    let command = match spawn(plan) {
        Ok(command) => command,
        Err(err) => {
            let seen = RunObservations {
                end: Some(unstartable(plan, &err)),
                ..RunObservations::default()
            };
            return Ok(Done { outcome: judge(&seen), seen });
        }
    };
    sink.starts();
    let how = Supervision {
        overdue_after: plan.limits.timeout + OVERDUE_SLACK,
        max_output_bytes: plan.limits.output,
        watch: Watch::nothing(),
        gateway: None,
        sandbox: None,
        command_lives: None,
    };
    let seen = supervise(
        command,
        how,
        Caller { events, sink: &mut **sink, recorder: Some(&mut recorder) },
    )
    .await;
    sink.ended().await;
    let seen = seen?;
    recorder.end(judge(&seen).code()).map_err(RunError::Transcript)?;
    Ok(Done { outcome: judge(&seen), seen })
}

/// Starts the command as a child of ours, and does what the first process does in a
/// sandbox: passes on what it prints, keeps its limits, says how it ended.
fn spawn(plan: &Plan) -> io::Result<RunningCommand> {
    let mut child = start(plan)?;
    let group = Pid::from_child(&child);
    let is_alone = plan.tty;
    let signal = move |number: u8| {
        let Some(signal) = Signal::from_named_raw(number.into()) else { return };
        // One that is gone is what was wanted.
        match is_alone {
            true => kill_process(group, signal).ok(),
            false => kill_process_group(group, signal).ok(),
        };
    };
    let (printed, mut pieces) = mpsc::channel::<Chunk>(PIECES_AT_ONCE);
    if let Some(out) = child.stdout.take() {
        read(out, Side::Out, printed.clone());
    }
    if let Some(err) = child.stderr.take() {
        read(err, Side::Err, printed.clone());
    }
    drop(printed);
    let (tell, events) = mpsc::channel(PIECES_AT_ONCE);
    let (orders, mut ordered) = mpsc::unbounded_channel();
    let (timeout, limit) = (plan.limits.timeout, plan.limits.output);
    tokio::spawn(async move {
        let begun = Instant::now();
        let mut waiting = spawn_blocking(move || child.wait());
        let overdue = time::sleep(timeout);
        tokio::pin!(overdue);
        let (mut exited, mut ended_by_us, mut output) = (None, None, 0_u64);
        let mut flowing = true;
        while flowing || exited.is_none() {
            select! {
                piece = pieces.recv(), if flowing => match piece {
                    None => flowing = false,
                    Some(chunk) => {
                        output += chunk.bytes.len() as u64;
                        if output > limit {
                            ended_by_us.get_or_insert(CommandEnd::OutputLimit);
                            signal(KILL);
                        } else {
                            drop(tell.send(CommandEvent::Printed(chunk, begun.elapsed())).await);
                        }
                    }
                },
                done = &mut waiting, if exited.is_none() => {
                    let status = done.unwrap_or_else(|err| Err(io::Error::other(err)));
                    exited = Some(status.map_or(CommandEnd::Signaled(KILL), end));
                    // What it left running in its group goes with it.
                    if !is_alone {
                        signal(KILL);
                    }
                }
                Some(order) = ordered.recv() => match order {
                    CommandOrder::Kill => signal(KILL),
                    CommandOrder::Signal(number) => signal(number),
                    CommandOrder::Resize(_) => {}
                },
                () = &mut overdue, if exited.is_none() && ended_by_us.is_none() => {
                    ended_by_us = Some(CommandEnd::Deadline);
                    signal(KILL);
                }
            }
        }
        let end = ended_by_us.or(exited).unwrap_or(CommandEnd::Signaled(KILL));
        let cpu = children_took().map(|taken| ("cpu_nanoseconds".to_owned(), taken.to_string()));
        let facts = cpu.into_iter().collect();
        drop(tell.send(CommandEvent::Ended(SpoolEnd { end, facts })).await);
    });
    Ok(RunningCommand { events, orders })
}

/// It is on record before it happens, or it does not happen.
async fn note(plan: &Plan, evidence: &RunFolder) -> anyhow::Result<()> {
    let options = Options {
        writer: Text::constant(concat!("sluice ", env!("CARGO_PKG_VERSION"))),
        origin: plan.origin.recorded(),
        ..Options::new(plan.run.as_str())
    };
    let (log, _) = Log::open(&evidence.gateway_log()?, options)?;
    let operator = Operator {
        action: Text::constant("no_sandbox"),
        user: Some(format!("uid {}", rustix::process::getuid().as_raw()).into()),
        accepted: true,
        detail: Some(plan.command.join(" ").into()),
    };
    log.record_safely(operator).await?;
    log.close().await?;
    Ok(())
}

/// In a group of its own, so that all of it can be ended. With a terminal it
/// stays in ours: only those in front may read from it.
fn start(plan: &Plan) -> io::Result<Child> {
    let (program, arguments) =
        plan.command.split_first().ok_or_else(|| io::Error::other("there is no command"))?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&plan.directory);
    command.envs(plan.environment.iter().map(|(name, value)| (name, value)));
    if !plan.tty {
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    command.spawn()
}

fn unstartable(plan: &Plan, err: &io::Error) -> CommandEnd {
    let code = if err.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    let program = plan.command.first().map_or("", String::as_str);
    CommandEnd::Unstartable { code, why: format!("cannot start `{program}`: {err}") }
}

fn end(status: ExitStatus) -> CommandEnd {
    match (status.code(), status.signal()) {
        (Some(code), _) => CommandEnd::Exited(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, signal) => {
            CommandEnd::Signaled(signal.and_then(|it| it.try_into().ok()).unwrap_or(KILL))
        }
    }
}

fn read(mut from: impl Read + Send + 'static, to: Side, into: mpsc::Sender<Chunk>) {
    spawn_blocking(move || {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(length) = from.read(&mut buffer) {
            let Some(bytes) = buffer.get(..length).filter(|bytes| !bytes.is_empty()) else { break };
            if into.blocking_send(Chunk { to, bytes: Bytes::copy_from_slice(bytes) }).is_err() {
                break;
            }
        }
    });
}

/// What our children took that have ended, in steps of a hundredth of a second.
fn children_took() -> Option<u64> {
    let us = i32::try_from(std::process::id()).ok()?;
    ProcessStat::of(us).map(|stat| stat.children_cpu_nanoseconds)
}

const KILL: u8 = 9;
const PIECES_AT_ONCE: usize = 64;
