//! The `sluice` program from outside: what it prints, where, and how it ends.
//!
//! One file per part of the command line. Every test runs the built program
//! with an empty environment, its own home and no `PATH`, so nothing of the
//! machine shows in what it says.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod approval;
mod audit;
mod check;
mod configuration;
mod explain;
mod flags;
mod health;
mod help;
mod init;
mod lint;
mod pins;
mod pipes;
mod policy_tests;
mod registries;
mod review;
mod tamper;
mod terminal;
mod variables;
mod world;
mod wrong;
