//! Facts that several kinds of line share, grouped by what they are about.
//!
//! Every fact is optional because every step may be the one that fails: a
//! connection refused for its destination never had a TLS version.

use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::text::{Name, Text};
use crate::time::Millis;

/// Who asked, and through which door.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ClientRecord {
    #[serde(rename = "client.address", skip_serializing_if = "Option::is_none")]
    pub address: Option<Text<64>>,
    #[serde(rename = "client.port", skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(rename = "sluice.way_in", skip_serializing_if = "Option::is_none")]
    pub way_in: Option<WayIn>,
}

impl ClientRecord {
    /// A peer on the sandbox's side.
    pub fn new(peer: SocketAddr, way_in: WayIn) -> Self {
        Self {
            address: Some(format_args!("{}", peer.ip()).into()),
            port: Some(peer.port()),
            way_in: Some(way_in),
        }
    }
}

/// The listener a connection arrived at.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WayIn {
    CapturedHttp,
    CapturedHttps,
    /// A port beside 80 and 443.
    CapturedPort,
    Dns,
    Proxy,
    Socks5,
    /// The door of one host.
    Tcp,
}

/// Whom it was for, and which address was dialled for that.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct DestinationRecord {
    /// The canonical host name or address.
    #[serde(rename = "server.address", skip_serializing_if = "Option::is_none")]
    pub host: Option<Name>,
    #[serde(rename = "server.port", skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The one address that was checked and dialled.
    #[serde(rename = "network.peer.address", skip_serializing_if = "Option::is_none")]
    pub peer: Option<Text<64>>,
    #[serde(rename = "network.peer.port", skip_serializing_if = "Option::is_none")]
    pub peer_port: Option<u16>,
}

impl DestinationRecord {
    /// A destination that nothing has been dialled for yet.
    pub fn new(host: impl Into<Name>, port: u16) -> Self {
        Self { host: Some(host.into()), port: Some(port), ..Self::default() }
    }

    /// Notes the address that was dialled.
    pub fn dialled(&mut self, peer: &PeerRecord) {
        self.peer = Some(peer.address.clone());
        self.peer_port = Some(peer.port);
    }
}

/// An address that was dialled, as records spell it. It is made once for a connection
/// and cloned cheaply into the record of each of its requests.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PeerRecord {
    address: Text<64>,
    port: u16,
}

impl From<SocketAddr> for PeerRecord {
    fn from(peer: SocketAddr) -> Self {
        Self { address: format_args!("{}", peer.ip()).into(), port: peer.port() }
    }
}

/// What policy said, and why.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct DecisionRecord {
    #[serde(rename = "sluice.verdict", skip_serializing_if = "Option::is_none")]
    pub verdict: Option<VerdictRecord>,
    /// The rule that decided; none when no rule matched.
    #[serde(rename = "sluice.rule", skip_serializing_if = "Option::is_none")]
    pub rule: Option<Name>,
    /// The stable code, the one the sandbox is told too.
    #[serde(rename = "sluice.reason", skip_serializing_if = "Option::is_none")]
    pub reason: Option<Name>,
    /// A sentence for a person.
    #[serde(rename = "sluice.detail", skip_serializing_if = "Option::is_none")]
    pub detail: Option<Text>,
    /// The policy in force at that moment.
    #[serde(rename = "sluice.policy.hash", skip_serializing_if = "Option::is_none")]
    pub policy: Option<Name>,
}

/// The answer of policy.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictRecord {
    Allow,
    Ask,
    Deny,
    /// Let through in observe mode; policy would have denied it.
    WouldDeny,
}

impl VerdictRecord {
    /// The name in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
            Self::WouldDeny => "would_deny",
        }
    }
}

/// The text names no verdict.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is not a verdict; write one of: allow, ask, deny, would_deny")]
pub struct NotAVerdict(Text<64>);

/// ```
/// use audit::VerdictRecord;
///
/// assert_eq!("would_deny".parse(), Ok(VerdictRecord::WouldDeny));
/// assert!("denied".parse::<VerdictRecord>().is_err());
/// ```
impl FromStr for VerdictRecord {
    type Err = NotAVerdict;

    fn from_str(written: &str) -> Result<Self, NotAVerdict> {
        let mut all = [Self::Allow, Self::Ask, Self::Deny, Self::WouldDeny].into_iter();
        let named = all.find(|verdict| verdict.as_str() == written);
        named.ok_or_else(|| NotAVerdict(written.into()))
    }
}

/// One HTTP exchange, without headers and bodies.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Http {
    #[serde(rename = "http.request.method", skip_serializing_if = "Option::is_none")]
    pub method: Option<Text<64>>,
    #[serde(rename = "url.scheme", skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Text<16>>,
    #[serde(rename = "url.path", skip_serializing_if = "Option::is_none")]
    pub path: Option<crate::text::Long>,
    /// Without the `?`.
    #[serde(rename = "url.query", skip_serializing_if = "Option::is_none")]
    pub query: Option<crate::text::Long>,
    #[serde(rename = "http.response.status_code", skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// `http`, `websocket` or `grpc`.
    #[serde(rename = "network.protocol.name", skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Text<16>>,
    /// `1.0`, `1.1` or `2`.
    #[serde(rename = "network.protocol.version", skip_serializing_if = "Option::is_none")]
    pub version: Option<Text<16>>,
    #[serde(rename = "rpc.grpc.status_code", skip_serializing_if = "Option::is_none")]
    pub grpc_status: Option<u32>,
}

/// TLS as negotiated: with the sandbox on a connection's record, with the
/// upstream on a request's.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct NegotiatedTls {
    #[serde(rename = "tls.protocol.version", skip_serializing_if = "Option::is_none")]
    pub version: Option<Text<16>>,
    #[serde(rename = "tls.cipher", skip_serializing_if = "Option::is_none")]
    pub cipher: Option<Text<64>>,
    #[serde(rename = "tls.next_protocol", skip_serializing_if = "Option::is_none")]
    pub next_protocol: Option<Text<64>>,
    #[serde(rename = "tls.client.server_name", skip_serializing_if = "Option::is_none")]
    pub server_name: Option<Name>,
    #[serde(rename = "tls.resumed", skip_serializing_if = "Option::is_none")]
    pub resumed: Option<bool>,
    /// The certificate the server showed.
    #[serde(rename = "tls.server.hash.sha256", skip_serializing_if = "Option::is_none")]
    pub server_hash: Option<Digest>,
}

/// How much went each way, seen from the sandbox.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct TrafficRecord {
    #[serde(rename = "sluice.bytes.sent")]
    pub sent: u64,
    #[serde(rename = "sluice.bytes.received")]
    pub received: u64,
}

/// Where the time went, in milliseconds.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Timing {
    /// From begin to close; the entry fills it in.
    #[serde(rename = "sluice.timing.total_ms", skip_serializing_if = "Option::is_none")]
    pub total: Option<Millis>,
    #[serde(rename = "sluice.timing.decide_ms", skip_serializing_if = "Option::is_none")]
    pub decide: Option<Millis>,
    /// Waiting for a person.
    #[serde(rename = "sluice.timing.hold_ms", skip_serializing_if = "Option::is_none")]
    pub hold: Option<Millis>,
    #[serde(rename = "sluice.timing.resolve_ms", skip_serializing_if = "Option::is_none")]
    pub resolve: Option<Millis>,
    #[serde(rename = "sluice.timing.connect_ms", skip_serializing_if = "Option::is_none")]
    pub connect: Option<Millis>,
    #[serde(rename = "sluice.timing.tls_ms", skip_serializing_if = "Option::is_none")]
    pub tls: Option<Millis>,
    /// From begin to the first byte of the answer.
    #[serde(rename = "sluice.timing.first_byte_ms", skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<Millis>,
}

/// What went wrong, when something did that was not policy.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct FailureRecord {
    /// A stable code.
    #[serde(rename = "error.type", skip_serializing_if = "Option::is_none")]
    pub code: Option<Name>,
    #[serde(rename = "error.message", skip_serializing_if = "Option::is_none")]
    pub message: Option<Text>,
}

impl FailureRecord {
    /// A failure with its code and its cause.
    pub fn new(code: &'static str, cause: impl std::fmt::Display) -> Self {
        Self { code: Some(Text::constant(code)), message: Some(format_args!("{cause}").into()) }
    }
}

/// What was done with a connection that was admitted.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Handling {
    /// TLS opened, each request judged.
    Inspect,
    /// TLS not opened.
    Passthrough,
    /// Plain TCP relayed.
    Tcp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_read_as_it_is_called_and_written() {
        let all = ["allow", "ask", "deny", "would_deny"];
        for name in all {
            let verdict: VerdictRecord = name.parse().unwrap();
            assert_eq!(verdict.as_str(), name);
            assert_eq!(serde_json::to_string(&verdict).unwrap(), format!("\"{name}\""));
        }
        assert!("denied".parse::<VerdictRecord>().is_err());
    }
}
