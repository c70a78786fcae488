//! `sluice diff`: what a run changed.
//!
//! Everything comes from the evidence: `changes.json` says what, `changes.patch`
//! how. No git, no pager and no tool of the project's choosing runs.

use anyhow::{Context as _, anyhow};
use clap::Args;
use engine::evidence::RunFolder;
use engine::session;
use engine::workspace::changes::{Change, Changes, Node};
use engine::workspace::{NotInside, TreePath};
use files::printable::{Printable, PrintableLine};

use crate::console::{Console, Format, Tone};
use crate::exit::{Exit, Failure};
use crate::runs::{RunName, Runs};
use crate::session::living;

/// Show what a run changed in its workspace.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 shown, 1 failed, or the list is not complete.

What a terminal would obey is shown as escapes; `--raw` gives the patch as `git apply`
wants it. What a patch cannot hold (directories, links out, pipes) is listed after it.")]
pub struct Diff {
    /// The run: `last`, its id, or the beginning of its id.
    run: RunName,
    /// Only these files and directories, relative to the project.
    #[arg(value_parser = tree_path)]
    paths: Vec<TreePath>,
    #[command(flatten)]
    runs: Runs,
    /// Print one line per change.
    #[arg(long, env = "SLUICE_DIFF_STAT")]
    stat: bool,
    /// Print the patch unchanged, as `git apply` needs it.
    #[arg(long, conflicts_with = "stat", env = "SLUICE_DIFF_RAW")]
    raw: bool,
}

pub fn run(asked: &Diff, console: &mut Console) -> Result<Exit, Failure> {
    let folder = asked.runs.open(&asked.run)?;
    if let Some(session) = living(folder.run()) {
        session::finish::refresh(&session).map_err(|why| anyhow!("{why}"))?;
    }
    let changes = recorded(&folder)?;
    let selected: Vec<&Change> = changes.within(&asked.paths).collect();
    match (console.format, asked.stat) {
        (Format::Json | Format::Jsonl, _) => console.json_list(&selected)?,
        (Format::Table, true) => stat(&selected, console)?,
        (Format::Table, false) => patch(&folder, &selected, asked.raw, console)?,
    }
    if selected.is_empty() {
        console.say(console.toned_aside(Tone::Faint, "nothing changed"));
    }
    for why in &changes.incomplete {
        console.say_labelled(Tone::Warn, "not complete:", why);
    }
    Ok(if changes.incomplete.is_empty() { Exit::Success } else { Exit::Failed })
}

/// What the evidence says about the workspace.
pub(super) fn recorded(folder: &RunFolder) -> Result<Changes, Failure> {
    let changes = folder.read_changes().context("cannot read what changed")?;
    changes.ok_or_else(|| {
        let why = "no changes are recorded: it is still running, it was cut short, or its workspace was not an overlay";
        Failure::Failed(anyhow!("{}: {why}", folder.run()))
    })
}

/// A path on the command line.
pub(super) fn tree_path(written: &str) -> Result<TreePath, NotInside> {
    TreePath::parse(written.as_bytes())
}

fn stat(changes: &[&Change], console: &mut Console) -> Result<(), Failure> {
    let (mut came, mut went) = (0, 0);
    for change in changes {
        let lines = change.patch.and_then(|section| section.lines);
        let counted = match lines {
            Some((added, removed)) => {
                came += added;
                went += removed;
                format!("+{added} -{removed}")
            }
            None => String::new(),
        };
        let line = format!("{:<8} {counted:>12}  {}{}", change.change, change.path, kind(change));
        console.line(format_args!("{line}{}", highlights(change, console)))?;
    }
    if !changes.is_empty() {
        console.say(format_args!("{} changes, +{came} -{went} lines", changes.len()));
    }
    Ok(())
}

fn patch(
    folder: &RunFolder,
    changes: &[&Change],
    raw: bool,
    console: &mut Console,
) -> Result<(), Failure> {
    for change in changes {
        let Some(section) = change.patch else { continue };
        let bytes = folder.read_patch(section).map_err(anyhow::Error::from)?;
        if raw {
            console.raw(&bytes)?;
            continue;
        }
        for line in String::from_utf8_lossy(&bytes).lines() {
            let shown = PrintableLine(line).to_string();
            console.line(match line.as_bytes().first() {
                Some(b'+') => console.toned(Tone::Good, shown),
                Some(b'-') => console.toned(Tone::Bad, shown),
                Some(b'@') => console.toned(Tone::Faint, shown),
                _ => shown,
            })?;
        }
    }
    // For people, beside the patch: what it cannot say, and what to look at.
    for change in changes {
        if change.patch.is_none() || !change.highlights.is_empty() {
            let words = highlights(change, console);
            console.say(format_args!(
                "{:<8} {}{}{words}",
                change.change,
                change.path,
                kind(change)
            ));
        }
    }
    Ok(())
}

fn kind(change: &Change) -> String {
    let node = change.after.as_ref().or(change.before.as_ref().map(|before| &before.node));
    match node {
        None | Some(Node::File { .. }) => String::new(),
        Some(Node::Directory { .. }) => "/".to_owned(),
        Some(Node::Link { target }) => format!(" -> {target}"),
        Some(Node::Special { what }) => format!(" ({})", Printable(what)),
    }
}

fn highlights(change: &Change, console: &Console) -> String {
    let mut words: Vec<String> = change.highlights.iter().map(ToString::to_string).collect();
    if let Some(Node::File { unhashed: Some(why), .. }) = &change.after {
        words.push(why.to_string());
    }
    if change.moved {
        words.push("the host changed it too".to_owned());
    }
    bracketed(words, console)
}

/// Words about a change, after its path.
pub(super) fn bracketed(words: Vec<String>, console: &Console) -> String {
    if words.is_empty() {
        return String::new();
    }
    format!("  {}", console.toned(Tone::Warn, format_args!("[{}]", words.join(", "))))
}
