//! The versions of HTTP that are spoken.

/// The HTTP version a request was sent in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum HttpVersion {
    Http10,
    Http11,
    Http2,
}

impl HttpVersion {
    /// As records spell it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "1.0",
            Self::Http11 => "1.1",
            Self::Http2 => "2",
        }
    }
}
