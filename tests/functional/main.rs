//! What the gateway does, one file per promise.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what does not hold in a test ends it"
)]

mod broken_off;
mod bulk;
mod distrusted;
mod grpc;
mod http1;
mod http2;
mod limits;
mod observing;
mod program;
mod recording;
mod refusals;
mod reload;
mod streams;
mod tls;
mod tools;
mod uploads;
mod upstreams;
mod ways_in;
