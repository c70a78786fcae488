//! What policy is asked.

use crate::authority::Destination;
use crate::header_fields::Headers;
use crate::method::Method;
use crate::path::RequestPath;
use crate::query::Query;
use crate::request_overrides::AlternatePath;
use crate::target::Scheme;

/// One request, as policy sees it. Everything in it was parsed once.
#[derive(Clone, Copy, Debug)]
pub struct PolicyQuestion<'a> {
    pub scheme: Scheme,
    pub to: &'a Destination,
    pub method: Method,
    /// The method that a header such as `X-HTTP-Method-Override`, or a parameter such
    /// as `_method`, asks the server to use instead. Both must be allowed.
    pub override_method: Option<Method>,
    /// Paths that a header or a parameter asks the server to serve instead. All of
    /// them must be allowed.
    pub alternate_paths: &'a [AlternatePath],
    pub path: &'a RequestPath,
    pub query: Option<&'a Query>,
    pub headers: &'a dyn Headers,
    /// Whether the request asks to become a WebSocket.
    pub websocket: bool,
}
