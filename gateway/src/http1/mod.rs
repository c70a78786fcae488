//! HTTP/1.1, on both sides, in our own strict reading.
//!
//! A client and an upstream that read one message differently are how requests
//! are smuggled past a proxy. So this codec is strict both ways, and whatever it
//! passes on it has taken apart and written anew: [`head`] and [`fields`] read,
//! [`framing`] says where a body ends, [`chunked`] codes one, [`forward`] writes.
//! [`serve`] is the connection's loop, [`exchange`] one turn of it.

pub(crate) mod chunked;
mod exchange;
pub(crate) mod fields;
mod forward;
pub(crate) mod framing;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
pub(crate) mod head;
mod origin;
mod serve;
mod turn;
mod upgrade;

pub(crate) use exchange::MOST_INTERIM;
pub(crate) use fields::Known;
pub(crate) use forward::{Afterwards, refusal as write_refusal};
pub(crate) use origin::Origin;
pub(crate) use serve::{Ended, linger, serve, take_head};
