//! A refusal as it is sent, in the spelling of each protocol.

use std::fmt::Write as _;

use audit::{Log, Name, Ticket};
use serde::Serialize;
use uuid::Uuid;

use super::Refusal;

/// A refusal, ready to be sent. The same for every protocol.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a refusal that is not sent leaves the client waiting"]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Stable and documented: agents branch on it.
    pub(crate) code: &'static str,
    pub(crate) rule: Option<Name>,
    pub(crate) detail: Box<str>,
    pub(crate) hint: Option<Box<str>>,
    pub(crate) request_id: Uuid,
    /// Seconds after which trying again may help.
    pub(crate) retry_after: Option<u64>,
    /// How far the log has to be written before it is sent.
    pub(crate) recorded: Ticket,
}

/// A reply as HTTP, of whichever version.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    /// Lower-case names, without `content-length`.
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

/// The members of `application/problem+json` (RFC 9457), ours after the first four.
#[derive(Serialize)]
struct ProblemJson<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    request_id: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

impl Reply {
    pub(crate) fn new(refusal: &Refusal, request_id: Uuid) -> Self {
        let retry_after = match refusal {
            // Rounded up: a retry one second early is refused again.
            Refusal::RateLimited(reached) => reached.retry_after.map(|wait| wait.as_secs() + 1),
            _ => None,
        };
        Self {
            status: refusal.status(),
            code: refusal.code(),
            rule: refusal.rule().cloned(),
            detail: refusal.detail().into(),
            hint: refusal.hint().map(String::into_boxed_str),
            request_id,
            retry_after,
            recorded: Ticket::default(),
        }
    }

    /// The reply once it may be sent: its record is written. If it never will be,
    /// the client is told that nothing can be recorded.
    pub(crate) async fn once_recorded(self, log: &Log) -> Self {
        match log.written(self.recorded).await {
            Ok(()) => self,
            Err(why) => Self::new(&why.into(), self.request_id),
        }
    }

    /// A reply to something there is no record of, because none could be begun.
    pub(crate) fn unrecorded(refusal: &Refusal) -> Self {
        Self::new(refusal, Uuid::nil())
    }

    /// Spells the reply: a gRPC client reads `grpc-status`, everybody else the
    /// problem document.
    pub(crate) fn wire(&self, grpc: bool) -> HttpReply {
        let mut headers = Vec::with_capacity(8);
        let (status, body) = if grpc {
            headers.push(("content-type", "application/grpc".to_owned()));
            headers.push(("grpc-status", self.grpc_status().to_string()));
            headers.push(("grpc-message", percent_encoded(&self.sentence())));
            (200, Vec::new())
        } else {
            headers.push(("content-type", "application/problem+json".to_owned()));
            (self.status, self.problem())
        };
        headers.push(("cache-control", "no-store".to_owned()));
        headers.push(("x-sluice-code", self.code.to_owned()));
        if let Some(rule) = &self.rule {
            headers.push(("x-sluice-rule", header_safe(rule.as_str())));
        }
        headers.push(("x-sluice-request-id", self.request_id.to_string()));
        if let Some(seconds) = self.retry_after {
            headers.push(("retry-after", seconds.to_string()));
        }
        HttpReply { status, headers, body }
    }

    /// What stands beside the status of an HTTP/1.1 reply. Clients print it for a
    /// refused CONNECT, whose body many of them drop.
    pub(crate) fn reason_phrase(&self) -> String {
        format!("{} ({})", self.title(), self.code)
    }

    fn problem(&self) -> Vec<u8> {
        let problem = ProblemJson {
            r#type: "about:blank",
            title: self.title(),
            status: self.status,
            detail: &self.detail,
            code: self.code,
            rule: self.rule.as_ref().map(Name::as_str),
            request_id: self.request_id,
            hint: self.hint.as_deref(),
        };
        let mut body = serde_json::to_vec(&problem).expect("strings and numbers always serialize");
        body.push(b'\n');
        body
    }

    fn title(&self) -> &'static str {
        match self.status {
            403 => "Refused by policy",
            413 => "Body too large",
            421 => "Misdirected request",
            429 => "Too many requests",
            431 => "Head too large",
            502 => "Upstream failed",
            503 => "Gateway unavailable",
            504 => "Upstream timed out",
            _ => "Bad request",
        }
    }

    /// One line for protocols that have room for one.
    fn sentence(&self) -> String {
        let mut line = format!("{} ({})", self.detail, self.code);
        if let Some(hint) = &self.hint {
            write!(line, "; {hint}").expect("writing to a string cannot fail");
        }
        line
    }

    fn grpc_status(&self) -> u8 {
        match self.status {
            403 => 7,             // PERMISSION_DENIED
            413 | 429 | 431 => 8, // RESOURCE_EXHAUSTED
            502 | 503 => 14,      // UNAVAILABLE
            408 | 504 => 4,       // DEADLINE_EXCEEDED
            _ => 3,               // INVALID_ARGUMENT
        }
    }
}

/// As gRPC wants its messages: printable ASCII but `%` plain, the rest escaped.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | 0..0x20 | 0x7f.. => {
                write!(encoded, "%{byte:02X}").expect("writing to a string cannot fail");
            }
            _ => encoded.push(char::from(byte)),
        }
    }
    encoded
}

/// A rule's name is its author's; a header takes only some of what they may write.
fn header_safe(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}
