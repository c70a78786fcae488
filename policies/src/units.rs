//! Amounts as people write them: `2GiB`, `30m`, `0.5`.
//!
//! A limit is a promise, so an amount is read exactly or not at all: nothing is
//! rounded, nothing wraps, zero is refused (it would mean "none" to one reader
//! and "no limit" to the next), and a unit is never guessed.

mod cpus;
mod size;
mod span;

pub use cpus::Cpus;
pub use size::Size;
pub use span::Span;

use crate::written::Written;

/// Text that is no amount of what was asked for, and what to write.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{written}` is not a {what}: {why}")]
pub struct UnitError {
    written: Written,
    what: &'static str,
    why: UnitFault,
}

impl UnitError {
    pub fn fault(&self) -> &UnitFault {
        &self.why
    }
}

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitFault {
    #[error("write `{0}`")]
    Instead(String),
    #[error("write {0}")]
    Syntax(&'static str),
    #[error("it is too large")]
    TooLarge,
    #[error("it must be more than zero")]
    Zero,
}

/// Splits `15min` into `15` and `min`. The number has digits only.
fn leading_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}
