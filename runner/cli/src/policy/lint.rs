//! `sluice policy lint`: what is valid and still probably not meant.

use clap::Args;
use files::printable::Printable;
use policies::{LintFinding, Problem, presets};
use serde::Serialize;

use super::{Which, review};
use crate::console::{Console, Format, Tone};
use crate::exit::{Exit, Failure};

/// Find rules that are valid but probably not intended.
#[derive(Debug, Args)]
#[command(
    long_about = "Find rules that are valid but probably not intended.

Among them: rules that no request can reach, wildcards over names that anybody can
register, wildcards whose TLS is not opened, write methods on a bare wildcard,
secrets that no rule can send, and what only your own configuration can grant to a
project's policy. What stands in a preset is not yours to change and is
left out, unless it is not in force yet or you ask with --presets.",
    after_help = "Exit codes: 0 nothing found, 1 something found or unreadable, 2 not valid."
)]
pub(super) struct Lint {
    #[command(flatten)]
    which: Which,
    /// Also report findings in presets.
    #[arg(long, env = "SLUICE_LINT_PRESETS")]
    presets: bool,
}

/// One object of the machine-readable report.
#[derive(Debug, Serialize)]
struct Smell {
    code: &'static str,
    file: String,
    /// Nothing for the policy as a whole.
    line: Option<usize>,
    rule: Option<String>,
    message: String,
    instead: String,
}

pub(super) fn run(asked: &Lint, console: &mut Console) -> Result<Exit, Failure> {
    let mut smells = Vec::new();
    for path in &asked.which.files {
        let reviewed = review::read(path)?;
        if let Some(unapproved) = &reviewed.unapproved {
            console.note(unapproved);
        }
        let policy = reviewed.policy;
        smells.extend(policy.out_of_bounds.iter().map(project_grant));
        let own = |finding: &LintFinding| {
            // That a preset does not work is its user's business all the same.
            asked.presets
                || finding.code == "not-in-force"
                || presets::find(&finding.source).is_none()
        };
        for finding in policy.lint().into_iter().filter(own) {
            let LintFinding { code, rule, message, instead, line, source } = finding;
            let line = (line > 0).then_some(line);
            smells.push(Smell {
                code,
                file: source.to_string(),
                line,
                rule: rule.as_deref().map(str::to_owned),
                message,
                instead,
            });
        }
    }
    if console.format == Format::Table {
        smells.iter().try_for_each(|smell| show(smell, console))?;
        let count = smells.len();
        let plural = if count == 1 { "" } else { "s" };
        console.say(format_args!("{count} finding{plural}"));
    } else {
        console.json_list(&smells)?;
    }
    Ok(if smells.is_empty() { Exit::Success } else { Exit::Failed })
}

/// What a project's policy asks for and cannot grant.
fn project_grant(problem: &Problem) -> Smell {
    Smell {
        code: "project-grant",
        file: problem.source.to_string(),
        line: problem.at.map(|at| at.line),
        rule: Some(problem.path.clone()),
        message: "a run refuses a project's policy that asks for this".to_owned(),
        instead: problem.message.clone(),
    }
}

fn show(smell: &Smell, console: &mut Console) -> Result<(), Failure> {
    let Smell { code, file, line, rule, message, instead } = smell;
    let line = line.map(|line| format!(":{line}")).unwrap_or_default();
    let code = console.toned(Tone::Warn, code);
    let rule = rule.as_deref().map(|rule| format!("{}: ", Printable(rule))).unwrap_or_default();
    console.line(format_args!("{file}{line}: {code}: {rule}{}", Printable(message)))?;
    console.line(format_args!("  instead: {}", Printable(instead)))
}
