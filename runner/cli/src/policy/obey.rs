//! The one way to a policy that a sandbox is put under.
//!
//! A policy that a person named, on the command line or by a variable, is obeyed.
//! One that was only found is a project's, and a run may have written it: it is
//! obeyed once a person has approved its content. Where a person can be asked,
//! they are. Whoever approved it, a project's file grants no more than the
//! person's own configuration permits.

use std::path::Path;
use std::time::Duration;

use engine::spec::Approval;
use engine::workspace::patch::difference;
use files::printable::{Printable, PrintableLine};
use policies::Policy;

use super::FILE;
use super::approvals::{ApprovalStatus, Approvals, Approved, Content};
use super::files::Whose;
use super::grants::grants;
use super::project::ProjectTree;
use super::read::{ReadForRun, read};
use crate::config::Permitted;
use crate::console::{Console, Tone};
use crate::exit::Failure;
use crate::terminal;

/// A policy file, and how it came to be the one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen<'c> {
    pub(crate) file: &'c Path,
    pub(crate) by: ChosenBy,
    pub(crate) tree: &'c ProjectTree,
    pub(crate) permitted: &'c Permitted,
    pub(crate) state: &'c Path,
    /// Nothing is carried out, so nobody is asked.
    pub(crate) dry_run: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ChosenBy {
    Configuration,
    /// It was there.
    Found,
    /// A flag, or a variable: nothing in a project can set either.
    Person,
}

/// Reads the policy that a sandbox is to be under, if it may be obeyed.
pub(crate) fn obey(
    chosen: Chosen<'_>,
    console: &mut Console,
) -> Result<(ReadForRun, Approval), Failure> {
    let Chosen { file, tree, permitted, .. } = chosen;
    let is_found = chosen.by == ChosenBy::Found;
    let whose = Whose { tree, permitted, is_found, is_obeyed: true };
    let read = read(file, whose)?;
    if !read.policy.out_of_bounds.is_empty() {
        return Err(read.policy.out_of_bounds.into());
    }
    let content = Content::of(file, read.opened())?;
    let approval = approval(chosen, &content, &read.policy, console)?;
    Ok((read, approval))
}

fn approval(
    chosen: Chosen<'_>,
    content: &Content,
    policy: &Policy,
    console: &mut Console,
) -> Result<Approval, Failure> {
    if chosen.by == ChosenBy::Person || !content.has_projects() {
        return Ok(Approval::Named);
    }
    let approvals = Approvals::below(chosen.state);
    let standing = approvals.standing(content);
    if matches!(standing, ApprovalStatus::Approved) {
        return Ok(Approval::Trusted);
    }
    if chosen.dry_run {
        return Ok(Approval::None);
    }
    let why = in_words(chosen.file, &standing);
    if !terminal::can_ask() {
        return Err(Failure::Usage(format!("{why}; {}", what_to_type(chosen.file, &standing))));
    }
    show(content, &standing, policy, console);
    console.say(format_args!("{}", Printable(&why)));
    if !terminal::ask("Obey it from now on, as it is? [y/N] ") {
        return Err(Failure::Usage(format!("{} was not approved", chosen.file.display())));
    }
    approvals.record(content)?;
    Ok(Approval::Trusted)
}

/// How a policy stands, and why that matters.
pub(super) fn in_words(file: &Path, standing: &ApprovalStatus) -> String {
    let file = file.display();
    match standing {
        ApprovalStatus::Approved => format!("{file} is approved"),
        ApprovalStatus::Changed(Approved { at, .. }) => {
            format!("{file} has changed since it was approved, {at:.0}, and is not approved now")
        }
        ApprovalStatus::Unknown => format!(
            "{file} is not approved: a project's policy is obeyed once a person has read it"
        ),
    }
}

/// What makes a run obey it.
pub(super) fn what_to_type(file: &Path, standing: &ApprovalStatus) -> String {
    let file = match file == Path::new(FILE) {
        true => String::new(),
        false => format!(" {}", file.display()),
    };
    match standing {
        ApprovalStatus::Changed(_) => format!(
            "`sluice policy trust --show{file}` shows how; to approve it, type `sluice policy trust{file}`"
        ),
        ApprovalStatus::Approved | ApprovalStatus::Unknown => {
            format!("to approve it, type `sluice policy trust{file}`")
        }
    }
}

/// Shows what is to be approved: every text, or what has changed in it, and then
/// what it grants. Each line of a file begins with a bar, so that none can pass
/// for one of ours.
pub(super) fn show(
    content: &Content,
    standing: &ApprovalStatus,
    policy: &Policy,
    console: &mut Console,
) {
    let before = match standing {
        ApprovalStatus::Changed(approved) => Some(approved),
        ApprovalStatus::Approved | ApprovalStatus::Unknown => None,
    };
    for (path, old, new) in content.compared(before) {
        let text = match (before, old, new) {
            (None, _, new) => new.unwrap_or_default().to_owned(),
            (Some(_), old, new) if old == new => continue,
            (Some(_), old, new) => {
                difference(old.unwrap_or_default(), new.unwrap_or_default(), DIFF_TIMEOUT)
            }
        };
        let path = console.toned_aside(Tone::Faint, Printable(&path));
        console.say(path);
        for line in text.lines() {
            console.say(format_args!("| {}", PrintableLine(line)));
        }
    }
    console.say("what it grants:");
    for line in grants(policy) {
        console.say(format_args!("  {}", Printable(&line)));
    }
    for problem in policy.out_of_bounds.iter() {
        let word = console.toned_aside(Tone::Bad, "more than it may:");
        console.say(format_args!("  {word} {}", Printable(&problem.message)));
    }
}

/// After this long a difference is told in larger pieces.
const DIFF_TIMEOUT: Duration = Duration::from_secs(1);
