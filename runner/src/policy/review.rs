//! A policy as it is looked at: nothing is put under it.
//!
//! `check`, `lint`, `explain` and `test` answer for what a file says. Whether a run
//! from here would obey it is another question, which they answer beside.

use std::path::Path;

use policies::Policy;

use super::FILE;
use super::approvals::{Approvals, Content, Standing};
use super::files::{Opened, Whose};
use super::obey::{in_words, what_to_type};
use super::project::ProjectTree;
use super::read::{FirstRead, Look};
use crate::console::{Console, Tone};
use crate::exit::Failure;
use crate::shown::Shown;
use crate::{config, place};

/// A policy, and what stands between it and a run.
#[derive(Debug)]
pub(super) struct Reviewed {
    pub(super) policy: Policy,
    /// That nobody approved it, in words, where a run would find it by itself.
    pub(super) unapproved: Option<String>,
}

/// The texts of a policy, and what they say by themselves.
#[derive(Debug)]
pub(super) struct ReviewedTexts {
    pub(super) files: Vec<Opened>,
    pub(super) policy: Option<Policy>,
}

/// Reads the policy at `path` and what it extends, on this machine.
pub(super) fn read(path: &Path) -> Result<Reviewed, Failure> {
    let config = config::load(&place::environment)?;
    let tree = here();
    let whose =
        Whose { tree: &tree, permitted: &config.permitted, is_found: false, is_obeyed: false };
    let first = FirstRead::of(path, whose)?;
    let files = first.files.opened();
    let policy = first.complete(path, Look::Here)?.policy;
    Ok(Reviewed { policy, unapproved: unapproved(path, files) })
}

/// Reads the policy at `path` as far as its own texts go, as a run would that
/// found it.
pub(super) fn first(path: &Path) -> Result<ReviewedTexts, Failure> {
    let config = config::load(&place::environment)?;
    let tree = here();
    let whose =
        Whose { tree: &tree, permitted: &config.permitted, is_found: true, is_obeyed: false };
    let first = FirstRead::of(path, whose)?;
    first.policy()?;
    Ok(ReviewedTexts { files: first.files.opened(), policy: first.into_policy() })
}

impl Reviewed {
    /// Says beside the answer what a run would say.
    pub(super) fn say_notes(&self, console: &mut Console) {
        let word = console.toned_aside(Tone::Warn, "note:");
        if let Some(unapproved) = &self.unapproved {
            console.say(format_args!("{word} {}", Shown(unapproved)));
        }
        if !self.policy.beyond.is_empty() {
            console.say(format_args!("{word} a run refuses this:"));
            console.say(&self.policy.beyond);
        }
    }
}

/// Where we stand is the project of a run that is started here.
fn here() -> ProjectTree {
    let here = std::env::current_dir().and_then(|here| here.canonicalize()).ok();
    let home = place::absolute(&place::environment, "HOME");
    here.map(|here| ProjectTree::around(&here, home)).unwrap_or_default()
}

/// Only a file of this name is obeyed without being named.
fn unapproved(path: &Path, files: Vec<Opened>) -> Option<String> {
    if path.file_name()? != FILE {
        return None;
    }
    let state = place::state(&place::environment)?;
    let content = Content::of(path, files).ok()?;
    match Approvals::below(&state).standing(&content) {
        Standing::Approved => None,
        standing => {
            Some(format!("{}; {}", in_words(path, &standing), what_to_type(path, &standing)))
        }
    }
}
