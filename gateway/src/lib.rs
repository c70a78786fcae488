//! The gateway: the one way out of a sandbox.
//!
//! To follow a request, open `lifecycle.rs`.

mod admit;
mod authorize;
mod config;
mod dial;
mod limits;
