//! What a sandbox is told when we say no.
//!
//! Every error that ends a request or a connection is turned into a reply here
//! and nowhere else, so this file is the complete list of what a sandbox can
//! learn from a refusal. Causes go to the audit log; the reply names the rule or
//! the kind of failure, never an internal address or path.
//!
//! A [`Reply`] is the same for every protocol. [`Reply::wire`] spells it for
//! HTTP/1.1, HTTP/2 and gRPC alike; SOCKS and TLS have only a code to say it in.

mod blanket;
#[cfg(test)]
mod page;
mod reply;
#[cfg(test)]
mod tests;

use std::time::Duration;

use audit::{EntryOutcome, Name, Unavailable};
use policies::{AuthorityError, HostError, MethodError, PathError, PathFault};

use crate::denial::Denial;
use crate::dial::DialError;
use crate::http1_codec::head::HeadFault;
use crate::limits::{LimitKind, LimitReached};
use crate::websocket::WebSocketFault;

pub(crate) use blanket::BlanketRefusal;
pub(crate) use reply::{HttpReply, Reply};

/// Why something ends before it is done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// It can be read in two ways, and the upstream may read it the other way.
    #[error("{0}")]
    Ambiguous(String),
    #[error("nothing can be recorded: {0}")]
    AuditUnavailable(#[from] Unavailable),
    #[error("{0}")]
    BadAuthority(#[from] AuthorityError),
    #[error("{0}")]
    BadName(HostError),
    #[error("the body is longer than the {limit} bytes one request may have")]
    BodyTooLarge { limit: u64 },
    #[error("{0}")]
    BudgetSpent(LimitReached),
    #[error("it lasted longer than the {limit:?} it may")]
    CapReached { limit: Duration },
    /// The client is gone, so it cannot be told.
    #[error("the client closed the connection: {0}")]
    ClientGone(String),
    #[error("a tunnel cannot be asked for inside a connection")]
    ConnectInside,
    #[error("{0}")]
    Dial(#[from] DialError),
    #[error("the TLS handshake with the client failed: {0}")]
    HandshakeFailed(String),
    #[error("the head is longer than the {limit} bytes it may be")]
    HeadTooLarge { limit: usize },
    #[error("nothing moved for {limit:?}")]
    Idle { limit: Duration },
    #[error("{0}")]
    Malformed(String),
    #[error("{0}")]
    Method(MethodError),
    #[error("the connection is for `{admitted}`, and `{named}` was asked for")]
    NameMismatch { admitted: String, named: String },
    #[error("the connection does not say whom it is for")]
    NoServerName,
    #[error("the client did not say what it wants within {limit:?}")]
    OpeningTimeout { limit: Duration },
    #[error("{0}")]
    Path(#[from] PathError),
    #[error("{0}")]
    Policy(Denial),
    #[error("a policy was loaded that treats this connection differently")]
    PolicyChanged,
    #[error("{0}")]
    RateLimited(LimitReached),
    #[error("the connection is not opened, so its name must be readable: {0}")]
    Passthrough(&'static str),
    #[error("TRACE echoes what we send, so it is never sent")]
    Trace,
    #[error("the upstream closed the connection: {0}")]
    UpstreamClosed(String),
    #[error("the upstream's answer is not HTTP we can vouch for: {0}")]
    UpstreamMalformed(String),
    #[error("the upstream did not answer within {limit:?}")]
    UpstreamSilent { limit: Duration },
    #[error("what the upstream sent is not a WebSocket: {0}")]
    UpstreamWebSocket(WebSocketFault),
    #[error("what the client sent is not a WebSocket: {0}")]
    WebSocket(WebSocketFault),
}

impl Refusal {
    /// Stable and documented: agents branch on it.
    pub(crate) fn code(&self) -> &'static str {
        self.status_and_code().1
    }

    pub(crate) fn status(&self) -> u16 {
        self.status_and_code().0
    }

    /// The status and the code, side by side: the whole table.
    fn status_and_code(&self) -> (u16, &'static str) {
        match self {
            Self::Ambiguous(_) => (400, "ambiguous"),
            Self::AuditUnavailable(_) => (503, "audit_unavailable"),
            Self::BadAuthority(_) => (400, "bad_authority"),
            Self::BadName(_) => (400, "bad_authority"),
            Self::BodyTooLarge { .. } => (413, "body_too_large"),
            Self::BudgetSpent(_) => (403, "budget_spent"),
            Self::CapReached { .. } => (403, "cap_reached"),
            Self::ClientGone(_) => (400, "client_gone"),
            Self::ConnectInside => (403, "denied"),
            Self::Dial(err) => (err.status(), err.code()),
            Self::HandshakeFailed(_) => (400, "handshake_failed"),
            Self::HeadTooLarge { .. } => (431, "head_too_large"),
            Self::Idle { .. } => (408, "idle"),
            Self::Malformed(_) => (400, "malformed"),
            Self::Method(_) => (403, "denied"),
            Self::NameMismatch { .. } => (421, "name_mismatch"),
            Self::NoServerName => (400, "no_server_name"),
            Self::OpeningTimeout { .. } => (408, "opening_timeout"),
            Self::Path(err) => (400, path_code(err.fault())),
            Self::Policy(denial) => (403, denial.code),
            Self::PolicyChanged => (403, "denied"),
            Self::RateLimited(_) => (429, "rate_limited"),
            Self::Passthrough(_) => (403, "sealed_name_unreadable"),
            Self::Trace => (403, "denied"),
            Self::UpstreamClosed(_) => (502, "upstream_unreachable"),
            Self::UpstreamMalformed(_) => (502, "upstream_malformed"),
            Self::UpstreamSilent { .. } => (504, "upstream_timeout"),
            Self::UpstreamWebSocket(_) => (502, "upstream_malformed"),
            Self::WebSocket(_) => (400, "websocket_malformed"),
        }
    }

    pub(crate) fn rule(&self) -> Option<&Name> {
        match self {
            Self::Policy(denial) => denial.rule.as_ref(),
            _ => None,
        }
    }

    /// What a record says of it: whatever we refuse, we deny.
    pub(crate) fn verdict(&self) -> Option<audit::VerdictRecord> {
        match self {
            Self::Policy(denial) => Some(denial.verdict),
            _ if self.outcome() == EntryOutcome::Refused => Some(audit::VerdictRecord::Deny),
            _ => None,
        }
    }

    /// Whether a WebSocket ended because of what one side sent over it.
    pub(crate) fn is_websocket_violation(&self) -> bool {
        matches!(self, Self::UpstreamWebSocket(_) | Self::WebSocket(_))
    }

    /// Whether we said no, or something broke.
    pub(crate) fn outcome(&self) -> EntryOutcome {
        match self {
            Self::ClientGone(_) | Self::Idle { .. } => EntryOutcome::Failed,
            _ if self.status() >= 500 => EntryOutcome::Failed,
            _ => EntryOutcome::Refused,
        }
    }

    /// The sentence in the reply. Upstream failures are told by kind: their
    /// cause may name an address on our side.
    fn detail(&self) -> String {
        match self {
            Self::AuditUnavailable(_) => {
                "The gateway cannot record requests, so it lets none pass.".to_owned()
            }
            Self::Dial(DialError::Forbidden { to, first }) => {
                format!("`{to}` resolves to a {} address, which may not be dialled", first.class)
            }
            Self::UpstreamClosed(_) => "The upstream closed the connection.".to_owned(),
            _ => self.to_string(),
        }
    }

    /// What a person could do about it.
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Policy(denial) => return denial.hint.clone(),
            Self::BudgetSpent(reached) => {
                format!("raise `net.limits.{}` in the policy", reached.limit)
            }
            Self::RateLimited(_) => {
                "wait, or raise `net.limits.requests_per_minute` in the policy".to_owned()
            }
            Self::BodyTooLarge { .. } => "raise `net.limits.body` in the policy".to_owned(),
            Self::NameMismatch { .. } => {
                "open a connection of its own to that host; each host is judged by itself"
                    .to_owned()
            }
            _ => return None,
        };
        Some(hint)
    }
}

impl From<Denial> for Refusal {
    fn from(denial: Denial) -> Self {
        Self::Policy(denial)
    }
}

impl From<LimitReached> for Refusal {
    fn from(reached: LimitReached) -> Self {
        match reached.limit {
            LimitKind::RequestsPerMinute => Self::RateLimited(reached),
            LimitKind::Download
            | LimitKind::HostUpload
            | LimitKind::Hosts
            | LimitKind::Upload
            | LimitKind::Urls
            | LimitKind::WildcardNames => Self::BudgetSpent(reached),
        }
    }
}

impl From<HeadFault> for Refusal {
    fn from(fault: HeadFault) -> Self {
        match fault {
            HeadFault::TooLong { limit } => Self::HeadTooLarge { limit },
            fault => Self::Malformed(fault.to_string()),
        }
    }
}

/// Spellings that servers read differently are ambiguous; the rest is wrong for
/// every server.
fn path_code(fault: PathFault) -> &'static str {
    match fault {
        PathFault::Backslash
        | PathFault::DotSegment
        | PathFault::DoubleEscape
        | PathFault::EmptySegment
        | PathFault::Encoding
        | PathFault::HiddenSegment
        | PathFault::Parameters
        | PathFault::Readings => "ambiguous",
        _ => "malformed",
    }
}
