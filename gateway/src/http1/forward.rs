//! Heads as they are sent on.
//!
//! A head is rebuilt from what was read: the line from the parsed parts, the
//! `Host` from the connection's destination, the framing from what we will send.
//! Everything else keeps its order and its case. What concerns only the connection
//! it came on was taken out when the head was read, before policy looked at it;
//! what would lead a client around us (`Alt-Svc`) is left out here.

use std::io::Write as _;

use policies::misspelt_control_field;

use crate::http_version::HttpVersion;
use crate::http1_codec::fields::{Fields, KnownField, tokens};
use crate::http1_codec::framing::Framing;
use crate::http1_codec::head::{RequestHead, ResponseHead};
use crate::refuse::HttpReply;
use crate::request::ParsedRequest;

/// Writes the head of a request for the upstream.
pub(crate) fn request(
    request: &ParsedRequest<'_>,
    head: &RequestHead,
    authority: &str,
    framing: Framing,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(request.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(request.path.as_str().as_bytes());
    if let Some(query) = &request.query {
        out.push(b'?');
        out.extend_from_slice(query.as_str().as_bytes());
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    if !head.fields.has(KnownField::Host) {
        field(b"Host", authority.as_bytes(), out);
    }
    for (known, name, value) in head.fields.iter() {
        match known {
            KnownField::Host => field(name, authority.as_bytes(), out),
            KnownField::ContentLength => field(name, value, out),
            KnownField::TransferEncoding if framing == Framing::Chunked => {
                field(name, b"chunked", out)
            }
            KnownField::Te if !request.websocket && wants_trailers(value) => {
                out.extend_from_slice(b"Connection: te\r\n");
                field(name, b"trailers", out);
            }
            KnownField::Upgrade if request.websocket => {
                out.extend_from_slice(b"Connection: Upgrade\r\n");
                field(name, b"websocket", out);
            }
            KnownField::AltSvc | KnownField::Expect | KnownField::Other => field(name, value, out),
            KnownField::Connection
            | KnownField::Gateway
            | KnownField::Http2Settings
            | KnownField::KeepAlive
            | KnownField::ProxyAuthenticate
            | KnownField::ProxyAuthorization
            | KnownField::ProxyConnection
            | KnownField::Te
            | KnownField::TransferEncoding
            | KnownField::Upgrade => {}
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// What a response says to the client about its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ConnectionOption {
    Close,
    /// Said aloud only to HTTP/1.0, where it is not the default.
    KeepAlive(HttpVersion),
    /// It is not HTTP any more.
    Upgrade,
}

/// Writes the head of a response for the client, final or not.
pub(crate) fn response(
    head: &ResponseHead,
    chunked: bool,
    option: ConnectionOption,
    out: &mut Vec<u8>,
) {
    write!(out, "HTTP/1.1 {} ", head.status).expect("writing to memory cannot fail");
    out.extend_from_slice(head.reason());
    out.extend_from_slice(b"\r\n");
    let lengthless = matches!(head.status, 100..200 | 204);
    for (known, name, value) in head.fields.iter() {
        match known {
            KnownField::ContentLength if !lengthless => field(name, value, out),
            KnownField::Upgrade if option == ConnectionOption::Upgrade => {
                out.extend_from_slice(b"Connection: Upgrade\r\n");
                field(name, b"websocket", out);
            }
            KnownField::Other if misspelt_control_field(name).is_some() => {}
            KnownField::Expect | KnownField::Host | KnownField::Other => field(name, value, out),
            KnownField::AltSvc
            | KnownField::Connection
            | KnownField::ContentLength
            | KnownField::Gateway
            | KnownField::Http2Settings
            | KnownField::KeepAlive
            | KnownField::ProxyAuthenticate
            | KnownField::ProxyAuthorization
            | KnownField::ProxyConnection
            | KnownField::Te
            | KnownField::TransferEncoding
            | KnownField::Upgrade => {}
        }
    }
    if chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    if head.status >= 200 {
        write_option(option, out);
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes a refusal, whole.
pub(crate) fn refusal(
    wire: &HttpReply,
    reason: &str,
    bodiless: bool,
    option: ConnectionOption,
    out: &mut Vec<u8>,
) {
    write!(out, "HTTP/1.1 {} {reason}\r\n", wire.status).expect("writing to memory cannot fail");
    for (name, value) in &wire.headers {
        field(name.as_bytes(), value.as_bytes(), out);
    }
    write!(out, "content-length: {}\r\n", wire.body.len()).expect("writing to memory cannot fail");
    write_option(option, out);
    out.extend_from_slice(b"\r\n");
    if !bodiless {
        out.extend_from_slice(&wire.body);
    }
}

/// Whether the upstream may keep the connection, as far as its answer says.
pub(crate) fn upstream_stays(head: &ResponseHead) -> bool {
    stays(&head.fields, head.version)
}

/// Whether the client wants to keep the connection.
pub(crate) fn client_stays(head: &RequestHead) -> bool {
    stays(&head.fields, head.version)
}

fn stays(fields: &Fields, version: HttpVersion) -> bool {
    match version {
        HttpVersion::Http10 => fields.connection_lists(b"keep-alive"),
        HttpVersion::Http11 | HttpVersion::Http2 => !fields.connection_lists(b"close"),
    }
}

fn write_option(option: ConnectionOption, out: &mut Vec<u8>) {
    match option {
        ConnectionOption::Close => out.extend_from_slice(b"Connection: close\r\n"),
        ConnectionOption::KeepAlive(HttpVersion::Http10) => {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
        ConnectionOption::KeepAlive(HttpVersion::Http11 | HttpVersion::Http2)
        | ConnectionOption::Upgrade => {}
    }
}

fn wants_trailers(value: &[u8]) -> bool {
    tokens(value).any(|token| token.eq_ignore_ascii_case(b"trailers"))
}

fn field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
