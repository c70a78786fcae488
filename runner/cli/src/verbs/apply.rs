//! `sluice apply`: bring a run's changes home.
//!
//! [`check()`] says what may be written and what is in the way; [`write()`]
//! writes what was checked. If anything is in the way nothing is written, unless
//! the caller asks for the rest. What is applied is what the evidence says, and
//! a broken seal stops everything.

use anyhow::{Context as _, anyhow};
use audit::{SigningKey, VerifyError};
use clap::Args;
use engine::evidence::RunFolder;
use engine::state_folder;
use engine::workspace::apply::{Applied, Checked, Refused, check, write};
use engine::workspace::changes::{Change, Kind};
use engine::workspace::{Highlight, TreePath};
use files::printable::{Printable, PrintableLine};
use files::tree::Directory;
use serde::Serialize;

use super::diff::{self, recorded, tree_path};
use crate::console::{Console, Format, Tone};
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::runs::{RunName, Runs};
use crate::session::living;

/// Apply a run's changes to the project.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 applied, 1 something was in the way or failed.

Nothing is written if anything is in the way: a file the host has changed since, a path
the policy protects or hides, a link out of the project, or a file that a tool on the host
obeys without being asked (a repository, `.envrc`, editor tasks, a policy). `--partial`
applies the rest; `--accept PATH` applies such a file too, and shows what it says.")]
pub struct Apply {
    /// The run: `last`, its id, or the beginning of its id.
    run: RunName,
    /// Only these files and directories, relative to the project.
    #[arg(value_parser = tree_path)]
    paths: Vec<TreePath>,
    #[command(flatten)]
    runs: Runs,
    /// Print what would be applied, and change nothing.
    #[arg(long, env = "SLUICE_APPLY_DRY_RUN")]
    dry_run: bool,
    /// Apply what can be applied, and skip the rest.
    #[arg(long, env = "SLUICE_APPLY_PARTIAL")]
    partial: bool,
    /// Apply this file or directory although tools on this machine act on it.
    #[arg(
        long,
        value_name = "PATH",
        value_parser = accepted_path,
        env = "SLUICE_APPLY_ACCEPT",
        value_delimiter = ','
    )]
    accept: Vec<TreePath>,
}

/// Everything at once is not a name.
fn accepted_path(written: &str) -> Result<TreePath, String> {
    match tree_path(written) {
        Ok(path) if path.is_root() => Err("name the file or directory to accept".to_owned()),
        Ok(path) => Ok(path),
        Err(err) => Err(err.to_string()),
    }
}

/// What came of it.
#[derive(Debug, Serialize)]
struct ApplyReport<'c> {
    applied: Vec<AppliedChange<'c>>,
    /// The host had it like this.
    already: Vec<&'c TreePath>,
    refused: &'c [Refused],
    /// Where writing stopped.
    failed: Option<String>,
    dry_run: bool,
}

#[derive(Debug, Serialize)]
struct AppliedChange<'c> {
    path: &'c TreePath,
    change: Kind,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    highlights: &'c [Highlight],
}

pub fn run(asked: &Apply, console: &mut Console) -> Result<Exit, Failure> {
    let folder = asked.runs.open(&asked.run)?;
    if let Some(session) = living(folder.run()) {
        let name = Printable(&session.name).to_string();
        return Err(anyhow!(
            "the session is still running; stop it first with `sluice session stop {name}`"
        )
        .into());
    }
    let changes = recorded(&folder)?;
    unbroken(&folder, console)?;
    if !changes.incomplete.is_empty() && !asked.partial {
        let why = changes.incomplete.join("; ");
        let instead = "use --partial to apply what is listed";
        return Err(anyhow!("the list of changes is not complete ({why}); {instead}").into());
    }
    let root = changes.project.to_path();
    let project = Directory::open(&root)
        .with_context(|| format!("cannot open the project {}", root.display()))?;
    let checked = check(&changes, &asked.paths, &asked.accept, &project)
        .context("cannot read the project")?;
    show_accepted(&folder, &checked, &asked.accept, console)?;

    let write_it = !asked.dry_run && (checked.refused.is_empty() || asked.partial);
    let done = if write_it && !checked.ready().is_empty() {
        let upper = Directory::open(&folder.upper())
            .context("the run's files are gone, so its changes cannot be applied")?;
        write(&checked, &project, &upper)
    } else {
        Applied { applied: Vec::new(), stopped: None }
    };
    let failed = done.stopped.map(|(path, err)| format!("{path}: {:#}", anyhow!(err)));
    let is_done =
        |change: &&&Change| asked.dry_run || done.applied.binary_search(&change.path).is_ok();
    let report = ApplyReport {
        applied: checked
            .ready()
            .iter()
            .filter(is_done)
            .map(|change| AppliedChange {
                path: &change.path,
                change: change.change,
                highlights: &change.highlights,
            })
            .collect(),
        already: checked.already.iter().map(|change| &change.path).collect(),
        refused: &checked.refused,
        failed,
        dry_run: asked.dry_run,
    };
    let ok = report.refused.is_empty() && report.failed.is_none();
    match console.format {
        Format::Table => tell(&report, asked.partial, console)?,
        Format::Json | Format::Jsonl => console.json(&report)?,
    }
    Ok(if ok { Exit::Success } else { Exit::Failed })
}

/// What a person accepts is shown once more, whatever they read before.
fn show_accepted(
    folder: &RunFolder,
    checked: &Checked<'_>,
    accepted: &[TreePath],
    console: &mut Console,
) -> Result<(), Failure> {
    for change in checked.ready() {
        let Some(section) = change.patch else { continue };
        if accepted.iter().any(|path| change.path.is_within(path)) {
            let bytes = folder.read_patch(section).map_err(anyhow::Error::from)?;
            for line in String::from_utf8_lossy(&bytes).lines() {
                console.say(PrintableLine(line));
            }
        }
    }
    Ok(())
}

fn tell(report: &ApplyReport<'_>, partial: bool, console: &mut Console) -> Result<(), Failure> {
    for AppliedChange { path, change, highlights } in &report.applied {
        let words = diff::bracketed(highlights.iter().map(ToString::to_string).collect(), console);
        console.line(format_args!("{change:<8} {path}{words}"))?;
    }
    for Refused { path, why, tool } in report.refused {
        let word = if why.is_conflict() { "conflict" } else { "refused " };
        let tool = tool.map(|tool| format!(" ({tool})")).unwrap_or_default();
        console.say_labelled(Tone::Bad, word, format_args!("{path}: {why}{tool}"));
    }
    if let Some(first) = report.refused.iter().find(|refused| refused.why.can_be_accepted()) {
        console.say(format_args!(
            "read what it says with `sluice diff`; `--accept {}` applies it",
            first.path
        ));
    }
    if let Some(why) = &report.failed {
        console.say_labelled(Tone::Bad, "stopped at", why);
    }
    let count = report.applied.len();
    console.say(match (report.dry_run, report.refused.is_empty() || partial) {
        (true, _) => format!("{count} changes would be applied, {} not", report.refused.len()),
        (false, true) => format!("{count} changes applied, {} not", report.refused.len()),
        (false, false) => "nothing was applied; --partial applies the rest".to_owned(),
    });
    Ok(())
}

/// Applies only what the seal vouches for. A run that never got to its seal is
/// said to be so; a seal that does not hold stops us.
fn unbroken(folder: &RunFolder, console: &mut Console) -> Result<(), Failure> {
    if folder.path().join(audit::seal::SEAL).symlink_metadata().is_err() {
        let text = "nothing vouches for what this run is said to have changed";
        console.say_labelled(Tone::Warn, "not sealed:", text);
        return Ok(());
    }
    let state = environment::of_this_process().state();
    let key = state.and_then(|state| SigningKey::load(&state_folder::key(&state)).ok());
    let trusted: Vec<_> = key.iter().map(SigningKey::public).collect();
    let broken =
        |err: VerifyError| anyhow!(err).context("the evidence has changed since it was sealed");
    audit::verify(folder.path(), &trusted).map(drop).map_err(|err| broken(err).into())
}
