//! A policy as it is looked at: nothing is put under it.
//!
//! `check`, `lint`, `explain` and `test` answer for what a file says. Whether a run
//! from here would obey it is another question, which they answer beside.

use std::path::Path;

use engine::spec::ReadPolicyFile;
use policies::Policy;

use super::FILE;
use super::approvals::{ApprovalStatus, Approvals, Content};
use super::files::Whose;
use super::obey::{in_words, what_to_type};
use super::project::ProjectTree;
use super::read;
use crate::config;
use crate::console::Console;
use crate::environment;
use crate::exit::Failure;

/// A policy, and what stands between it and a run.
#[derive(Debug)]
pub(super) struct Reviewed {
    pub(super) policy: Policy,
    /// That nobody approved it, in words, where a run would find it by itself.
    pub(super) unapproved: Option<String>,
}

/// The texts of a policy, and what they say.
#[derive(Debug)]
pub(super) struct ReviewedTexts {
    pub(super) files: Vec<ReadPolicyFile>,
    pub(super) policy: Policy,
}

/// Reads the policy at `path` and what it extends, on this machine.
pub(super) fn read(path: &Path) -> Result<Reviewed, Failure> {
    let config = config::load(environment::of_this_process())?;
    let tree = here();
    let whose =
        Whose { tree: &tree, permitted: &config.permitted, is_found: false, is_obeyed: false };
    let read = read::read(path, whose)?;
    Ok(Reviewed { unapproved: unapproved(path, read.opened()), policy: read.policy })
}

/// Reads the policy at `path` as a run would that found it.
pub(super) fn found(path: &Path) -> Result<ReviewedTexts, Failure> {
    let config = config::load(environment::of_this_process())?;
    let tree = here();
    let whose =
        Whose { tree: &tree, permitted: &config.permitted, is_found: true, is_obeyed: false };
    let read = read::read(path, whose)?;
    Ok(ReviewedTexts { files: read.opened(), policy: read.policy })
}

impl Reviewed {
    /// Says beside the answer what a run would say.
    pub(super) fn say_notes(&self, console: &mut Console) {
        if let Some(unapproved) = &self.unapproved {
            console.note(unapproved);
        }
        if !self.policy.out_of_bounds.is_empty() {
            console.note("a run refuses this:");
            console.say(&self.policy.out_of_bounds);
        }
    }
}

/// Where we stand is the project of a run that is started here.
fn here() -> ProjectTree {
    let here = std::env::current_dir().and_then(|here| here.canonicalize()).ok();
    let home = environment::of_this_process().absolute("HOME");
    here.map(|here| ProjectTree::around(&here, home)).unwrap_or_default()
}

/// Only a file of this name is obeyed without being named.
fn unapproved(path: &Path, files: Vec<ReadPolicyFile>) -> Option<String> {
    if path.file_name()? != FILE {
        return None;
    }
    let state = environment::of_this_process().state()?;
    let content = Content::of(path, files).ok()?;
    match Approvals::below(&state).standing(&content) {
        ApprovalStatus::Approved => None,
        standing => {
            Some(format!("{}; {}", in_words(path, &standing), what_to_type(path, &standing)))
        }
    }
}
