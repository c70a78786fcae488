//! What is meant by one command line.
//!
//! Flags win over the environment, which wins over the configuration file. What
//! a run asks for beyond its policy is checked against what the policy permits,
//! all of it at once. The result says what is wanted; how it is done is decided
//! by [`engine::plan`].

mod backend_args;
mod flags;
mod ours;
mod pins;
mod planned;
mod policy;
mod resolve;
mod secrets;
mod variables;

pub use backend_args::BackendArgs;
pub(crate) use backend_args::backend_kind;
pub use flags::RunFlags;
pub(crate) use planned::{PlannedRun, print_plan};
pub(crate) use variables::environment;
