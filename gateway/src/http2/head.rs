//! Heads: as the client sent them, as policy reads them, as they go out.
//!
//! What goes out is put together from the reading that was judged. The
//! destination is the connection's, the path is the one that policy saw, and of
//! the client's own headers those that speak about the connection stay behind.

use h2::ext::Protocol;
use http::header::{self, HeaderName};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{HeaderMap, Method, Request as HttpRequest, Response};
use policies::{Destination, Headers, is_gateway_field, misspelt_control_field};

use crate::http_version::HttpVersion;
use crate::limits::GatewayLimits;
use crate::refuse::Refusal;
use crate::request::{ParsedRequest, RawRequest};

/// The destination as every request to it names it in `:authority`.
pub(crate) struct UpstreamAuthority {
    authority: Authority,
}

impl UpstreamAuthority {
    pub(super) fn to(destination: &Destination) -> Result<Self, Refusal> {
        let written = if destination.port == HTTPS_PORT {
            destination.host.to_string()
        } else {
            destination.to_string()
        };
        match Authority::try_from(written) {
            Ok(authority) => Ok(Self { authority }),
            Err(err) => Err(Refusal::Malformed(format!("`{destination}` is no authority: {err}"))),
        }
    }

    /// The head that the upstream gets for a request that may go out.
    pub(super) fn head(
        &self,
        StreamHead(parts): &StreamHead,
        request: &ParsedRequest<'_>,
    ) -> HttpRequest<()> {
        let mut uri = http::uri::Parts::default();
        uri.scheme = Some(Scheme::HTTPS);
        uri.authority = Some(self.authority.clone());
        uri.path_and_query = Some(path_and_query(parts, request));
        let mut head = HttpRequest::new(());
        *head.method_mut() = parts.method.clone();
        *head.uri_mut() = Uri::from_parts(uri).expect("all three parts are there");
        *head.version_mut() = http::Version::HTTP_2;
        // `te: trailers` stays, and is all that can be there: without it a gRPC
        // server does not answer. The other hop-by-hop headers have no place in
        // HTTP/2, and a request with one never gets here.
        *head.headers_mut() = parts.headers.clone();
        // The destination speaks for itself in `:authority`.
        retain(head.headers_mut(), |name| *name != header::HOST);
        if let Some(protocol) = parts.extensions.get::<Protocol>() {
            head.extensions_mut().insert(protocol.clone());
        }
        head
    }
}

/// A request's head: what the client sent, without what is between it and us. But
/// for `host` that is what will be sent, and so it is what policy judges.
pub(crate) struct StreamHead(Parts);

impl Headers for StreamHead {
    fn each<'h>(&'h self, each: &mut dyn FnMut(&'h [u8], &'h [u8])) {
        for (name, value) in &self.0.headers {
            each(name.as_str().as_bytes(), value.as_bytes());
        }
    }

    fn values(&self, name: &str, each: &mut dyn FnMut(&[u8])) {
        for value in self.0.headers.get_all(name) {
            each(value.as_bytes());
        }
    }
}

/// The headers of a response.
pub(super) struct ResponseHeaders<'a>(pub(super) &'a HeaderMap);

impl Headers for ResponseHeaders<'_> {
    fn each<'h>(&'h self, each: &mut dyn FnMut(&'h [u8], &'h [u8])) {
        for (name, value) in self.0 {
            each(name.as_str().as_bytes(), value.as_bytes());
        }
    }
}

impl StreamHead {
    pub(super) fn received(mut parts: Parts) -> Self {
        retain(&mut parts.headers, is_end_to_end);
        Self(parts)
    }

    /// Step 5, as far as HTTP/2 goes: what the head asks for.
    pub(crate) fn read_request(&self, limits: &GatewayLimits) -> Result<RawRequest<'_>, Refusal> {
        self.check(limits.bounds().headers, limits.bounds().header_bytes)?;
        Ok(self.raw())
    }

    fn raw(&self) -> RawRequest<'_> {
        let Self(parts) = self;
        let websocket = self.is_websocket();
        RawRequest {
            method: if websocket { b"GET" } else { parts.method.as_str().as_bytes() },
            target: parts.uri.path_and_query().map_or(b"", |target| target.as_str().as_bytes()),
            authority: parts.uri.authority().map(|authority| authority.as_str().as_bytes()),
            headers: self,
            version: HttpVersion::Http2,
            websocket,
        }
    }

    /// Refuses what has no reading, before policy is asked.
    fn check(&self, max_headers: usize, max_bytes: usize) -> Result<(), Refusal> {
        let Self(parts) = self;
        if parts.uri.scheme().is_some_and(|scheme| *scheme != Scheme::HTTPS) {
            let why = "`:scheme` is not https, and the connection is";
            return Err(Refusal::Ambiguous(why.to_owned()));
        }
        if parts.extensions.get::<Protocol>().is_some() && !self.is_websocket() {
            return Err(Refusal::ConnectInside);
        }
        if parts.headers.len() > max_headers || self.size() > max_bytes {
            return Err(Refusal::HeadTooLarge { limit: max_bytes });
        }
        Ok(())
    }

    /// How many bytes it says, about: what its sender spent on it.
    pub(super) fn size(&self) -> usize {
        let Parts { method, uri, headers, .. } = &self.0;
        let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
        let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
        method.as_str().len() + target + authority + fields_size(headers)
    }

    /// How long it says the body is.
    pub(super) fn announced(&self) -> Option<u64> {
        self.0.headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }

    pub(super) fn is_head(&self) -> bool {
        self.0.method == Method::HEAD
    }

    fn is_websocket(&self) -> bool {
        let protocol = self.0.extensions.get::<Protocol>();
        protocol.is_some_and(|protocol| protocol.as_str() == WEBSOCKET)
    }
}

pub(super) fn fields_size(fields: &HeaderMap) -> usize {
    fields.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// Takes out of a response what is between us and the upstream.
pub(super) fn strip_response<B>(response: &mut Response<B>) {
    // `alt-svc` would lead the client to a protocol that nobody inspects.
    retain(response.headers_mut(), |name| {
        is_end_to_end(name)
            && *name != header::ALT_SVC
            && misspelt_control_field(name.as_str().as_bytes()).is_none()
    });
}

/// Keeps some of the fields, in the order they have: `remove` would put the last
/// where the removed one was.
pub(super) fn retain(fields: &mut HeaderMap, keep: impl Fn(&HeaderName) -> bool) {
    if fields.keys().all(&keep) {
        return;
    }
    let mut kept = HeaderMap::with_capacity(fields.len());
    for (name, value) in fields.iter().filter(|(name, _)| keep(name)) {
        kept.append(name, value.clone());
    }
    *fields = kept;
}

/// Whether a field is end-to-end. Most that are not are forbidden in HTTP/2, and a
/// message with one never gets here; `x-sluice-` fields are only ours to send.
fn is_end_to_end(name: &HeaderName) -> bool {
    let text = name.as_str();
    !HOP_BY_HOP.contains(&text) && !is_gateway_field(text.as_bytes())
}

/// The client's own bytes where they are what policy read, which they nearly
/// always are.
fn path_and_query(parts: &Parts, request: &ParsedRequest<'_>) -> PathAndQuery {
    let path = request.path.as_str();
    let query = request.query.as_ref().map(policies::Query::as_str);
    if let Some(sent) = parts.uri.path_and_query()
        && sent.path() == path
        && sent.query() == query
    {
        return sent.clone();
    }
    let judged = match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    PathAndQuery::try_from(judged).expect("a path that was read is plain ASCII")
}

const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
];

const HTTPS_PORT: u16 = 443;
const WEBSOCKET: &str = "websocket";

#[cfg(test)]
mod tests;
