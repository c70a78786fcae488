//! WebSockets: what makes a connection one, and what may pass over it.
//!
//! A rule with `websocket: true` lets WebSockets through, and nothing that is
//! merely called one. [`handshake`] judges both halves of the handshake before
//! an answer is relayed; [`frames`] judges what either side sends afterwards.
//! Both are pure: [`checked`] applies the second to an HTTP/1.1 connection,
//! `http2::pump` to a stream.
//!
//! **Invariant:** nothing is relayed but frames that RFC 6455 permits at that
//! point, unchanged, and without keeping one until it is whole.
//!
//! Payloads are not looked into: whether a text is UTF-8 is left to the side that
//! reads it, since a compressed one would have to be unpacked to tell.

mod checked_io;
mod frames;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod handshake;

pub(crate) use checked_io::FrameCheckedIo;
pub(crate) use frames::{FrameChecker, FrameSender, WebSocketFault};
pub(crate) use handshake::{AgreedExtensions, WebSocketOffer};

/// A close frame that says "protocol error" (1002), as a server writes it.
pub(crate) const PROTOCOL_ERROR_CLOSE: [u8; 4] = [0x88, 2, 0x03, 0xea];

/// What both sides of an agreed WebSocket send, each with its own checker.
#[derive(Debug)]
pub(crate) struct FrameCheckers {
    pub(crate) from_client: FrameChecker,
    pub(crate) from_upstream: FrameChecker,
}

impl FrameCheckers {
    pub(crate) fn new(agreed: AgreedExtensions) -> Self {
        Self {
            from_client: FrameChecker::new(FrameSender::Client, agreed),
            from_upstream: FrameChecker::new(FrameSender::Server, agreed),
        }
    }
}
