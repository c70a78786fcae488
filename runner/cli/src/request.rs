//! What is meant by one command line.
//!
//! Flags win over the environment, which wins over the configuration file. What
//! a run asks for beyond its policy is checked against what the policy permits,
//! all of it at once. The result says what is wanted; how it is done is decided
//! by [`engine::plan`].

mod backend_kind;
mod flags;
mod ours;
mod pins;
mod policy;
mod secrets;

pub use engine::spec::{
    AGENT_IMAGE, BackendKind, Pin, Request, ResolvedRun, SecretPlan, TrustedRoot, directory_of,
};

pub(crate) use backend_kind::backend_kind;
pub use flags::RunFlags;
pub(crate) use flags::environment;
