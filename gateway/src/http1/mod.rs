//! HTTP/1.1, on both sides, in our own strict reading.
//!
//! A client and an upstream that read one message differently are how requests
//! are smuggled past a proxy. So this codec is strict both ways, and whatever it
//! passes on it has taken apart and written anew: [`head`] and [`fields`] read,
//! [`framing`] says where a body ends, [`chunked`] codes one, [`forward`] writes.
//! [`serve`] is the connection's loop, [`exchange`] one request of it.

pub(crate) mod chunked;
mod destinations;
mod exchange;
mod exchange_io;
pub(crate) mod fields;
mod forward;
pub(crate) mod framing;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
pub(crate) mod head;
mod serve;
mod upgrade;

pub(crate) use destinations::Destinations;
pub(crate) use exchange::{
    ClientIo, ExchangeBuffers, ExchangeEnd, ExchangeError, MAX_INTERIM_ANSWERS, OutgoingRequest,
};
pub(crate) use fields::KnownField;
pub(crate) use forward::{ConnectionOption, refusal as write_refusal};
pub(crate) use serve::{linger, read_request, serve, take_head};
