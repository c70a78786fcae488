//! `sluice-launch`: what the runner cannot do in its own process.
//!
//! To enter a namespace, to give up a privilege, to fork: each of them is for a
//! process with one thread, and the runner has several. So there is a small
//! program that has one, and one file here for each word it understands.
//!
//! This is the only folder with `unsafe`: some system calls have no safe
//! wrapper, because they change the process that asks. Each block says why what
//! it does is sound.

pub mod sandbox;

/// The exit code when nothing we understand was asked.
pub const USAGE: u8 = 2;
