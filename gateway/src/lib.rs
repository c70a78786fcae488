//! The gateway: the one way out of a sandbox.
//!
//! To follow a request, open `lifecycle.rs`.

mod admit;
mod authorize;
mod config;
mod connection;
mod dial;
mod dns;
mod gateway;
mod http1;
mod http2;
mod lifecycle;
mod limits;
mod listen;
mod metrics;
mod opening;
mod record;
mod refuse;
mod relay;
mod request;
mod terminate;
#[cfg(test)]
mod testing;

pub use admit::HostPermit;
pub use authorize::RequestPermit;
pub use gateway::Gateway;
