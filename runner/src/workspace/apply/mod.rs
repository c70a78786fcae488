//! `sluice apply`: bring a run's changes home.
//!
//! [`check`] says what may be written and what is in the way; [`write`] writes
//! what was checked. If anything is in the way nothing is written, unless the
//! caller asks for the rest.

mod check;
#[cfg(test)]
mod tests;
mod write;

pub use check::{Checked, Refusal, Refused, check};
pub use write::{Applied, ApplyError, write};
