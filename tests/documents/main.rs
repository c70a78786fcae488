//! The documents are true: what they name exists, and what they tell people to
//! type works.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what does not hold in a test ends it"
)]

mod named;
mod pages;
mod reliability;
mod runbook;
mod test_script;
