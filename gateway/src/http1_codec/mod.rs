//! Messages of HTTP/1.1, in our own strict reading.
//!
//! A client and an upstream that read one message differently are how requests
//! are smuggled past a proxy. So this codec is strict both ways, and whatever it
//! passes on is taken apart and written anew: [`head`] and [`fields`] read,
//! [`framing`] says where a body ends, [`chunked`] codes one. `http1::forward`
//! writes heads.

pub(crate) mod chunked;
pub(crate) mod fields;
pub(crate) mod framing;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
pub(crate) mod head;
