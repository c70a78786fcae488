//! `sluice policy trust` and `untrust`: whose word a project's policy is.

use std::path::{Path, PathBuf};

use clap::Args;
use files::printable::Printable;
use serde::Serialize;

use super::FILE;
use super::approvals::{ApprovalState, ApprovalStatus, Approvals, Approved, Content, found_at};
use super::obey::{show, what_to_type};
use super::review;
use crate::console::{Console, Format};
use crate::environment;
use crate::exit::{Exit, Failure};

/// Approve a project's policy, so that runs obey it.
#[derive(Debug, Args)]
#[command(
    long_about = "Approve a project's policy, so that runs obey it.

A policy that is found in a project is obeyed once a person has approved its content:
its own text and that of every file it extends. Any change needs a new approval. What
was approved is shown, or how it differs from what was approved before. A policy that
is named with --policy needs none, and what `policy init` wrote has it.",
    after_help = "Exit codes: 0 approved or shown, 1 the file cannot be read, 2 not valid."
)]
pub(super) struct Trust {
    /// The policy.
    #[arg(value_name = "FILE", default_value = FILE)]
    file: PathBuf,
    /// List approved policies, and whether they have changed since.
    #[arg(long, conflicts_with = "show", env = "SLUICE_POLICY_TRUST_LIST")]
    list: bool,
    /// Show what would be approved, and approve nothing.
    #[arg(long, env = "SLUICE_POLICY_TRUST_SHOW")]
    show: bool,
}

/// Withdraw the approval of a project's policy.
#[derive(Debug, Args)]
pub(super) struct Untrust {
    /// The policy file, which may have been deleted.
    #[arg(value_name = "FILE", default_value = FILE)]
    file: PathBuf,
}

/// The machine-readable answer about one policy.
#[derive(Debug, Serialize)]
struct Stands {
    policy: String,
    state: ApprovalState,
}

/// One object of the machine-readable list.
#[derive(Debug, Serialize)]
struct ListedApproval {
    policy: String,
    approved: jiff::Timestamp,
    /// `approved`, `changed` or `gone`.
    state: ApprovalState,
}

pub(super) fn run(asked: &Trust, console: &mut Console) -> Result<Exit, Failure> {
    let approvals = approvals()?;
    if asked.list {
        return list(&approvals, console);
    }
    let file = &*asked.file;
    let reviewed = review::found(file)?;
    let content = Content::of(file, reviewed.files.clone())?;
    let standing = approvals.standing(&content);
    show(&content, &standing, &reviewed.policy, console);
    if asked.show {
        if !matches!(standing, ApprovalStatus::Approved) {
            console.say(Printable(&what_to_type(file, &standing)));
        }
        tell(&content, standing.state(), console)?;
        return Ok(Exit::Success);
    }
    approvals.record(&content)?;
    tell(&content, ApprovalState::Approved, console)?;
    console.say("runs obey it until it changes; `sluice policy untrust` withdraws the approval");
    Ok(Exit::Success)
}

/// The result: a policy, and how it stands.
fn tell(content: &Content, state: ApprovalState, console: &mut Console) -> Result<(), Failure> {
    let policy = content.policy.to_string_lossy().into_owned();
    if console.format == Format::Table {
        let state = console.toned(state.tone(), state.name());
        console.line(format_args!("{state}  {}", Printable(&policy)))
    } else {
        console.json(&Stands { policy, state })
    }
}

pub(super) fn forget(asked: &Untrust, console: &mut Console) -> Result<Exit, Failure> {
    let policy = found_at(&asked.file)?;
    let was = approvals()?.forget(&policy)?;
    let policy = policy.to_string_lossy().into_owned();
    if console.format == Format::Table {
        let words = if was { "is not approved any more" } else { "was not approved" };
        console.line(format_args!("{} {words}", Printable(&policy)))?;
    } else {
        console.json(&Stands { policy, state: ApprovalState::Unapproved })?;
    }
    Ok(Exit::Success)
}

/// Approves a policy that we have written ourselves, and says whether that worked. That it
/// cannot be remembered is no reason not to have written it.
pub(super) fn approve_written(path: &Path, text: &str) -> bool {
    let approve = || {
        let read = review::found(path).ok()?;
        let is_ours = matches!(&read.files[..], [only] if &*only.text == text);
        let content = Content::of(path, read.files).ok().filter(|_| is_ours)?;
        approvals().ok()?.record(&content).ok()
    };
    approve().is_some()
}

fn approvals() -> Result<Approvals, Failure> {
    let state = environment::of_this_process().state().ok_or_else(|| {
        Failure::Usage("neither XDG_STATE_HOME nor HOME says where approvals are kept".to_owned())
    })?;
    Ok(Approvals::below(&state))
}

fn list(approvals: &Approvals, console: &mut Console) -> Result<Exit, Failure> {
    let listed: Vec<ListedApproval> =
        approvals.all().iter().map(|it| listed(approvals, it)).collect();
    if console.format != Format::Table {
        console.json_list(&listed)?;
        return Ok(Exit::Success);
    }
    if listed.is_empty() {
        console.say("nothing is approved; `sluice policy trust` approves a project's policy");
    }
    for ListedApproval { policy, approved, state } in &listed {
        let state = console.toned(state.tone(), format_args!("{:<8}", state.name()));
        console.line(format_args!("{state}  {approved:.0}  {}", Printable(policy)))?;
    }
    Ok(Exit::Success)
}

fn listed(approvals: &Approvals, approved: &Approved) -> ListedApproval {
    let path = Path::new(&approved.policy);
    let content = review::found(path).ok().and_then(|read| Content::of(path, read.files).ok());
    let state = match content.map(|content| approvals.standing(&content)) {
        Some(standing) => standing.state(),
        // What cannot be read is not what was approved.
        None if path.exists() => ApprovalState::Changed,
        None => ApprovalState::Gone,
    };
    ListedApproval { policy: approved.policy.clone(), approved: approved.at, state }
}
