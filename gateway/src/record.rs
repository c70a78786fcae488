//! Step 10 of 10: the record.
//!
//! One closing event per request and per connection, whatever happens to it. A
//! [`RequestRecord`] is begun before policy is asked and ends in exactly one of three
//! ways; a [`ConnectionRecord`] lives as long as its connection. Dropping either
//! without ending it, as a panic or a cancelled task does, still writes it, as
//! `abandoned`.

mod connection;
mod request;

pub(crate) use connection::{ConnectionRecord, ConnectionTotals};
pub(crate) use request::{RequestRecord, destination};
