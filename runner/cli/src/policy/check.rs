//! `sluice policy check`: everything that is wrong with a policy, at once.

use std::path::Path;

use clap::Args;
use files::printable::Printable;
use policies::{Problem, Problems};
use serde::Serialize;

use super::Which;
use super::review::{self, Reviewed};
use crate::console::{Console, Format, Tone};
use crate::exit::{Exit, Failure};

/// Check policies, and report every problem with its line and column.
#[derive(Debug, Args)]
#[command(
    long_about = "Check policies, and report every problem with its line and column.

Each problem comes with file, line and column, the line itself, and what to write
instead. What a policy extends is checked with it.",
    after_help = "Exit codes: 0 all are valid, 1 a file cannot be read, 2 one is not valid."
)]
pub(super) struct CheckVerb {
    #[command(flatten)]
    which: Which,
}

pub(super) fn run(asked: &CheckVerb, console: &mut Console) -> Result<Exit, Failure> {
    let mut exit = Exit::Success;
    let mut found = Vec::new();
    for path in &asked.which.files {
        let (remarks, ended) = match review::read(path) {
            Ok(reviewed) => {
                if console.format == Format::Table {
                    show_valid(path, &reviewed, console)?;
                }
                (notes(path, &reviewed), Exit::Success)
            }
            Err(Failure::Policy(problems)) => {
                if console.format == Format::Table {
                    show_problems(&problems, console)?;
                }
                (problems.iter().map(Remark::problem).collect(), Exit::Invalid)
            }
            Err(failure @ (Failure::Failed(_) | Failure::NotStarted(_))) => {
                console.error(failure.in_one_line());
                (Vec::new(), failure.exit())
            }
            Err(failure @ (Failure::OutputClosed | Failure::Usage(_))) => return Err(failure),
        };
        found.extend(remarks);
        exit = exit.max(ended);
    }
    if console.format != Format::Table {
        console.json_list(&found)?;
    }
    Ok(exit)
}

/// One object of the machine-readable report.
#[derive(Debug, Serialize)]
struct Remark {
    kind: &'static str,
    file: String,
    line: Option<usize>,
    column: Option<usize>,
    /// The field, such as `net.allow[2].host`, or the rule that a note is about.
    path: String,
    message: String,
    quoted: String,
}

impl Remark {
    fn problem(problem: &Problem) -> Self {
        Self {
            kind: "problem",
            file: problem.source.to_string(),
            line: problem.at.map(|at| at.line),
            column: problem.at.map(|at| at.column),
            path: problem.path.clone(),
            message: problem.message.clone(),
            quoted: problem.quoted().to_owned(),
        }
    }
}

/// What is worth a look and not wrong.
fn notes(path: &Path, reviewed: &Reviewed) -> Vec<Remark> {
    let policy = &reviewed.policy;
    let remark = |note: &policies::PolicyNote| {
        let rule = note.rule.as_deref();
        let at = policy.rules().find(|known| Some(known.id()) == rule).map(|it| it.location());
        Remark {
            kind: "note",
            file: at.map_or_else(|| name_of(path), |at| at.source.to_string()),
            line: at.map(|at| at.line),
            column: None,
            path: rule.unwrap_or_default().to_owned(),
            message: note.message.clone(),
            quoted: String::new(),
        }
    };
    let refused = policy.out_of_bounds.iter().map(|problem| Remark {
        kind: "note",
        message: format!("a run refuses this: {}", problem.message),
        ..Remark::problem(problem)
    });
    let unapproved = reviewed.unapproved.iter().map(|words| Remark {
        kind: "note",
        file: name_of(path),
        line: None,
        column: None,
        path: String::new(),
        message: words.clone(),
        quoted: String::new(),
    });
    policy.notes.iter().map(remark).chain(refused).chain(unapproved).collect()
}

fn show_valid(path: &Path, reviewed: &Reviewed, console: &mut Console) -> Result<(), Failure> {
    let policy = &reviewed.policy;
    let rules = policy.rules().count();
    let plural = if rules == 1 { "" } else { "s" };
    let valid = console.toned(Tone::Good, "valid");
    console.line(format_args!("{}: {valid}, {rules} rule{plural}", name_of(path)))?;
    let note = console.toned(Tone::Warn, "note:");
    for Remark { file, line, column, path, message, .. } in notes(path, reviewed) {
        let column = column.map(|column| format!(":{column}")).unwrap_or_default();
        let line = line.map(|line| format!(":{line}{column}")).unwrap_or_default();
        let rule = if path.is_empty() { String::new() } else { format!("{}: ", Printable(&path)) };
        console.line(format_args!("{file}{line}: {note} {rule}{}", Printable(&message)))?;
    }
    Ok(())
}

fn show_problems(problems: &Problems, console: &mut Console) -> Result<(), Failure> {
    console.line(problems)?;
    let count = problems.len();
    let plural = if count == 1 { "" } else { "s" };
    let summary = console.toned_aside(Tone::Bad, format_args!("{count} problem{plural}"));
    console.say(summary);
    Ok(())
}

fn name_of(path: &Path) -> String {
    Printable(&path.to_string_lossy()).to_string()
}
