//! A run's workspace: made ready, compared afterwards, and brought home.
//!
//! Before: [`prepare()`] finds what to protect and to hide. After:
//! [`changes()`] reads what changed out of the overlay's upper layer, [`patch`]
//! writes it as text, `sluice diff` shows it and `sluice apply` brings it home.
//!
//! **Invariant:** no program runs here, and nothing in a tree is read as
//! configuration. **Invariant:** no link is followed below a tree's root
//! ([`tree`]). **Invariant:** nothing is written into a project except by
//! [`apply`], and there only where it still is what it was.

pub mod apply;
pub mod changes;
mod compare;
pub mod diff;
mod git_trees;
mod gitdirs;
mod highlights;
mod marks;
mod masks;
pub mod mounts;
mod node;
pub mod owners;
pub mod patch;
mod path;
mod pattern;
mod prepare;
pub mod removal;
mod secret_files;
pub(crate) mod sparse;
mod survey;
#[cfg(test)]
pub(crate) mod testing;
mod tool_files;
pub mod tree;
pub mod usage;

pub use changes::{Change, Changes};
pub use compare::{ChangeLimits, ChangesError, Overlaid, changes};
pub use highlights::{Highlight, leads_out};
pub use marks::Marks;
pub use path::{Bytes, NotInside, Quoted, TreePath};
pub use prepare::{Overlay, Place, PrepareError, Prepared, Project, Shown, prepare};
pub use survey::SurveyError;
pub(crate) use survey::named_by;
