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

pub mod audit;
pub mod cli;
pub mod completions;
pub mod console;
pub mod exit;
pub mod place;
pub mod policy;
mod shown;
