//! Promises that hold for any bytes a peer can send: the bodies of fuzz targets.
//!
//! Each function takes arbitrary bytes and panics if a promise is broken. The
//! targets in `fuzz/` call them with generated input (`./test --full`), and the
//! test below calls them with the kept corpus, so that a target that no longer
//! compiles or holds is noticed by an ordinary `cargo test`.

pub use crate::dns::fuzzing::dns_question;
pub use crate::frames::fuzzing::http2_frames;
pub use crate::http1_codec::fuzzing::{
    http1_chunked_body, http1_request_head, http1_response_head,
};
pub use crate::opening::fuzzing::{client_hello, socks5_opening};
pub use crate::websocket::fuzzing::websocket_frames;

/// A fuzz target's body.
pub type Target = fn(&[u8]);

/// Every target of this crate, by the name it has in `fuzz/`.
pub const TARGETS: [(&str, Target); 8] = [
    ("client_hello", client_hello),
    ("dns_question", dns_question),
    ("http1_chunked_body", http1_chunked_body),
    ("http1_request_head", http1_request_head),
    ("http1_response_head", http1_response_head),
    ("http2_frames", http2_frames),
    ("socks5_opening", socks5_opening),
    ("websocket_frames", websocket_frames),
];

#[cfg(test)]
#[path = "../../fuzz/replay.rs"]
mod tests;
