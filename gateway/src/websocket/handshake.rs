//! The handshake that makes a WebSocket, both halves (RFC 6455, section 4; RFC
//! 8441 for HTTP/2).
//!
//! [`WebSocketOffer::read`] judges what the client asks for before anything leaves, and
//! [`WebSocketOffer::check`] what the upstream answers before anything comes back. Method,
//! HTTP version and status are the caller's to look at: they are not headers.

mod extensions;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use policies::Headers;

use crate::http_version::HttpVersion;
use crate::http1_codec::fields::{is_token, tokens};
use extensions::{DeflateOffer, ExtensionFault};

/// What a client asks for.
#[derive(Clone, Debug)]
pub(crate) struct WebSocketOffer {
    /// What the answer must prove to have read. HTTP/2 has no such thing: there
    /// the protocol is named in the stream itself.
    accept: Option<String>,
    protocols: Vec<Vec<u8>>,
    deflate: Option<DeflateOffer>,
}

/// What both sides agreed on, as far as frames show it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct AgreedExtensions {
    /// Messages may be compressed, and say so in a reserved bit.
    pub(crate) deflate: bool,
}

/// Why a handshake does not make a WebSocket.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum HandshakeFault {
    #[error("`Sec-WebSocket-Accept` is {0}, and the key asks for another")]
    Accept(String),
    #[error("`{0}` has no place in a WebSocket's handshake")]
    Body(&'static str),
    #[error("`Connection` does not list `upgrade`")]
    Connection,
    #[error("`Sec-WebSocket-Extensions`: {0}")]
    Extension(#[from] ExtensionFault),
    #[error("`Sec-WebSocket-Key` is {0}; write it once, 16 random bytes in base64")]
    Key(String),
    #[error("`Connection` lists `{0}`, which would not arrive")]
    Nominated(String),
    #[error("`Sec-WebSocket-Protocol` is {0}; write names, separated by commas")]
    Protocols(String),
    #[error("`Sec-WebSocket-Protocol` is {0}, which is not one that was offered")]
    Protocol(String),
    #[error("`{0}` has no place in this half of a WebSocket's handshake")]
    Stray(&'static str),
    #[error("`Upgrade` is {0}, and not `websocket`")]
    Upgrade(String),
    #[error("`Sec-WebSocket-Version` is {0}; write 13, once")]
    Version(String),
}

impl WebSocketOffer {
    /// Reads a request that asks for a WebSocket.
    pub(crate) fn read(
        headers: &dyn Headers,
        version: HttpVersion,
    ) -> Result<Self, HandshakeFault> {
        check_nominated(headers)?;
        check_absent(headers, "sec-websocket-accept", HandshakeFault::Stray)?;
        let versions = all(headers, "sec-websocket-version");
        if !matches!(versions.as_slice(), [only] if only == b"13") {
            return Err(HandshakeFault::Version(quoted(&versions)));
        }
        let accept = if version == HttpVersion::Http2 {
            check_absent(headers, "sec-websocket-key", HandshakeFault::Stray)?;
            check_absent(headers, "content-length", HandshakeFault::Body)?;
            None
        } else {
            Some(accept_for(headers)?)
        };
        let lines = all(headers, "sec-websocket-protocol");
        let protocols: Vec<Vec<u8>> =
            lines.iter().flat_map(|line| tokens(line)).map(<[u8]>::to_vec).collect();
        let are_names = protocols.iter().flatten().all(|byte| is_token(*byte));
        if !are_names || (protocols.is_empty() && !lines.is_empty()) {
            return Err(HandshakeFault::Protocols(quoted(&lines)));
        }
        let deflate = extensions::offered(&all(headers, "sec-websocket-extensions"))?;
        Ok(Self { accept, protocols, deflate })
    }

    /// Checks the head of an answer that would make it one: a 101, or on HTTP/2
    /// one that says "success".
    pub(crate) fn check(&self, headers: &dyn Headers) -> Result<AgreedExtensions, HandshakeFault> {
        check_nominated(headers)?;
        check_absent(headers, "content-length", HandshakeFault::Body)?;
        check_absent(headers, "transfer-encoding", HandshakeFault::Body)?;
        check_absent(headers, "sec-websocket-key", HandshakeFault::Stray)?;
        match &self.accept {
            Some(accept) => {
                check_upgrade(headers)?;
                let accepts = all(headers, "sec-websocket-accept");
                if !matches!(accepts.as_slice(), [only] if only == accept.as_bytes()) {
                    return Err(HandshakeFault::Accept(quoted(&accepts)));
                }
            }
            None => check_absent(headers, "sec-websocket-accept", HandshakeFault::Stray)?,
        }
        match all(headers, "sec-websocket-protocol").as_slice() {
            [] => {}
            [chosen] if self.protocols.contains(chosen) => {}
            other => return Err(HandshakeFault::Protocol(quoted(other))),
        }
        let agreed = all(headers, "sec-websocket-extensions");
        Ok(AgreedExtensions { deflate: extensions::agreed(&agreed, self.deflate)? })
    }
}

/// What an answer to this key must say.
fn accept_for(headers: &dyn Headers) -> Result<String, HandshakeFault> {
    let keys = all(headers, "sec-websocket-key");
    let fault = || HandshakeFault::Key(quoted(&keys));
    let [key] = keys.as_slice() else { return Err(fault()) };
    match STANDARD.decode(key) {
        Ok(nonce) if nonce.len() == 16 => {}
        Ok(_) | Err(_) => return Err(fault()),
    }
    let mut proof = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    proof.update(key);
    proof.update(GUID);
    Ok(STANDARD.encode(proof.finish()))
}

fn check_upgrade(headers: &dyn Headers) -> Result<(), HandshakeFault> {
    let upgrades = all(headers, "upgrade");
    if !matches!(upgrades.as_slice(), [only] if only.eq_ignore_ascii_case(b"websocket")) {
        return Err(HandshakeFault::Upgrade(quoted(&upgrades)));
    }
    let mut listed = false;
    headers.values("connection", &mut |value| {
        listed |= tokens(value).any(|token| token.eq_ignore_ascii_case(b"upgrade"));
    });
    if listed { Ok(()) } else { Err(HandshakeFault::Connection) }
}

/// What `Connection` lists is taken out on the way, so that the other side would
/// see another handshake than the one that was judged.
fn check_nominated(headers: &dyn Headers) -> Result<(), HandshakeFault> {
    let mut nominated = None;
    headers.values("connection", &mut |value| {
        let ours = |token: &&[u8]| {
            token.get(..14).is_some_and(|start| start.eq_ignore_ascii_case(b"sec-websocket-"))
        };
        nominated = nominated.take().or_else(|| tokens(value).find(ours).map(<[u8]>::to_vec));
    });
    match nominated {
        Some(name) => Err(HandshakeFault::Nominated(String::from_utf8_lossy(&name).into_owned())),
        None => Ok(()),
    }
}

fn check_absent(
    headers: &dyn Headers,
    name: &'static str,
    fault: fn(&'static str) -> HandshakeFault,
) -> Result<(), HandshakeFault> {
    let mut found = false;
    headers.values(name, &mut |_| found = true);
    if found { Err(fault(name)) } else { Ok(()) }
}

fn all(headers: &dyn Headers, name: &str) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    headers.values(name, &mut |value| all.push(value.to_vec()));
    all
}

/// What was written, for a message: `missing`, or all of it as far as it is short.
fn quoted(values: &[Vec<u8>]) -> String {
    if values.is_empty() {
        return "missing".to_owned();
    }
    let texts = values.iter().map(|value| {
        let text: String = String::from_utf8_lossy(value).chars().take(MAX_QUOTED_CHARS).collect();
        format!("`{text}`")
    });
    texts.take(MAX_QUOTED_VALUES).collect::<Vec<_>>().join(" and ")
}

const MAX_QUOTED_CHARS: usize = 64;
const MAX_QUOTED_VALUES: usize = 3;

/// What a server appends to the key (RFC 6455, 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

#[cfg(test)]
mod tests;
