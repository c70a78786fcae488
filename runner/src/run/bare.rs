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
use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::{select, time};

use super::close::{self, in_words};
use super::record::{Record, Recorder};
use super::unsealed::Unsealed;
use super::{Done, Report, RunError};
use crate::backend::{Abilities, Ability, Chunk, Side, UserOf};
use crate::evidence::RunFolder;
use crate::exec::{Heard, Signals, Tap as _};
use crate::init::wire::End;
use crate::outcome::{Seen, Stopped, Usage, judge};
use crate::plan::{self, Machine, Plan, RunId};
use crate::process_tree::ProcessStat;
use crate::request::Understood;
use crate::terminal::output::CallerOutput;

/// The plan of a run that isolates nothing.
pub(super) fn plan(run: RunId, understood: &Understood) -> Plan {
    let abilities = Abilities {
        backend: "none",
        image: "none",
        interfaces: "all",
        cpus: Ability::Enforced,
        memory: Ability::Enforced,
        pids: Ability::Enforced,
        inotify: Ability::Enforced,
        pipes: Ability::Enforced,
        terminals: Ability::Enforced,
        user: UserOf::Caller,
    };
    let request = &understood.request;
    let planned = plan::plan(run, request, &understood.policy, &Machine::this(), &abilities);
    let mut plan = planned.expect("nothing is refused that is not promised");
    plan.image = "none".to_owned();
    plan.network = None;
    plan.mounts.clear();
    plan.tmpfs.clear();
    plan.unenforced = vec!["cpus", "memory", "pids", "disk"];
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
pub(super) async fn run(plan: &Plan, understood: &Understood) -> Report {
    let mut report = Report::begun(Timestamp::now());
    let evidence = match RunFolder::create(&understood.request.runs, plan.run.as_str()) {
        Ok(evidence) => evidence,
        Err(err) => {
            report.ended = Err(super::PrepareError::from(err).into());
            return report;
        }
    };
    let unsealed = Unsealed {
        run: plan.run.clone(),
        backend: plan.backend.to_owned(),
        is_session: false,
        begun: report.begun,
        folder: super::prepare::folder(plan),
        runs: understood.request.runs.clone(),
        state: understood.state.clone(),
        workspace: None,
    };
    let sealer = unsealed.begin(plan, understood, &evidence);
    report.ended = carry_out(plan, understood, &evidence).await;
    report.missing.push("changes: the command worked in the project itself".to_owned());
    if plan.tty {
        report.missing.push("transcript: the command had the terminal itself".to_owned());
    }
    report.missing.extend(close::policy(understood, &evidence).err());
    let record = Record::new(plan, &report, &understood.phases);
    let written = evidence.write_run(&record).map_err(|err| in_words(&err)).err();
    report.missing.extend(written);
    let sealed = evidence.seal(&understood.state).map(drop).map_err(|err| in_words(&err)).err();
    report.missing.extend(sealed);
    if let Some(sealer) = sealer {
        sealer.done();
    }
    report
}

async fn carry_out(
    plan: &Plan,
    understood: &Understood,
    evidence: &RunFolder,
) -> Result<Done, RunError> {
    note(plan, evidence).await.map_err(RunError::Unrecorded)?;
    let mut signals = Signals::listen();
    let mut recorder = Recorder::begin(plan, evidence).map_err(RunError::Transcript)?;
    let begun = Instant::now();
    let mut child = match start(plan) {
        Ok(child) => child,
        Err(err) => {
            let seen = Seen { end: Some(unstartable(plan, &err)), ..Seen::default() };
            return Ok(Done { outcome: judge(&seen), seen });
        }
    };
    let group = Pid::from_child(&child);
    let signal = |number: u8| {
        let Some(signal) = Signal::from_named_raw(number.into()) else { return };
        // One that is gone is what was wanted.
        if plan.tty {
            kill_process(group, signal).ok();
        } else {
            kill_process_group(group, signal).ok();
        }
    };
    let (sender, mut printed) = mpsc::channel::<Chunk>(64);
    if let Some(out) = child.stdout.take() {
        read(out, Side::Out, sender.clone());
    }
    if let Some(err) = child.stderr.take() {
        read(err, Side::Err, sender.clone());
    }
    drop(sender);
    let mut waiting = spawn_blocking(move || child.wait());

    let mut seen = Seen::default();
    let mut ended: Option<io::Result<ExitStatus>> = None;
    let overdue = time::sleep(plan.limits.timeout);
    tokio::pin!(overdue);
    let mut flowing = !plan.tty;
    let mut caller = CallerOutput::new(understood.request.keep_stdout, false);
    while flowing || ended.is_none() {
        select! {
            piece = printed.recv(), if flowing => match piece {
                None => flowing = false,
                Some(chunk) => {
                    seen.usage.output += chunk.bytes.len() as u64;
                    if seen.usage.output > plan.limits.output {
                        seen.stopped.get_or_insert(Stopped::Output { limit: plan.limits.output });
                        signal(KILL);
                        continue;
                    }
                    recorder.printed(&chunk);
                    // Whoever does not read any more need not.
                    drop(caller.pass_on(&chunk).await);
                }
            },
            done = &mut waiting, if ended.is_none() => {
                ended = Some(done.unwrap_or_else(|err| Err(io::Error::other(err))));
                // What it left running in its group goes with it.
                if !plan.tty {
                    signal(KILL);
                }
            }
            heard = signals.next() => {
                if let Heard::Stop(number) = heard {
                    seen.stopped.get_or_insert(Stopped::Cancelled { signal: number });
                    signals.count += 1;
                    signal(if signals.count < 3 { number } else { KILL });
                }
            }
            () = &mut overdue, if ended.is_none() && seen.stopped != Some(Stopped::Overdue) => {
                seen.stopped = Some(Stopped::Overdue);
                signal(KILL);
            }
        }
    }
    seen.end = ended.and_then(Result::ok).map(end);
    seen.usage = Usage { cpu_nanoseconds: children_took(), wall: begun.elapsed(), ..seen.usage };
    recorder.end(judge(&seen).code()).map_err(RunError::Transcript)?;
    Ok(Done { outcome: judge(&seen), seen })
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

fn unstartable(plan: &Plan, err: &io::Error) -> End {
    let code = if err.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    let program = plan.command.first().map_or("", String::as_str);
    End::Unstartable { code, why: format!("cannot start `{program}`: {err}") }
}

fn end(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exited(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, signal) => End::Signaled(signal.and_then(|it| it.try_into().ok()).unwrap_or(KILL)),
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
