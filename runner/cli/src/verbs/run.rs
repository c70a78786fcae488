//! `sluice run`.

mod end_summary;

use audit::ErrorChain;
use engine::outcome::Outcome;
use engine::plan::{Plan, RunId};
use engine::record::Record;
use engine::report::RunReport;
use engine::run::{Starter, run, unsandboxed};
use engine::spec::{ResolvedRun, UpstreamPin};
use tokio::runtime::Runtime;

use crate::caller;
use crate::console::{Console, Format, Tone, recording_takes_a_while};
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::request::{PlannedRun, RunFlags, print_plan};
use crate::terminal;
use crate::terminal::output::CallerOutput;

/// Carries out the command line, or shows what that would be.
pub fn verb(flags: &RunFlags, console: &mut Console) -> Result<Exit, Failure> {
    if !flags.names_a_command() {
        let words =
            "no command; write `sluice run -- COMMAND`, or `sluice run -c 'A LINE FOR THE SHELL'`";
        return Err(Failure::Usage(words.to_owned()));
    }
    let resolved = flags.resolve(environment::of_this_process(), console)?;
    let runtime = caller::runtime()?;
    if resolved.request.no_sandbox {
        return unprotected(&resolved, flags.dry_run, &runtime, console);
    }
    let planned = PlannedRun::new(resolved, &runtime)?;
    if flags.dry_run {
        return print_plan(&planned.plan, console);
    }
    planned.say_notes(console);
    let report = runtime.block_on(sandboxed(&planned, console));
    // A read of the caller's terminal cannot be called back; it ends with us.
    runtime.shutdown_background();
    let report = report?;

    let PlannedRun { plan, resolved, .. } = &planned;
    let record = Record::new(plan, &report, &resolved.phases);
    tell(&report, console);
    for words in pinned_and_trusted(plan) {
        console.say_labelled(Tone::Faint, "sluice:", words);
    }
    if console.format != Format::Table {
        console.json(&record)?;
    } else if !flags.quiet {
        for line in end_summary::lines(plan, &report) {
            console.say_labelled(Tone::Faint, "sluice:", line);
        }
    }
    Ok(Exit::Command(record.exit_code))
}

/// Runs the command in a sandbox, to its end.
async fn sandboxed(planned: &PlannedRun, console: &mut Console) -> anyhow::Result<RunReport> {
    // Before anything is made: from here on, being told to stop means to undo it.
    let events = caller::listen();
    planned.clear_the_way(console).await?;
    let PlannedRun { plan, resolved, backend, .. } = planned;
    // Our own result goes to stdout then, and what the command prints does not.
    let keep_stdout = console.format != Format::Table;
    let starter = Starter {
        events,
        sink: &mut CallerOutput::new(keep_stdout, plan.tty),
        input: Some(caller::input()),
        size: terminal::size_or_usual(),
        say: &mut |note: &str| console.note(note),
        announce: recording_takes_a_while,
    };
    Ok(run(plan, resolved, &**backend, starter).await)
}

/// What a person's own word changed about where requests went and whom they
/// believed.
fn pinned_and_trusted(plan: &Plan) -> Vec<String> {
    let pins: Vec<String> =
        plan.pins.iter().map(|UpstreamPin { name, address }| format!("{name}={address}")).collect();
    let roots: Vec<String> =
        plan.trusted.iter().map(|root| root.file.display().to_string()).collect();
    let mut said = Vec::new();
    if !pins.is_empty() {
        said.push(format!("was pinned: {}", pins.join(", ")));
    }
    if !roots.is_empty() {
        said.push(format!("was trusted besides the usual authorities: {}", roots.join(", ")));
    }
    said
}

/// Nothing is isolated, and nobody can overlook that.
fn unprotected(
    resolved: &ResolvedRun,
    dry_run: bool,
    runtime: &Runtime,
    console: &mut Console,
) -> Result<Exit, Failure> {
    let plan = unsandboxed::plan(RunId::now(), resolved);
    for note in &plan.notes {
        console.say_labelled(Tone::Bad, "NO SANDBOX:", note);
    }
    if dry_run {
        return print_plan(&plan, console);
    }
    let keep_stdout = console.format != Format::Table;
    let report = runtime.block_on(async {
        let starter = Starter {
            events: caller::listen(),
            // The command has the terminal itself, and our input.
            sink: &mut CallerOutput::new(keep_stdout, false),
            input: None,
            size: terminal::size_or_usual(),
            say: &mut |_: &str| {},
            announce: recording_takes_a_while,
        };
        unsandboxed::run(&plan, resolved, starter).await
    });
    let record = Record::new(&plan, &report, &resolved.phases);
    tell(&report, console);
    if console.format != Format::Table {
        console.json(&record)?;
    }
    Ok(Exit::Command(record.exit_code))
}

/// Says what an exit code does not.
fn tell(report: &RunReport, console: &mut Console) {
    let left = report.left.iter().map(|left| format!("{}: {}", left.resource, left.why));
    console.say_unfinished(left, &report.missing, &report.not_done);
    if let Some(first) = report.artifacts_left_out.first() {
        let more = match report.artifacts_left_out.len() {
            1 => String::new(),
            count => format!(", and {} more", count - 1),
        };
        let text = format_args!("{}: {}{more}", first.path, first.why);
        console.say_labelled(Tone::Warn, "artifacts left out:", text);
    }
    match &report.ended {
        Ok(done) => match &done.outcome {
            // The command has spoken for itself.
            Outcome::Exited { .. } => {
                if let Some(protocol::init::CommandEnd::Unstartable { why, .. }) = &done.seen.end {
                    console.error(why);
                }
            }
            outcome => console.say_labelled(Tone::Bad, "sluice:", outcome),
        },
        Err(err) => console.error(ErrorChain(err)),
    }
}
