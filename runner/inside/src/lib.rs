//! The three small programs around and in a sandbox, each static and started by
//! the runner alone:
//!
//! - `sluice-init` ([`init`]) is the first process of every sandbox;
//! - `sluice-launch` ([`launch`]) builds the walls of one that no engine builds;
//! - `sluice-probe` ([`probe`]) tries to get out of one, and is mounted only into
//!   sandboxes that are there to be tried.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod init;
pub mod launch;
pub mod names;
pub mod passing;
pub mod probe;
pub mod process_tree;
mod relay;
pub mod seccomp;
#[cfg(test)]
#[path = "../../../tests/src/skip.rs"]
mod skip;
