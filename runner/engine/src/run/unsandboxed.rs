//! A run without a sandbox: what a policy permits in so many words, and somebody
//! asked for.
//!
//! It is as loud as it can be, and recorded like any other: what it printed, how
//! it ended, what it took, sealed. Nothing is isolated and nothing is promised:
//! the plan says so, and the record has no findings.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Instant;

use audit::{Log, Operator, Options, Text};
use inside::process_tree::ProcessStat;
use jiff::Timestamp;
use policies::Attachment;
use protocol::init::{CommandEnd, CommandOrder};
use protocol::spool::SpoolEnd;
use rustix::io::{Errno, ioctl_fionread, retry_on_intr};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::{mpsc, oneshot};
use tokio::{select, time};

use super::Starter;
use crate::abilities::{Abilities, Enforcement, UserOf};
use crate::backend::{Chunk, OutputSide};
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
        attachments: Attachment::ALL.to_vec(),
        no_sockets: None,
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
    let (has_ended, mut waiting) = oneshot::channel();
    // A thread of its own, which nobody waits for: what may not be signalled may go on
    // for ever.
    thread::Builder::new()
        .spawn(move || {
            wait_for(group);
            has_ended.send(()).ok();
        })
        .inspect_err(|_| drop(child.kill().and_then(|()| child.wait())))?;
    let mut printed = [
        (OutputSide::Out, child.stdout.take().map(OwnedFd::from)),
        (OutputSide::Err, child.stderr.take().map(OwnedFd::from)),
    ]
    .map(|(side, from)| (side, from.and_then(|from| Receiver::from_owned_fd(from).ok())));
    let (tell, events) = mpsc::channel(PIECES_AT_ONCE);
    let (orders, mut ordered) = mpsc::unbounded_channel();
    let (is_alone, timeout, limit) = (plan.tty, plan.limits.timeout, plan.limits.output);
    tokio::spawn(async move {
        let signal = |number: u8| {
            let Some(signal) = Signal::from_named_raw(number.into()) else { return };
            // One that is gone is what was wanted.
            match is_alone {
                true => kill_process(group, signal).ok(),
                false => kill_process_group(group, signal).ok(),
            };
        };
        let mut output = Output { tell: &tell, begun: Instant::now(), left: limit };
        let mut ended_by_us = None;
        let overdue = time::sleep(timeout);
        tokio::pin!(overdue);
        let [(_, out), (_, err)] = &mut printed;
        loop {
            let is_too_much = select! {
                () = readable(out) => output.pass_on(OutputSide::Out, out).await,
                () = readable(err) => output.pass_on(OutputSide::Err, err).await,
                _ = &mut waiting => break,
                Some(order) = ordered.recv() => {
                    match order {
                        CommandOrder::Kill => signal(KILL),
                        CommandOrder::Signal(number) => signal(number),
                        CommandOrder::Resize(_) => {}
                    }
                    false
                }
                () = &mut overdue, if ended_by_us.is_none() => {
                    ended_by_us = Some(CommandEnd::Deadline);
                    signal(KILL);
                    false
                }
            };
            if is_too_much {
                ended_by_us.get_or_insert(CommandEnd::OutputLimit);
                signal(KILL);
            }
        }
        // What it left running in its group goes with it, as long as the group's number
        // is nobody else's: it has ended and nobody has waited for it.
        if !is_alone {
            signal(KILL);
        }
        let exited = child.wait().map_or(CommandEnd::Signaled(KILL), end);
        // What it wrote is there already; nobody waits for what somebody who left its
        // group may still print.
        for (side, from) in &printed {
            if let Some(from) = from
                && output.pass_on_rest(*side, from).await
            {
                ended_by_us.get_or_insert(CommandEnd::OutputLimit);
            }
        }
        let end = ended_by_us.unwrap_or(exited);
        let cpu = children_took().map(|taken| ("cpu_nanoseconds".to_owned(), taken.to_string()));
        let facts = cpu.into_iter().collect();
        drop(tell.send(CommandEvent::Ended(SpoolEnd { end, facts })).await);
    });
    Ok(RunningCommand { events, orders })
}

/// Waits until it has ended, and leaves it to be waited for.
fn wait_for(child: Pid) {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while matches!(waitid(WaitId::Pid(child), how), Err(Errno::INTR)) {}
}

/// Waits until something can be read; for ever, if nothing ever can.
async fn readable(from: &Option<Receiver>) {
    match from {
        Some(from) => drop(from.readable().await),
        None => std::future::pending().await,
    }
}

/// Where what the command prints goes, and how much more it may print.
struct Output<'o> {
    tell: &'o mpsc::Sender<CommandEvent>,
    begun: Instant,
    left: u64,
}

impl Output<'_> {
    /// Passes on a piece, if there is one; whether it is more than may be.
    async fn pass_on(&mut self, to: OutputSide, from: &mut Option<Receiver>) -> bool {
        let Some(reading) = from else { return false };
        let mut buffer = vec![0; PIECE_BYTES];
        match reading.try_read(&mut buffer) {
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => false,
            Ok(0) | Err(_) => {
                *from = None;
                false
            }
            Ok(length) => {
                buffer.truncate(length);
                self.print(to, buffer).await
            }
        }
    }

    /// Passes on what is there now; whether it is more than may be. The kernel itself
    /// is asked: what the runtime knows of it may be older.
    async fn pass_on_rest(&mut self, to: OutputSide, from: &Receiver) -> bool {
        let mut there = ioctl_fionread(from).unwrap_or_default();
        let mut is_too_much = false;
        while there > 0 {
            let mut buffer = vec![0; PIECE_BYTES];
            let read = retry_on_intr(|| rustix::io::read(from, &mut *buffer)).unwrap_or_default();
            if read == 0 {
                break;
            }
            there = there.saturating_sub(read as u64);
            buffer.truncate(read);
            is_too_much |= self.print(to, buffer).await;
        }
        is_too_much
    }

    /// Passes on as much as may be; whether that is not all.
    async fn print(&mut self, to: OutputSide, mut bytes: Vec<u8>) -> bool {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX);
        let is_too_much = bytes.len() > room;
        bytes.truncate(room);
        self.left -= bytes.len() as u64;
        if !bytes.is_empty() {
            let chunk = Chunk { to, bytes: bytes.into() };
            drop(self.tell.send(CommandEvent::Printed(chunk, self.begun.elapsed())).await);
        }
        is_too_much
    }
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

/// What our children took that have ended, in steps of a hundredth of a second.
fn children_took() -> Option<u64> {
    let us = i32::try_from(std::process::id()).ok()?;
    ProcessStat::of(us).map(|stat| stat.children_cpu_nanoseconds)
}

const KILL: u8 = 9;
const PIECES_AT_ONCE: usize = 64;
const PIECE_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::tests::{planned, request};

    fn shell(script: &str) -> Plan {
        let mut plan = planned("version: 1\n", &request());
        (plan.tty, plan.directory) = (false, "/".to_owned());
        plan.command = ["sh", "-c", script].map(str::to_owned).to_vec();
        plan
    }

    /// What it prints and how it ends, without a sandbox.
    async fn carried_out(script: &str) -> (String, Option<CommandEnd>) {
        rest(spawn(&shell(script)).unwrap()).await
    }

    async fn rest(mut command: RunningCommand) -> (String, Option<CommandEnd>) {
        let mut text = String::new();
        while let Some(event) = command.events.recv().await {
            match event {
                CommandEvent::Printed(chunk, _) => text += &String::from_utf8_lossy(&chunk.bytes),
                CommandEvent::Ended(ended) => return (text, Some(ended.end)),
                CommandEvent::Resized(..) => {}
            }
        }
        (text, None)
    }

    #[tokio::test]
    async fn nobody_waits_for_who_left_the_group_and_holds_on_to_the_output() {
        let left = "setsid sh -c 'while :; do sleep 0.2; echo more || exit; done' & \
                    head -c 40000 /dev/zero; exit 3";
        let ended = time::timeout(Duration::from_secs(10), carried_out(left)).await;
        let (text, end) = ended.expect("it ended");
        assert_eq!(end, Some(CommandEnd::Exited(3)));
        assert_eq!(text.matches('\0').count(), 40_000, "all that it printed itself");
    }

    #[tokio::test]
    async fn whoever_stayed_in_the_group_ends_with_it() {
        let (text, end) = carried_out("sleep 600 & echo $!; exit 4").await;
        assert_eq!(end, Some(CommandEnd::Exited(4)));
        let lives =
            || ProcessStat::of(text.trim().parse().unwrap()).is_some_and(|it| !it.is_zombie);
        let deadline = Instant::now() + Duration::from_secs(10);
        while lives() {
            assert!(Instant::now() < deadline, "{text}");
            time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn the_last_words_are_passed_on_also_when_the_runtime_has_not_heard_of_them() {
        let command = spawn(&shell("printf first; sleep 0.5; printf last")).unwrap();
        time::sleep(Duration::from_millis(250)).await;
        // Nobody looks while it prints and ends.
        thread::sleep(Duration::from_millis(1000));
        assert_eq!(rest(command).await, ("firstlast".to_owned(), Some(CommandEnd::Exited(0))));
    }

    #[tokio::test]
    async fn what_is_too_much_is_passed_on_up_to_the_limit_and_nothing_after_it() {
        let mut plan = shell("printf 123; printf 45678 >&2; sleep 0.3; printf 9012; printf 3 >&2");
        plan.limits.output = 10;
        let (text, end) = rest(spawn(&plan).unwrap()).await;
        assert_eq!(end, Some(CommandEnd::OutputLimit));
        assert_eq!(text.len(), 10, "{text}");

        let (tell, mut events) = mpsc::channel(PIECES_AT_ONCE);
        let mut output = Output { tell: &tell, begun: Instant::now(), left: 4 };
        assert!(!output.print(OutputSide::Out, b"abc".to_vec()).await);
        assert!(output.print(OutputSide::Out, b"def".to_vec()).await);
        assert!(output.print(OutputSide::Err, b"g".to_vec()).await);
        drop(tell);
        let mut passed_on = Vec::new();
        while let Some(CommandEvent::Printed(chunk, _)) = events.recv().await {
            passed_on.extend(chunk.bytes);
        }
        assert_eq!(passed_on, b"abcd");
    }

    #[test]
    fn a_command_that_goes_on_does_not_keep_us_from_ending() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (command, pid) = runtime.block_on(async {
            let mut command = spawn(&shell("echo $$; exec sleep 600")).unwrap();
            let Some(CommandEvent::Printed(chunk, _)) = command.events.recv().await else {
                panic!("it says who it is")
            };
            (command, String::from_utf8_lossy(&chunk.bytes).trim().parse().unwrap())
        });
        let (tell, ended) = std::sync::mpsc::channel();
        let ending = thread::spawn(move || {
            drop(runtime);
            tell.send(()).unwrap();
        });
        let in_time = ended.recv_timeout(Duration::from_secs(10));
        kill_process_group(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        ending.join().unwrap();
        drop(command);
        in_time.expect("it does not wait for the command");
    }

    #[test]
    fn who_has_ended_keeps_its_number_until_the_group_was_signalled() {
        let mut child = Command::new("true").spawn().unwrap();
        wait_for(Pid::from_child(&child));
        assert!(ProcessStat::of(child.id().try_into().unwrap()).is_some(), "nobody else has it");
        assert!(child.wait().unwrap().success());
    }
}
