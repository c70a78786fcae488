//! Events as rows, for spreadsheets.
//!
//! A cell that begins with `=`, `+`, `-` or `@` is a formula to a spreadsheet,
//! and a sandbox chooses paths. Such a cell gets a `'` in front. Numbers are ours
//! and stay numbers.

use serde_json::Value;

use super::ExportOutcome;
use super::fields::EventFields;
use crate::line;

/// The log's own names, in an order a person reads in.
const COLUMNS: [&str; 30] = [
    "seq",
    "time",
    "run",
    "kind",
    "id",
    "sluice.outcome",
    "sluice.verdict",
    "sluice.rule",
    "sluice.reason",
    "sluice.detail",
    "http.request.method",
    "url.scheme",
    "server.address",
    "server.port",
    "url.path",
    "url.query",
    "http.response.status_code",
    "dns.question.name",
    "dns.question.type",
    "network.protocol.name",
    "client.address",
    "network.peer.address",
    "sluice.bytes.sent",
    "sluice.bytes.received",
    "sluice.timing.total_ms",
    "sluice.action",
    "user.name",
    "error.type",
    "error.message",
    "sluice.policy.hash",
];

pub(super) fn header(out: &mut Vec<u8>) {
    out.extend_from_slice(COLUMNS.join(",").as_bytes());
    out.extend_from_slice(b"\r\n");
}

pub(super) fn row(fields: &EventFields, out: &mut Vec<u8>) -> ExportOutcome {
    for (index, column) in COLUMNS.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        match fields.peek(column) {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => cell(text, out),
            Some(number) => out.extend_from_slice(number.to_string().as_bytes()),
        }
    }
    out.extend_from_slice(b"\r\n");
    ExportOutcome::Written
}

fn cell(text: &str, out: &mut Vec<u8>) {
    let mut spelled = Vec::new();
    line::spell_out(text, &mut spelled);
    if matches!(spelled.first(), Some(b'=' | b'+' | b'-' | b'@')) {
        spelled.insert(0, b'\'');
    }
    if !spelled.iter().any(|byte| matches!(byte, b',' | b'"')) {
        out.extend_from_slice(&spelled);
        return;
    }
    out.push(b'"');
    for byte in spelled {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}
