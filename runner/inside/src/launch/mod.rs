//! `sluice-launch`: what the runner cannot do in its own process.
//!
//! To enter a namespace, to give up a privilege, to fork: each of them is for a
//! process with one thread, and the runner has several. So there is a small
//! program that has one, and one file here for each word it understands:
//! [`sandbox`], [`doors`], [`gateway`], [`relay`], [`idmap`] and [`pools`]. The walls of a
//! sandbox are a list, in `confine`.
//!
//! This is the only folder with `unsafe`: some system calls have no safe
//! wrapper, because they change the process that asks. They stand in `kernel`,
//! `packets` and `idmap`, and each block says why what it does is sound.

#![allow(unsafe_code, reason = "system calls without a safe wrapper, each with its reason")]

mod confine;
pub mod doors;
mod filter;
pub mod forbidden;
pub mod gateway;
pub mod idmap;
mod kernel;
mod landlock_wall;
mod memory;
mod mounts;
mod network;
mod packets;
pub mod pools;
pub mod privileges;
pub mod raw;
pub mod relay;
pub mod sandbox;
pub mod waiting;

/// How the first process is told what the second wall is made of: nothing it
/// could read says so.
pub const SECOND_WALL: &str = "SLUICE_SECOND_WALL";

/// The exit code when nothing we understand was asked.
pub const USAGE: u8 = 2;
