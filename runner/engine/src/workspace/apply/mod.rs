//! Brings a run's changes home.
//!
//! [`check()`] says what may be written and what is in the way; [`write()`]
//! writes what was checked. What is applied is what the evidence says.

mod check;
mod stage;
#[cfg(test)]
mod tests;
mod write;

pub use check::{ApplyRefusal, Checked, Refused, check};
pub use write::{Applied, ApplyError, write};
