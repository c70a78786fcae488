//! `sluice run`.

use anyhow::Context as _;
use tokio::runtime::Runtime;

use super::record::Chain;
use super::{Record, Report, run};
use crate::backend::docker::Docker;
use crate::config;
use crate::console::{Console, Format, Tone};
use crate::exit::{Exit, Failure};
use crate::image::agent;
use crate::outcome::Outcome;
use crate::place;
use crate::plan::{Machine, RunId, Shown, plan};
use crate::request::{AGENT_IMAGE, BackendKind, RunFlags};
use crate::shown::Shown as Harmless;
use crate::sweep::sweep;

/// Carries out the command line, or shows what that would be.
pub fn verb(flags: &RunFlags, console: &mut Console) -> Result<Exit, Failure> {
    let config = config::load(&place::environment)?;
    let mut understood = flags.understand(&config, &place::environment)?;
    understood.request.keep_stdout = console.format != Format::Table;
    let plan = plan(RunId::now(), &understood.request, &understood.policy, &Machine::this());
    if flags.dry_run {
        match console.format {
            Format::Json | Format::Jsonl => console.json(&plan)?,
            Format::Table => console.raw(Shown(&plan).to_string().as_bytes())?,
        }
        return Ok(Exit::Success);
    }
    for note in &plan.notes {
        let word = console.toned_aside(Tone::Warn, "note:");
        console.say(format_args!("{word} {}", Harmless(note)));
    }

    let runtime = Runtime::new().context("cannot start the runtime")?;
    let report = runtime.block_on(async {
        let backend = match understood.request.backend {
            BackendKind::Docker => Docker::connect().await.map_err(anyhow::Error::new)?,
        };
        if plan.image == AGENT_IMAGE && backend.api().inspect_image(&plan.image).await.is_err() {
            console.say(format_args!("building {AGENT_IMAGE}, this once; about a minute"));
            agent::build(backend.api(), AGENT_IMAGE).await?;
        }
        // Whatever a killed run left goes first. That it cannot is no reason not
        // to run.
        drop(sweep(&backend).await);
        Ok::<_, anyhow::Error>(run(&plan, &understood, &backend).await)
    });
    // A read of the caller's terminal cannot be called back; it ends with us.
    runtime.shutdown_background();
    let report = match report {
        Ok(report) => report,
        Err(err) => {
            let word = console.toned_aside(Tone::Bad, "error:");
            console.say(format_args!("{word} {}", Harmless(&format!("{err:#}"))));
            return Ok(Exit::Command(RUNNER_FAILED));
        }
    };

    let record = Record::new(&plan, &report);
    tell(&report, console);
    if console.format != Format::Table {
        console.json(&record)?;
    }
    Ok(Exit::Command(record.exit_code))
}

/// Nothing was run; the code is not the command's.
const RUNNER_FAILED: u8 = 125;

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
