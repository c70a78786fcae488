//! What is looked for, and whether a line is it.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use uuid::Uuid;

use crate::event::{EventKind, VerdictRecord};
use crate::line::{self, LineError};
use crate::text::Text;
use crate::time::Time;

/// What is looked for: an event fits when it fits every part that is given.
#[derive(Clone, Debug, Default)]
pub struct SearchQuery {
    /// At this time or later.
    pub since: Option<Time>,
    /// Before this time.
    pub until: Option<Time>,
    pub run: Option<String>,
    /// Both lines of one entry.
    pub id: Option<Uuid>,
    /// Whom it was for, or the name that was asked of DNS.
    pub host: Option<HostFilter>,
    pub verdict: Option<VerdictRecord>,
    pub rule: Option<String>,
    pub reason: Option<String>,
    pub method: Option<String>,
    pub status: Option<StatusFilter>,
    /// One of these; empty means any.
    pub kinds: Vec<EventKind>,
    /// At least so many bytes left the sandbox.
    pub min_sent: Option<u64>,
    /// At least so many bytes came to it.
    pub min_received: Option<u64>,
    /// Words in any field, upper and lower case as written.
    pub text: Option<String>,
}

/// A host, or every host below a domain.
///
/// ```
/// use audit::search::HostFilter;
///
/// let below: HostFilter = "*.GitHub.com".parse().unwrap();
/// assert!(below.fits("api.github.com") && !below.fits("github.com"));
/// assert!("api.*.com".parse::<HostFilter>().is_err());
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HostFilter {
    /// With its leading dot, if it is a domain whose hosts are meant.
    name: String,
    below: bool,
}

/// The text names no hosts.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` names no hosts: write `api.example.com`, or `*.example.com` for all below")]
pub struct NotAHostFilter(Text<256>);

impl FromStr for HostFilter {
    type Err = NotAHostFilter;

    fn from_str(written: &str) -> Result<Self, NotAHostFilter> {
        let lower = written.to_ascii_lowercase();
        let (name, below) = match lower.strip_prefix('*') {
            Some(domain) => (domain, true),
            None => (lower.as_str(), false),
        };
        let dotted = name.starts_with('.');
        if name.is_empty() || name.contains('*') || dotted != below || name == "." {
            return Err(NotAHostFilter(written.into()));
        }
        Ok(Self { name: name.to_owned(), below })
    }
}

impl HostFilter {
    /// Whether it names this host.
    pub fn fits(&self, host: &str) -> bool {
        if !self.below {
            return host == self.name;
        }
        host.strip_suffix(&self.name).is_some_and(|label| !label.is_empty())
    }
}

/// A status code, or a class of them.
///
/// ```
/// use audit::search::StatusFilter;
///
/// let refused: StatusFilter = "4xx".parse().unwrap();
/// assert!(refused.fits(403) && !refused.fits(200));
/// assert!("4x".parse::<StatusFilter>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StatusFilter {
    Class(u16),
    Exact(u16),
}

/// The text is no status.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is no status: write `404`, or `4xx` for the class")]
pub struct NotAStatusFilter(Text<64>);

impl FromStr for StatusFilter {
    type Err = NotAStatusFilter;

    fn from_str(written: &str) -> Result<Self, NotAStatusFilter> {
        let class = written.strip_suffix("xx").or_else(|| written.strip_suffix("XX"));
        let number = class.unwrap_or(written);
        let range = if class.is_some() { 1..=9 } else { 100..=999 };
        let shaped = number.bytes().all(|byte| byte.is_ascii_digit());
        match number.parse() {
            Ok(code) if shaped && range.contains(&code) => {
                Ok(if class.is_some() { Self::Class(code) } else { Self::Exact(code) })
            }
            Ok(_) | Err(_) => Err(NotAStatusFilter(written.into())),
        }
    }
}

impl StatusFilter {
    /// Whether it names this status.
    pub fn fits(self, status: u16) -> bool {
        match self {
            Self::Class(class) => status / 100 == class,
            Self::Exact(exact) => status == exact,
        }
    }
}

/// A query made ready.
#[derive(Debug)]
pub(super) struct LineFilter {
    query: SearchQuery,
    /// Bytes that every line that fits contains.
    needles: Vec<Finder<'static>>,
}

impl LineFilter {
    pub(super) fn new(query: &SearchQuery) -> Self {
        let mut needles = Vec::new();
        let mut needle = |bytes: &[u8]| needles.push(Finder::new(bytes).into_owned());
        let words = [&query.run, &query.rule, &query.reason, &query.method];
        for word in words.into_iter().flatten() {
            needle(&quoted(word));
        }
        if let Some(id) = query.id {
            needle(&quoted(&id.to_string()));
        }
        if let Some(verdict) = query.verdict {
            needle(&quoted(verdict.as_str()));
        }
        if let [kind] = query.kinds.as_slice() {
            needle(&quoted(kind.as_str()));
        }
        if let Some(host) = &query.host {
            // Without the quote after it, since DNS names may end in a dot; and
            // without the one before, where only the end of a name is given.
            let quoted = quoted(&host.name);
            let from = usize::from(host.below);
            needle(quoted.get(from..quoted.len() - 1).unwrap_or_default());
        }
        if let Some(text) = &query.text {
            let quoted = quoted(text);
            needle(quoted.get(1..quoted.len() - 1).unwrap_or_default());
        }
        Self { query: query.clone(), needles }
    }

    /// The line if it fits, nothing if it does not, and why if that cannot be said.
    pub(super) fn fits<'l>(&self, bytes: &'l [u8]) -> Result<Option<&'l str>, LineError> {
        if !self.needles.iter().all(|needle| needle.find(bytes).is_some()) {
            return Ok(None);
        }
        let not_ours = || LineError::NotAnEvent { why: Text::constant("not printable ASCII") };
        let line =
            std::str::from_utf8(bytes).ok().filter(|line| line::is_printable(line.as_bytes()));
        let line = line.ok_or_else(not_ours)?;
        let read = serde_json::from_str(line);
        let fields = line::of_known_version(read, |fields: &FilterFields<'_>| fields.v)?;
        Ok(self.fits_fields(&fields).then_some(line))
    }

    /// The words are compared as values here: in the bytes, a method's name may
    /// have been found in a path.
    fn fits_fields(&self, fields: &FilterFields<'_>) -> bool {
        let SearchQuery {
            since,
            until,
            run,
            id,
            host,
            verdict,
            rule,
            reason,
            method,
            status,
            kinds,
            min_sent,
            min_received,
            text: _,
        } = &self.query;
        let at_least = |least: &Option<u64>, found: Option<u64>| {
            least.is_none_or(|least| found.is_some_and(|found| found >= least))
        };
        let is = |wanted: &Option<String>, found: &Option<Borrowed<'_>>| match wanted {
            None => true,
            Some(wanted) => found.as_ref().is_some_and(|found| found.0 == wanted.as_str()),
        };
        let names = [&fields.host, &fields.question];
        since.is_none_or(|since| fields.time >= since)
            && until.is_none_or(|until| fields.time < until)
            && run.as_ref().is_none_or(|run| fields.run.0 == run.as_str())
            && id.is_none_or(|id| fields.id == id)
            && host.as_ref().is_none_or(|host| {
                names.into_iter().flatten().any(|name| host.fits(name.0.trim_end_matches('.')))
            })
            && verdict.is_none_or(|verdict| fields.verdict == Some(verdict))
            && is(rule, &fields.rule)
            && is(reason, &fields.reason)
            && is(method, &fields.method)
            && status.is_none_or(|status| fields.status.is_some_and(|found| status.fits(found)))
            && at_least(min_sent, fields.sent)
            && at_least(min_received, fields.received)
            && (kinds.is_empty() || kinds.iter().any(|kind| fields.kind.0 == kind.as_str()))
    }
}

/// A word as a line spells it, quotes included.
fn quoted(word: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    line::write_json(&word, &mut bytes);
    bytes
}

/// The fields that are filtered by, borrowed from the line.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct FilterFields<'a> {
    v: u32,
    time: Time,
    id: Uuid,
    #[serde(borrow)]
    run: Borrowed<'a>,
    #[serde(borrow)]
    kind: Borrowed<'a>,
    #[serde(borrow, rename = "server.address")]
    host: Option<Borrowed<'a>>,
    #[serde(borrow, rename = "dns.question.name")]
    question: Option<Borrowed<'a>>,
    #[serde(rename = "sluice.verdict")]
    verdict: Option<VerdictRecord>,
    #[serde(borrow, rename = "sluice.rule")]
    rule: Option<Borrowed<'a>>,
    #[serde(borrow, rename = "sluice.reason")]
    reason: Option<Borrowed<'a>>,
    #[serde(borrow, rename = "http.request.method")]
    method: Option<Borrowed<'a>>,
    #[serde(rename = "http.response.status_code")]
    status: Option<u16>,
    #[serde(rename = "sluice.bytes.sent")]
    sent: Option<u64>,
    #[serde(rename = "sluice.bytes.received")]
    received: Option<u64>,
}

/// A string that is copied only if it has escapes. (`Option<Cow<str>>` would
/// always copy.)
struct Borrowed<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Borrowed<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CowVisitor;

        impl<'de> Visitor<'de> for CowVisitor {
            type Value = Cow<'de, str>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(text))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(text.to_owned()))
            }
        }

        deserializer.deserialize_str(CowVisitor).map(Self)
    }
}
