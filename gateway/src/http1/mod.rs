//! HTTP/1.1 with the sandbox and with upstreams: steps 5 to 10, one request after
//! the other.
//!
//! [`serve`] is the connection's loop, [`exchange`] one request of it, and
//! [`forward`] writes the heads that go out, anew. [`crate::http1_codec`] reads.

mod destinations;
mod exchange;
mod exchange_io;
mod forward;
mod serve;
mod upgrade;

pub(crate) use destinations::{ClearDoor, Destinations};
pub(crate) use exchange::{
    ClientIo, ExchangeBuffers, ExchangeEnd, ExchangeError, MAX_INTERIM_ANSWERS, OutgoingRequest,
};
pub(crate) use forward::{ConnectionOption, refusal as write_refusal};
pub(crate) use serve::{linger, read_request, serve, take_head};
