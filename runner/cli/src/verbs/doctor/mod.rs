//! `sluice doctor`: what isolation is really in force on this machine.
//!
//! For each backend that answers a sandbox is started as `sluice run` starts it,
//! and told from inside: what its first process measured, which tools of the
//! image get through the gateway over TLS, and whether a name leaks. Nothing is
//! said that was not measured; what falls short comes with what to do about it.

mod advice;
mod examine;
mod machine;

use clap::Args;
use engine::backend;
use engine::spec::BackendKind;
use files::printable::Printable;
use inside::probe::attack::AttackOutcome;
use inside::probe::fetch::Way;
use serde::Serialize;

use crate::caller;
use crate::config;
use crate::console::{Console, Format, Tone};
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::request::BackendArgs;
use examine::{Examined, Sandboxed};
use machine::Fact;

/// Measure from inside what isolation is in force on this machine.
#[derive(Debug, Args)]
#[command(
    mut_arg("backend", |arg| arg.help("Examine only this backend [default: each one that answers]")),
    after_help = "Exit codes: 0 every backend that is here keeps its promises, 1 one does not, \
                  or the one you named is not here."
)]
pub struct Doctor {
    #[command(flatten)]
    on: BackendArgs,
}

/// Everything found.
#[derive(Debug, Serialize)]
struct DoctorReport {
    version: &'static str,
    machine: Vec<Fact>,
    backends: Vec<Examined>,
    healthy: bool,
}

pub fn run(asked: &Doctor, console: &mut Console) -> Result<Exit, Failure> {
    let config = config::load(environment::of_this_process())?;
    let image = asked.on.image(&config);
    let kinds = match asked.on.backend {
        Some(kind) => vec![kind],
        None => vec![BackendKind::Docker, BackendKind::Podman, BackendKind::Namespaces],
    };
    let runtime = caller::runtime()?;
    let backends = runtime.block_on(async {
        let mut examined = Vec::new();
        for kind in kinds {
            match backend::open(kind, environment::of_this_process()).await {
                Err(err) => {
                    let why = format!("{:#}", anyhow::Error::new(err));
                    examined.push(Examined::absent(kind, why));
                }
                Ok(opened) => {
                    let name = opened.backend.name();
                    console.say(format_args!("{name}: starting a sandbox to look around in"));
                    examined.push(examine::examine(opened.backend.as_ref(), image.clone()).await);
                }
            }
        }
        examined
    });
    runtime.shutdown_background();
    // One that is not here is no failure, unless it was asked for.
    let any = backends.iter().any(|backend| backend.present);
    let all = backends.iter().all(|backend| !backend.present || backend.healthy);
    let healthy = any && all;
    let report = DoctorReport {
        version: env!("CARGO_PKG_VERSION"),
        machine: machine::facts(),
        backends,
        healthy,
    };
    match console.format {
        Format::Json | Format::Jsonl => console.json(&report)?,
        Format::Table => table(&report, console)?,
    }
    Ok(if healthy { Exit::Success } else { Exit::Failed })
}

fn table(report: &DoctorReport, console: &mut Console) -> Result<(), Failure> {
    console.line(format_args!("sluice {} on this machine", report.version))?;
    for Fact { what, found, advice } in &report.machine {
        line(console, if advice.is_some() { Mark::Note } else { Mark::Plain }, what, found)?;
        advise(console, advice.as_deref())?;
    }
    for backend in &report.backends {
        console.line("")?;
        let state = match (backend.present, backend.healthy) {
            (false, _) => console.toned(Tone::Faint, "not here"),
            (true, true) => console.toned(Tone::Good, "keeps its promises"),
            (true, false) => console.toned(Tone::Bad, "falls short"),
        };
        console.line(format_args!("{}: {state}", backend.backend))?;
        if let Some(why) = &backend.why {
            let mark = if backend.present { Mark::Bad } else { Mark::Plain };
            line(console, mark, if backend.present { "failed" } else { "why" }, why)?;
        }
        advise(console, backend.advice.as_deref())?;
        for Fact { what, found, advice } in &backend.facts {
            line(console, if advice.is_some() { Mark::Note } else { Mark::Plain }, what, found)?;
            advise(console, advice.as_deref())?;
        }
        if let Some(inside) = &backend.inside {
            sandboxed(inside, console)?;
        }
    }
    Ok(())
}

fn sandboxed(inside: &Sandboxed, console: &mut Console) -> Result<(), Failure> {
    console.line("  measured from inside:")?;
    for finding in &inside.isolation {
        let mark = if finding.holds { Mark::Good } else { Mark::Bad };
        line(console, mark, &finding.what, &finding.measured)?;
        if !finding.holds {
            advise(console, finding.id.advice())?;
        }
    }
    for attempt in &inside.leaks {
        let broken = attempt.result == AttackOutcome::Broken;
        let mark = if broken { Mark::Bad } else { Mark::Good };
        line(console, mark, &attempt.tried, &format!("{}: {}", attempt.result, attempt.detail))?;
    }
    console.line(format_args!("  tools of image {}, over TLS:", Printable(&inside.image)))?;
    for row in &inside.tools {
        let mark = if row.works { Mark::Good } else { Mark::Bad };
        let what = format!("{}, {}", row.tool, way(row.way));
        let found = if row.works { "trusts the gateway" } else { row.detail.as_str() };
        line(console, mark, &what, found)?;
    }
    Ok(())
}

fn way(way: Way) -> &'static str {
    match way {
        Way::Direct => "without a proxy",
        Way::Proxy => "by its variables",
    }
}

#[derive(Clone, Copy)]
enum Mark {
    Bad,
    Good,
    Note,
    Plain,
}

fn line(console: &mut Console, mark: Mark, what: &str, found: &str) -> Result<(), Failure> {
    let mark = match mark {
        Mark::Bad => console.toned(Tone::Bad, "FAIL"),
        Mark::Good => console.toned(Tone::Good, "ok  "),
        Mark::Note => console.toned(Tone::Warn, "note"),
        Mark::Plain => "    ".to_owned(),
    };
    console.line(format_args!("  {mark} {:<40} {}", Printable(what).to_string(), Printable(found)))
}

fn advise(console: &mut Console, advice: Option<&str>) -> Result<(), Failure> {
    match advice {
        Some(advice) => console.line(format_args!("       -> {}", Printable(advice))),
        None => Ok(()),
    }
}
