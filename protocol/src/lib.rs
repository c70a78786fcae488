//! What our programs say to each other: types, and how they are written down.
//!
//! Nothing here does anything: no I/O, no clock, no threads. Both ends of a
//! conversation use the same type, so they cannot disagree about its words.

pub mod control;
pub mod doors;
pub mod init;
pub mod launcher;
pub mod relay;
pub mod settings;
pub mod spool;

use serde::{Deserialize, Serialize};

/// A user and a group, by number.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct UserIds {
    pub uid: u32,
    pub gid: u32,
}
