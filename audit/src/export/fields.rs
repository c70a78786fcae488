//! An event as the flat list of fields it is.
//!
//! Exporting takes fields out by name, so what nobody took is what is left over:
//! a field added to the log later appears in the export without a change there.

use serde_json::{Map, Value};

use crate::event::EventKind;
use crate::search::FoundEvent;
use crate::time::Time;

#[derive(Debug)]
pub(super) struct EventFields {
    pub(super) kind: EventKind,
    pub(super) time: Time,
    map: Map<String, Value>,
}

impl EventFields {
    /// Reads a line, if it is a whole event of a kind we know.
    pub(super) fn read(found: &FoundEvent) -> Option<Self> {
        let event = found.event().ok()?;
        let map = serde_json::from_str(found.line()).ok()?;
        Some(Self { kind: event.what.kind(), time: event.time, map })
    }

    pub(super) fn peek(&self, name: &str) -> Option<&Value> {
        self.map.get(name)
    }

    pub(super) fn peek_str(&self, name: &str) -> Option<&str> {
        self.peek(name)?.as_str()
    }

    pub(super) fn peek_f64(&self, name: &str) -> Option<f64> {
        self.peek(name)?.as_f64()
    }

    /// Takes a field out; null if it is not there.
    pub(super) fn take(&mut self, name: &str) -> Value {
        self.map.remove(name).unwrap_or(Value::Null)
    }

    /// What nobody took.
    pub(super) fn rest(self) -> Map<String, Value> {
        self.map
    }

    /// The URL, as far as it is known. The log itself has no field for a whole URL,
    /// because a user name and password could be in it.
    pub(super) fn url(&self) -> Option<String> {
        let host = self.peek_str("server.address")?;
        let scheme = self.peek_str("url.scheme").unwrap_or("https");
        let mut url = match host.contains(':') {
            true => format!("{scheme}://[{host}]"),
            false => format!("{scheme}://{host}"),
        };
        let usual = if scheme == "http" { 80 } else { 443 };
        if let Some(port) = self.peek("server.port").and_then(Value::as_u64)
            && port != usual
        {
            url.push_str(&format!(":{port}"));
        }
        url.push_str(self.peek_str("url.path").unwrap_or("/"));
        if let Some(query) = self.peek_str("url.query") {
            url.push('?');
            url.push_str(query);
        }
        Some(url)
    }
}

/// An object of the members that are there.
pub(super) fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    let present = members.into_iter().filter(|(_, value)| !value.is_null());
    let map: Map<String, Value> = present.map(|(name, value)| (name.to_owned(), value)).collect();
    if map.is_empty() { Value::Null } else { Value::Object(map) }
}
