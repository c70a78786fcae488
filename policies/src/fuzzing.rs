//! Promises that hold for any policy and any path: the bodies of fuzz targets.
//!
//! Each function takes arbitrary bytes and panics if a promise is broken. The
//! targets in `fuzz/` call them with generated input (`./test --full`), and the
//! test below calls them with the kept corpus, so that a target that no longer
//! compiles or holds is noticed by an ordinary `cargo test`.

mod path_readings;
mod policy_text;

pub use path_readings::path_readings;
pub use policy_text::policy_text;

/// A fuzz target's body.
pub type FuzzTarget = fn(&[u8]);

/// Every target of this crate, by the name it has in `fuzz/`.
pub const TARGETS: [(&str, FuzzTarget); 2] =
    [("path_readings", path_readings), ("policy_text", policy_text)];

#[cfg(test)]
#[path = "../../fuzz/replay.rs"]
mod tests;
