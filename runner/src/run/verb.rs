//! `sluice run`.

use anyhow::Context as _;
use tokio::runtime::Runtime;

use super::record::Chain;
use super::{Record, Report, bare, end_summary, run};
use crate::backend;
use crate::config;
use crate::console::{Console, Format, Tone};
use crate::exit::{Exit, Failure};
use crate::outcome::Outcome;
use crate::place;
use crate::plan::{Machine, Plan, RunId, Shown, plan};
use crate::request::{AGENT_IMAGE, Pin, RunFlags, Understood};
use crate::shown::Shown as Harmless;
use crate::sweep::sweep;

/// Carries out the command line, or shows what that would be.
pub fn verb(flags: &RunFlags, console: &mut Console) -> Result<Exit, Failure> {
    let config = config::load(&place::environment)?;
    if !flags.names_a_command() {
        let words =
            "no command; write `sluice run -- COMMAND`, or `sluice run -c 'A LINE FOR THE SHELL'`";
        return Err(Failure::Usage(words.to_owned()));
    }
    let mut understood = flags.understand(&config, &place::environment, console)?;
    understood.request.keep_stdout = console.format != Format::Table;
    let runtime = Runtime::new().context("cannot start the runtime")?;
    if understood.request.no_sandbox {
        return unprotected(&understood, flags.dry_run, &runtime, console);
    }
    let opening = backend::open(understood.request.backend);
    let opened = match runtime.block_on(understood.phases.of("open", opening)) {
        Ok(opened) => opened,
        Err(err) => return Ok(not_run(&anyhow::Error::new(err), console)),
    };
    let (backend, machine) = (&*opened.backend, Machine::this());
    let Understood { request, policy, .. } = &understood;
    let plan = match plan(RunId::now(), request, policy, &machine, &backend.abilities()) {
        Ok(plan) => plan,
        Err(err) => return Err(Failure::Usage(err.to_string())),
    };
    if flags.dry_run {
        match console.format {
            Format::Json | Format::Jsonl => console.json(&plan)?,
            Format::Table => console.raw(Shown(&plan).to_string().as_bytes())?,
        }
        return Ok(Exit::Success);
    }
    for note in opened.why.iter().chain(&plan.notes) {
        let word = console.toned_aside(Tone::Warn, "note:");
        console.say(format_args!("{word} {}", Harmless(note)));
    }

    let report = runtime.block_on(async {
        // Any other image is its owner's business; creating the sandbox says so.
        let image = async { plan.image != AGENT_IMAGE || backend.has_image(AGENT_IMAGE).await };
        // Whatever a killed run left goes first. That it cannot is no reason not
        // to run.
        let (there, _) = tokio::join!(image, understood.phases.of("sweep", sweep(backend)));
        if !there {
            console.say(format_args!("building {AGENT_IMAGE}, this once; about a minute"));
            backend.build_image(AGENT_IMAGE).await?;
        }
        let mut say = |note: &str| {
            let word = console.toned_aside(Tone::Warn, "note:");
            console.say(format_args!("{word} {}", Harmless(note)));
        };
        Ok::<_, anyhow::Error>(run(&plan, &understood, backend, &mut say).await)
    });
    // A read of the caller's terminal cannot be called back; it ends with us.
    runtime.shutdown_background();
    let report = match report {
        Ok(report) => report,
        Err(err) => return Ok(not_run(&err, console)),
    };

    let record = Record::new(&plan, &report, &understood.phases);
    tell(&report, console);
    for words in pinned_and_trusted(&plan) {
        let word = console.toned_aside(Tone::Faint, "sluice:");
        console.say(format_args!("{word} {}", Harmless(&words)));
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
    understood: &Understood,
    dry_run: bool,
    runtime: &Runtime,
    console: &mut Console,
) -> Result<Exit, Failure> {
    let plan = bare::plan(RunId::now(), understood);
    let word = console.toned_aside(Tone::Bad, "NO SANDBOX:");
    for note in &plan.notes {
        console.say(format_args!("{word} {}", Harmless(note)));
    }
    if dry_run {
        match console.format {
            Format::Json | Format::Jsonl => console.json(&plan)?,
            Format::Table => console.raw(Shown(&plan).to_string().as_bytes())?,
        }
        return Ok(Exit::Success);
    }
    let report = runtime.block_on(bare::run(&plan, understood));
    let record = Record::new(&plan, &report, &understood.phases);
    tell(&report, console);
    if console.format != Format::Table {
        console.json(&record)?;
    }
    Ok(Exit::Command(record.exit_code))
}

fn not_run(err: &anyhow::Error, console: &mut Console) -> Exit {
    let word = console.toned_aside(Tone::Bad, "error:");
    console.say(format_args!("{word} {}", Harmless(&format!("{err:#}"))));
    Exit::Command(RUNNER_FAILED)
}

/// Nothing was run; the code is not the command's.
pub const RUNNER_FAILED: u8 = 125;

/// Says what an exit code does not.
fn tell(report: &Report, console: &mut Console) {
    for left in &report.left {
        let word = console.toned_aside(Tone::Warn, "left behind:");
        console.say(format_args!(
            "{word} {}: {}; `sluice sweep` tries again",
            left.resource, left.why
        ));
    }
    for missing in &report.missing {
        let word = console.toned_aside(Tone::Warn, "not in the evidence:");
        console.say(format_args!("{word} {}", Harmless(missing)));
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
        console.say(format_args!("{word} {}: {}{more}", first.path, Harmless(&first.why)));
    }
    match &report.ended {
        Ok(done) => match &done.outcome {
            // The command has spoken for itself.
            Outcome::Exited { .. } => {
                if let Some(crate::init::wire::End::Unstartable { why, .. }) = &done.seen.end {
                    let word = console.toned_aside(Tone::Bad, "error:");
                    console.say(format_args!("{word} {}", Harmless(why)));
                }
            }
            outcome => {
                let word = console.toned_aside(Tone::Bad, "sluice:");
                console.say(format_args!("{word} {}", Harmless(&outcome.to_string())));
            }
        },
        Err(err) => {
            let word = console.toned_aside(Tone::Bad, "error:");
            console.say(format_args!("{word} {}", Harmless(&Chain(err).to_string())));
        }
    }
}
