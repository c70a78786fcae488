//! What goes by beneath the HTTP/2 library: frames, counted and bounded.
//!
//! The library bounds what has a window. It answers, ignores or queues the rest
//! without telling us: hints, pings, settings, padding, frames of streams that
//! are over. So between it and the socket a [`WatchedStream`] reads the nine
//! bytes in front of every frame, in both directions, and skips the payload.
//! [`FrameLimit`] is the rule: frames that carry nothing are paid for by frames
//! that do, and by time.
//!
//! **Invariant:** a connection on which more is said than the rule allows ends
//! before the library has seen it.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod limit;
mod reader;
mod watched;

pub(crate) use limit::{StreamOpener, UnreadStream};
pub(crate) use watched::{FrameWatch, WatchedStream, watched};
