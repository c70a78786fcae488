//! The `sluice` command.
//!
//! [`cli`] is the door: it parses, hands over to one verb, and turns how that
//! ended into an exit code. A verb is a file: `verbs/diff.rs` is `sluice
//! diff`. Each takes its arguments and a [`console::Console`], so what
//! goes to stdout (results, nothing else) and to stderr (everything else) is
//! decided in one place.
//!
//! **Invariant:** nothing here runs, or reads as configuration, what stands in
//! a project's own tree: an agent may have written it.

pub mod amounts;
pub mod audit;
mod caller;
pub mod cli;
pub mod config;
pub mod console;
mod credentials;
pub mod environment;
pub mod exit;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod policy;
pub mod request;
pub mod runs;
pub mod self_invoke;
pub mod session;
#[cfg(test)]
#[path = "../../../tests/src/skip.rs"]
mod skip;
pub mod terminal;
pub mod verbs;
