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
mod git_trees;
mod gitdirs;
mod highlights;
#[cfg(test)]
#[path = "../../../files/src/listed.rs"]
mod listed;
mod marks;
mod masks;
mod node;
pub mod owners;
pub mod patch;
mod pattern;
mod prepare;
mod secret_files;
pub(crate) mod sparse;
mod survey;
#[cfg(test)]
pub(crate) mod testing;
mod tool_files;
pub mod usage;

pub use files::{Bytes, NotInside, Quoted, TreePath};

pub use changes::{Change, Changes};
pub use compare::{ChangeLimits, ChangesError, Overlaid, changes};
pub use highlights::Highlight;
pub use marks::Marks;
pub use prepare::{
    Overlay, Place, PreparedWorkspace, Project, RemappedMount, WorkspaceError, prepare,
};
pub use survey::SurveyError;
pub(crate) use survey::named_by;

/// A path of a policy, as one of the tree it is about.
pub(crate) fn in_tree(path: &policies::RelativePath) -> TreePath {
    TreePath::parse(path.as_str().as_bytes()).expect("a policy's relative path leads nowhere out")
}
