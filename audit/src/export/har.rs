//! Requests as an HTTP Archive 1.2.
//!
//! Headers, cookies and bodies are empty: the log has none. The decision is in
//! members that begin with `_`, as the format provides for.

use serde_json::{Value, json};

use super::ExportOutcome;
use super::fields::{EventFields, object};
use crate::event::EventKind;
use crate::line;
use crate::time::Millis;

pub(super) fn prologue(out: &mut Vec<u8>) {
    let version = env!("CARGO_PKG_VERSION");
    let head = format!(
        r#"{{"log":{{"version":"1.2","creator":{{"name":"sluice","version":"{version}"}},"entries":["#
    );
    out.extend_from_slice(head.as_bytes());
}

pub(super) fn epilogue(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\n]}}\n");
}

pub(super) fn entry(mut fields: EventFields, first: bool, out: &mut Vec<u8>) -> ExportOutcome {
    if fields.kind != EventKind::Request {
        return ExportOutcome::LeftOut;
    }
    out.extend_from_slice(if first { b"\n" } else { b",\n" });
    let url = fields.url().unwrap_or_default();
    let total = fields.peek_f64("sluice.timing.total_ms").unwrap_or(0.0);
    let timings = timings(&fields, total);
    let version = match fields.peek_str("network.protocol.version") {
        Some(version) => format!("HTTP/{version}"),
        None => String::new(),
    };
    let query = pairs(fields.peek_str("url.query").unwrap_or_default());
    let sent = number_or(fields.take("sluice.bytes.sent"), -1);
    let received = number_or(fields.take("sluice.bytes.received"), -1);
    let request = json!({
        "method": text_or_empty(fields.take("http.request.method")),
        "url": url,
        "httpVersion": version,
        "cookies": [],
        "headers": [],
        "queryString": query,
        "headersSize": -1,
        "bodySize": sent,
    });
    let response = json!({
        // No answer is 0, by the custom of browsers.
        "status": number_or(fields.take("http.response.status_code"), 0),
        "statusText": "",
        "httpVersion": version,
        "cookies": [],
        "headers": [],
        "content": {"size": received, "mimeType": ""},
        "redirectURL": "",
        "headersSize": -1,
        "bodySize": received,
    });
    let entry = object([
        ("startedDateTime", started(&fields, total).into()),
        ("time", total.into()),
        ("request", request),
        ("response", response),
        ("cache", json!({})),
        ("timings", timings),
        ("serverIPAddress", fields.take("network.peer.address")),
        ("connection", fields.take("sluice.connection")),
        ("_id", fields.take("id")),
        ("_run", fields.take("run")),
        ("_outcome", fields.take("sluice.outcome")),
        ("_verdict", fields.take("sluice.verdict")),
        ("_rule", fields.take("sluice.rule")),
        ("_reason", fields.take("sluice.reason")),
        ("_error", fields.take("error.type")),
    ]);
    line::write_json(&entry, out);
    ExportOutcome::Written
}

/// A closing line bears the time of its end.
fn started(fields: &EventFields, total: f64) -> String {
    let end = fields.time.timestamp();
    let length = Millis::from(std::time::Duration::from_secs_f64((total / 1000.0).max(0.0)));
    let start = end.checked_sub(length.duration()).unwrap_or(end);
    crate::Time::from(start).to_string()
}

/// The phases, which add up to the whole; what did not happen is -1.
fn timings(fields: &EventFields, total: f64) -> Value {
    let phase = |name: &str| fields.peek_f64(&format!("sluice.timing.{name}_ms"));
    let blocked = phase("decide").unwrap_or(0.0) + phase("hold").unwrap_or(0.0);
    let (dns, connect, ssl) = (phase("resolve"), phase("connect"), phase("tls"));
    let set_up = blocked + dns.unwrap_or(0.0) + connect.unwrap_or(0.0) + ssl.unwrap_or(0.0);
    let first_byte = phase("first_byte").unwrap_or(total);
    // HAR counts TLS as part of connecting.
    let connect = connect.map(|connect| connect + ssl.unwrap_or(0.0));
    json!({
        "blocked": blocked,
        "dns": dns.unwrap_or(-1.0),
        "connect": connect.unwrap_or(-1.0),
        "ssl": ssl.unwrap_or(-1.0),
        "send": 0.0,
        "wait": (first_byte - set_up).max(0.0),
        "receive": (total - first_byte).max(0.0),
    })
}

fn pairs(query: &str) -> Vec<Value> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            json!({"name": name, "value": value})
        })
        .collect()
}

fn text_or_empty(value: Value) -> Value {
    if value.is_string() { value } else { Value::from("") }
}

fn number_or(value: Value, otherwise: i64) -> Value {
    if value.is_number() { value } else { Value::from(otherwise) }
}
