//! The gateway: the one way out of a sandbox.
//!
//! To follow a request, open `lifecycle.rs`.

mod admit;
mod authorize;
mod bind;
mod check;
pub mod config;
mod connection;
pub mod control;
mod denial;
mod dial;
mod dns;
mod frames;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzz_input;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod http1;
mod http1_codec;
mod http2;
mod http_version;
mod inbox;
mod inspect;
mod lifecycle;
mod limits;
mod listen;
mod metrics;
mod open_files;
mod opening;
mod per_worker;
mod phase;
mod policy_cell;
mod policy_file;
mod rate_limit;
mod read_ahead;
mod record;
mod refuse;
mod relay;
mod request;
mod selfcheck;
mod server;
mod signals;
mod terminate;
#[cfg(test)]
mod testing;
mod trailers;
mod unanswered;
mod websocket;
mod workers;
mod write_batch;

pub use admit::HostPermit;
pub use authorize::RequestPermit;
pub use bind::Inherited;
pub use check::{CheckReport, check};
pub use gateway::Gateway;
pub use server::{Drained, Server, StartError};
pub use signals::{OperatorSignal, OsSignals};
pub use workers::processors;
