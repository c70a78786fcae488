//! Promises that hold for any bytes a sandbox can send: the bodies of fuzz targets.
//!
//! Each function takes arbitrary bytes and panics if a promise is broken. The
//! targets in `fuzz/` call them with generated input (`./test --full`), and the
//! test below calls them with the kept corpus, so that a target that no longer
//! compiles or holds is noticed by an ordinary `cargo test`.

pub use crate::relay::fuzzing::relay_frames;

/// A fuzz target's body.
pub type Target = fn(&[u8]);

/// Every target of this crate, by the name it has in `fuzz/`.
pub const TARGETS: [(&str, Target); 1] = [("relay_frames", relay_frames)];

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod tests;
