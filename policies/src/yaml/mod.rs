//! YAML into types, with every problem at once.
//!
//! serde stops at the first error. Here an error costs only the value it is
//! about: the value is set aside, reading starts over without it, and the next
//! error shows itself, until the file is read or nothing useful is left. Types
//! stay plain serde types, and what could be read is handed on so that checks
//! across fields can add what they find to the same report.
//!
//! What this reader accepts is YAML 1.2 without its surprises: `true` and
//! `false` are the only booleans, a key stands once, and anchors, aliases, tags,
//! merge keys and second documents are refused. A policy must mean the same to
//! everyone who reads it.

mod de;
mod spanned;
mod tree;

use serde::de::DeserializeOwned;

use crate::problems::{Problems, Source};
pub use spanned::{Item, Spanned};

/// Reads a whole document, or says everything that is wrong with it.
///
/// ```
/// use policies::{Source, yaml};
///
/// #[derive(serde::Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Limits { cpus: u32, memory: u32 }
///
/// let limits: Limits = yaml::read(&Source::new("l.yaml", "cpus: 2\nmemory: 64\n"))?;
/// assert_eq!(limits.cpus + limits.memory, 66);
///
/// let wrong = yaml::read::<Limits>(&Source::new("l.yaml", "cpus: many\nmemori: 64\nmemory: -1\n"));
/// assert_eq!(wrong.err().map(|problems| problems.len()), Some(3));
/// # Ok::<(), policies::Problems>(())
/// ```
pub fn read<T: DeserializeOwned>(source: &Source) -> Result<T, Problems> {
    match read_partial(source) {
        (Some(value), problems) => problems.or(value),
        (None, problems) => Err(problems.in_reading_order()),
    }
}

/// Reads what can be read, beside everything that is wrong.
///
/// The value is for further checks only: parts with problems are missing from it.
pub(crate) fn read_partial<T: DeserializeOwned>(source: &Source) -> (Option<T>, Problems) {
    let (tree, mut problems) = tree::build(source);
    let Some(mut tree) = tree else {
        return (None, problems);
    };
    loop {
        let failure = match de::from_tree::<T>(&tree) {
            Ok(value) => return (Some(value), problems),
            Err(failure) => failure,
        };
        if !failure.follows_from_another {
            problems.push(source.problem(failure.at, failure.path(), failure.message.clone()));
        }
        if problems.len() >= MAX_PROBLEMS {
            problems.push(source.whole("there may be more; these come first"));
            return (None, problems);
        }
        // Progress is certain: what is set aside is not read again.
        if failure.steps.is_empty() || !tree.set_aside(&failure.steps) {
            return (None, problems);
        }
    }
}

/// More than anyone fixes in one go; each costs another reading of the file.
const MAX_PROBLEMS: usize = 50;

#[cfg(test)]
mod tests;
