//! Step 9 of 10: bytes, both ways, counted.
//!
//! Comes after the dial. Nothing here decides anything but "enough": a byte is
//! counted before it is sent, and the count has a bound.
//!
//! **Invariant:** memory per direction is one buffer of bounded size, whatever
//! the peers do. A side that does not read stops the other side from being read.

mod deadline;
mod deadlines;
mod pump;
mod tunnel;

pub(crate) use deadlines::{ExchangeDeadlines, Waited};
pub(crate) use pump::{BodyPump, InspectBody, PumpError};
pub(crate) use tunnel::Tunnel;
