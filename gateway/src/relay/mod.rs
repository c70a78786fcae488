//! Step 9 of 10: bytes, both ways, counted.
//!
//! Comes after the dial. Nothing here decides anything but "enough": a byte is
//! counted before it is sent, and the count has a bound.
//!
//! **Invariant:** memory per direction is one buffer of fixed size, whatever the
//! peers do. A side that does not read stops the other side from being read.

mod meter;

pub(crate) use meter::Meter;
