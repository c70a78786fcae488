//! The `sluice` command.
//!
//! [`cli`] is the door: it parses, hands over to one verb, and turns how that
//! ended into an exit code. A verb is a file: `policy/check.rs` is `sluice
//! policy check`. Each takes its arguments and a [`console::Console`], so what
//! goes to stdout (results, nothing else) and to stderr (everything else) is
//! decided in one place.
//!
//! **Invariant:** nothing here runs, or reads as configuration, what stands in
//! a project's own tree: an agent may have written it.

pub mod archive;
pub mod attack;
pub mod audit;
pub mod backend;
pub mod cli;
pub mod completions;
pub mod config;
pub mod console;
mod credentials;
pub mod demo;
pub mod disk;
pub mod doctor;
pub mod evidence;
pub mod exec;
pub mod exit;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod image;
pub mod init;
pub mod inside;
pub mod launch;
pub mod link;
pub mod logs;
pub mod ls;
pub mod ourselves;
pub mod outcome;
pub mod place;
pub mod plan;
pub mod policy;
pub mod probe;
mod process_tree;
pub mod request;
pub mod rm;
pub mod run;
pub mod runs;
mod seccomp;
pub mod selftest;
pub mod session;
pub mod settings;
mod shown;
pub mod standin;
pub mod stats;
pub mod sweep;
pub mod teardown;
pub mod terminal;
pub mod work_budget;
pub mod workspace;
