//! HTTP/2 from a client to an upstream, with the gateway between them.
//!
//! The client's end of the wire is in memory, the upstream's is TLS on loopback.

mod ends;
mod hostile;
mod recorded;
mod refused;
mod relayed;
mod world;

use world::{Asked, Http2World, body_of, get, policy, post, read_all};
