//! `sluice run`.

mod end_summary;

use anyhow::Context as _;
use audit::ErrorChain;
use engine::backend;
use engine::outcome::Outcome;
use engine::plan::{Machine, Plan, PlanText, RunId, plan};
use engine::record::Record;
use engine::report::RunReport;
use engine::run::{Starter, run, unsandboxed};
use engine::sweep::sweep;
use files::printable::Printable;
use protocol::init::TerminalSize;
use tokio::runtime::Runtime;

use crate::caller;
use crate::config;
use crate::console::{Console, Format, Tone, recording_takes_a_while};
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::request::{AGENT_IMAGE, Pin, ResolvedRun, RunFlags};
use crate::terminal;
use crate::terminal::output::CallerOutput;

/// Carries out the command line, or shows what that would be.
pub fn verb(flags: &RunFlags, console: &mut Console) -> Result<Exit, Failure> {
    let config = config::load(environment::of_this_process())?;
    if !flags.names_a_command() {
        let words =
            "no command; write `sluice run -- COMMAND`, or `sluice run -c 'A LINE FOR THE SHELL'`";
        return Err(Failure::Usage(words.to_owned()));
    }
    let resolved = flags.understand(&config, environment::of_this_process(), console)?;
    let runtime = Runtime::new().context("cannot start the runtime")?;
    if resolved.request.no_sandbox {
        return unprotected(&resolved, flags.dry_run, &runtime, console);
    }
    let opening = backend::open(resolved.request.backend, environment::of_this_process());
    let opened = match runtime.block_on(resolved.phases.of("open", opening)) {
        Ok(opened) => opened,
        Err(err) => return Ok(not_run(&anyhow::Error::new(err), console)),
    };
    let (backend, machine) = (&*opened.backend, Machine::this());
    let ResolvedRun { request, policy, .. } = &resolved;
    let plan = match plan(RunId::now(), request, policy, &machine, &backend.abilities()) {
        Ok(plan) => plan,
        Err(err) => return Err(Failure::Usage(err.to_string())),
    };
    if flags.dry_run {
        match console.format {
            Format::Json | Format::Jsonl => console.json(&plan)?,
            Format::Table => console.raw(PlanText(&plan).to_string().as_bytes())?,
        }
        return Ok(Exit::Success);
    }
    for note in opened.why.iter().chain(&plan.notes) {
        let word = console.toned_aside(Tone::Warn, "note:");
        console.say(format_args!("{word} {}", Printable(note)));
    }

    // Our own result goes to stdout then, and what the command prints does not.
    let keep_stdout = console.format != Format::Table;
    let report = runtime.block_on(async {
        // Before anything is made: from here on, being told to stop means to undo it.
        let events = caller::listen();
        // Any other image is its owner's business; creating the sandbox says so.
        let image = async { plan.image != AGENT_IMAGE || backend.has_image(AGENT_IMAGE).await };
        // Whatever a killed run left goes first. That it cannot is no reason not
        // to run.
        let (there, _) =
            tokio::join!(image, resolved.phases.of("sweep", sweep(backend, &resolved.environment)));
        if !there {
            console.say(format_args!("building {AGENT_IMAGE}, this once; about a minute"));
            backend.build_image(AGENT_IMAGE).await?;
        }
        let mut say = |note: &str| {
            let word = console.toned_aside(Tone::Warn, "note:");
            console.say(format_args!("{word} {}", Printable(note)));
        };
        let (mut sink, input) = (CallerOutput::new(keep_stdout, plan.tty), Some(caller::input()));
        let (size, say) = (size(), &mut say);
        let announce = recording_takes_a_while;
        let starter = Starter { events, sink: &mut sink, input, size, say, announce };
        Ok::<_, anyhow::Error>(run(&plan, &resolved, backend, starter).await)
    });
    // A read of the caller's terminal cannot be called back; it ends with us.
    runtime.shutdown_background();
    let report = match report {
        Ok(report) => report,
        Err(err) => return Ok(not_run(&err, console)),
    };

    let record = Record::new(&plan, &report, &resolved.phases);
    tell(&report, console);
    for words in pinned_and_trusted(&plan) {
        let word = console.toned_aside(Tone::Faint, "sluice:");
        console.say(format_args!("{word} {}", Printable(&words)));
    }
    if console.format != Format::Table {
        console.json(&record)?;
    } else if !flags.quiet {
        for line in end_summary::lines(&plan, &report) {
            let word = console.toned_aside(Tone::Faint, "sluice:");
            console.say(format_args!("{word} {line}"));
        }
    }
    Ok(Exit::Command(record.exit_code))
}

/// The size of our terminal, or the usual one.
fn size() -> TerminalSize {
    terminal::size().unwrap_or(TerminalSize { columns: 80, rows: 24 })
}

/// What a person's own word changed about where requests went and whom they
/// believed.
fn pinned_and_trusted(plan: &Plan) -> Vec<String> {
    let pins: Vec<String> =
        plan.pins.iter().map(|Pin { name, address }| format!("{name}={address}")).collect();
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
    let word = console.toned_aside(Tone::Bad, "NO SANDBOX:");
    for note in &plan.notes {
        console.say(format_args!("{word} {}", Printable(note)));
    }
    if dry_run {
        match console.format {
            Format::Json | Format::Jsonl => console.json(&plan)?,
            Format::Table => console.raw(PlanText(&plan).to_string().as_bytes())?,
        }
        return Ok(Exit::Success);
    }
    let keep_stdout = console.format != Format::Table;
    let report = runtime.block_on(async {
        let events = caller::listen();
        // The command has the terminal itself, and our input.
        let mut sink = CallerOutput::new(keep_stdout, false);
        let (input, size, say) = (None, size(), &mut |_: &str| {});
        let announce = recording_takes_a_while;
        unsandboxed::run(
            &plan,
            resolved,
            Starter { events, sink: &mut sink, input, size, say, announce },
        )
        .await
    });
    let record = Record::new(&plan, &report, &resolved.phases);
    tell(&report, console);
    if console.format != Format::Table {
        console.json(&record)?;
    }
    Ok(Exit::Command(record.exit_code))
}

fn not_run(err: &anyhow::Error, console: &mut Console) -> Exit {
    let word = console.toned_aside(Tone::Bad, "error:");
    console.say(format_args!("{word} {}", Printable(&format!("{err:#}"))));
    Exit::Command(RUNNER_FAILED)
}

/// Nothing was run; the code is not the command's.
pub const RUNNER_FAILED: u8 = 125;

/// Says what an exit code does not.
fn tell(report: &RunReport, console: &mut Console) {
    for left in &report.left {
        let word = console.toned_aside(Tone::Warn, "left behind:");
        console.say(format_args!(
            "{word} {}: {}; `sluice sweep` tries again",
            left.resource, left.why
        ));
    }
    for missing in &report.missing {
        let word = console.toned_aside(Tone::Warn, "not in the evidence:");
        console.say(format_args!("{word} {}", Printable(missing)));
    }
    for not_done in &report.not_done {
        let word = console.toned_aside(Tone::Warn, "not whole in the evidence:");
        console.say(format_args!("{word} {not_done}"));
    }
    if let Some(first) = report.artifacts_left_out.first() {
        let word = console.toned_aside(Tone::Warn, "artifacts left out:");
        let more = match report.artifacts_left_out.len() {
            1 => String::new(),
            count => format!(", and {} more", count - 1),
        };
        console.say(format_args!("{word} {}: {}{more}", first.path, Printable(&first.why)));
    }
    match &report.ended {
        Ok(done) => match &done.outcome {
            // The command has spoken for itself.
            Outcome::Exited { .. } => {
                if let Some(protocol::init::CommandEnd::Unstartable { why, .. }) = &done.seen.end {
                    let word = console.toned_aside(Tone::Bad, "error:");
                    console.say(format_args!("{word} {}", Printable(why)));
                }
            }
            outcome => {
                let word = console.toned_aside(Tone::Bad, "sluice:");
                console.say(format_args!("{word} {}", Printable(&outcome.to_string())));
            }
        },
        Err(err) => {
            let word = console.toned_aside(Tone::Bad, "error:");
            console.say(format_args!("{word} {}", Printable(&ErrorChain(err).to_string())));
        }
    }
}
