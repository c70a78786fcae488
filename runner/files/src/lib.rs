//! Files and names that a sandbox may have written.
//!
//! A tree that hostile programs write to is walked by descriptors, never by
//! paths that could be swapped ([`tree`]); a path that leads out of it cannot be
//! represented ([`TreePath`]); and a name is shown so that it cannot act on a
//! terminal ([`printable`]). Used on both sides of a sandbox's wall.

pub mod archive;
#[cfg(test)]
mod listed;
pub mod mounts;
mod path;
pub mod printable;
pub mod removal;
#[cfg(test)]
#[path = "../../../tests/src/skip.rs"]
mod skip;
pub mod tree;

pub use path::{Bytes, NotInside, Quoted, TreePath, leads_out};
