//! The evidence of a run: what happened, as files that are sealed together.
//!
//! ```text
//! <state>/runs/<run>/  run.json  policy.yaml  audit.jsonl  transcript.cast
//!                      changes.json  changes.patch  artifacts/  seal.json
//!                      commands/<n>/{command.json,transcript.cast}   in a session
//! <state>/scratch/<run>/   what the sandbox wrote, until `sluice rm`
//! ```
//!
//! [`RunFolder`] is the one way in. What the sandbox wrote is kept beside the
//! evidence and not in it: the evidence holds its hashes, and `apply` takes only
//! what has them.

pub mod artifacts;
mod folder;
mod seal;
mod transcript;
mod value_hash;

pub use artifacts::{Artifact, ArtifactLimits, Collected, LeftOut};
pub use folder::SPOOL;
pub use folder::{FolderError, RunFolder};
pub use seal::SealRunError;
pub use transcript::{Header, Recording, Stream, Transcript, What};
pub use value_hash::ValueKey;
