//! Events in the Open Cybersecurity Schema Framework, one object a line.
//!
//! | kind | class |
//! |---|---|
//! | `request` | HTTP Activity, 4002 |
//! | `dns` | DNS Activity, 4003 |
//! | `connection` | Network Activity, 4001 |
//! | `finding` | Detection Finding, 2004 |
//!
//! The others are left out. An `opened` line is, because its closing line says
//! the same and more.

use serde_json::{Value, json};

use super::ExportOutcome;
use super::fields::{EventFields, object};
use crate::event::EventKind;
use crate::line;

/// Every attribute used here exists in this version and in the later ones.
const VERSION: &str = "1.3.0";

pub(super) fn event(mut fields: EventFields, out: &mut Vec<u8>) -> ExportOutcome {
    let (class, own) = match fields.kind {
        EventKind::Connection => (&NETWORK, network(&mut fields)),
        EventKind::Dns => (&DNS, dns(&mut fields)),
        EventKind::Finding => (&FINDING, finding(&mut fields)),
        EventKind::Request => (&HTTP, http(&mut fields)),
        EventKind::Hold
        | EventKind::Limit
        | EventKind::LogClosed
        | EventKind::LogResumed
        | EventKind::LogStarted
        | EventKind::Opened
        | EventKind::Operator
        | EventKind::PolicyLoaded
        | EventKind::PolicyRefused
        | EventKind::Recovered
        | EventKind::RunEnded
        | EventKind::RunStarted
        | EventKind::SegmentStarted => return ExportOutcome::LeftOut,
    };
    let mut whole = common(&mut fields, class, own.activity);
    // Taken by now, or of no use outside the log.
    for name in ["v", "kind", "time", "prev"] {
        fields.take(name);
    }
    if let (Value::Object(whole), Value::Object(own)) = (&mut whole, own.members) {
        whole.extend(own);
        let rest = fields.rest();
        if !rest.is_empty() {
            whole.insert("unmapped".to_owned(), Value::Object(rest));
        }
    }
    line::write_json(&whole, out);
    out.push(b'\n');
    ExportOutcome::Written
}

struct OcsfClass {
    category: u64,
    category_name: &'static str,
    uid: u64,
    name: &'static str,
}

const NETWORK: OcsfClass = OcsfClass {
    category: 4,
    category_name: "Network Activity",
    uid: 4001,
    name: "Network Activity",
};
const HTTP: OcsfClass = OcsfClass { uid: 4002, name: "HTTP Activity", ..NETWORK };
const DNS: OcsfClass = OcsfClass { uid: 4003, name: "DNS Activity", ..NETWORK };
const FINDING: OcsfClass =
    OcsfClass { category: 2, category_name: "Findings", uid: 2004, name: "Detection Finding" };

/// What a class adds to what all have.
struct ClassFields {
    activity: (u64, Option<String>),
    members: Value,
}

fn common(fields: &mut EventFields, class: &OcsfClass, activity: (u64, Option<String>)) -> Value {
    let (activity, activity_name) = activity;
    let verdict = fields.take("sluice.verdict");
    let outcome = fields.take("sluice.outcome");
    let (disposition, action) = disposition(verdict.as_str(), outcome.as_str());
    let severity = match class.uid {
        2004 => 4,
        _ if disposition == 2 => 2,
        _ => 1,
    };
    let status = match outcome.as_str() {
        Some("relayed") => 1,
        Some(_) => 2,
        None => 0,
    };
    let metadata = object([
        ("version", VERSION.into()),
        ("product", json!({"name": "Sluice", "vendor_name": "Sluice"})),
        ("profiles", json!(["security_control"])),
        ("uid", fields.take("id")),
        ("sequence", fields.take("seq")),
        ("correlation_uid", fields.take("run")),
    ]);
    let rule = object([("uid", fields.take("sluice.rule"))]);
    let policy = object([("uid", fields.take("sluice.policy.hash"))]);
    // Where something broke, that is the status; policy's words stay unmapped.
    let (code, detail) = match fields.peek("error.type") {
        Some(_) => ("error.type", "error.message"),
        None => ("sluice.reason", "sluice.detail"),
    };
    let (code, detail) = (fields.take(code), fields.take(detail));
    object([
        ("activity_id", activity.into()),
        ("activity_name", activity_name.into()),
        ("category_uid", class.category.into()),
        ("category_name", class.category_name.into()),
        ("class_uid", class.uid.into()),
        ("class_name", class.name.into()),
        ("type_uid", (class.uid * 100 + activity).into()),
        ("time", fields.time.timestamp().as_millisecond().into()),
        ("severity_id", severity.into()),
        ("status_id", status.into()),
        ("status", outcome),
        ("status_code", code),
        ("status_detail", detail),
        ("action_id", action.into()),
        ("disposition_id", disposition.into()),
        ("disposition", verdict),
        ("firewall_rule", rule),
        ("policy", policy),
        ("metadata", metadata),
    ])
}

/// `disposition_id` and `action_id` of the security control profile.
fn disposition(verdict: Option<&str>, outcome: Option<&str>) -> (u64, u64) {
    match (verdict, outcome) {
        // Held, then let through: approved.
        (Some("ask"), Some("relayed")) => (8, 1),
        (Some("deny"), _) | (_, Some("refused")) => (2, 2),
        // Let through in observe mode, and noted.
        (Some("would_deny"), _) => (15, 1),
        (_, Some("failed")) => (27, 1),
        (Some("allow"), _) | (_, Some("relayed")) => (1, 1),
        _ => (0, 0),
    }
}

fn http(fields: &mut EventFields) -> ClassFields {
    let url_string = fields.url();
    let hostname = fields.peek_str("server.address").map(str::to_owned);
    let port = fields.peek("server.port").cloned().unwrap_or_default();
    let method = fields.take("http.request.method");
    let activity = match method.as_str() {
        Some("CONNECT") => (1, None),
        Some("DELETE") => (2, None),
        Some("GET") => (3, None),
        Some("HEAD") => (4, None),
        Some("OPTIONS") => (5, None),
        Some("POST") => (6, None),
        Some("PUT") => (7, None),
        Some("TRACE") => (8, None),
        Some(other) => (99, Some(other.to_owned())),
        None => (0, None),
    };
    let url = object([
        ("url_string", url_string.into()),
        ("scheme", fields.take("url.scheme")),
        ("hostname", hostname.into()),
        ("port", port),
        ("path", fields.take("url.path")),
        ("query_string", fields.take("url.query")),
    ]);
    let request = object([
        ("http_method", method),
        ("url", url),
        ("version", fields.take("network.protocol.version")),
    ]);
    let status = fields.take("http.response.status_code");
    let response = if status.is_null() { Value::Null } else { json!({ "code": status }) };
    let members = object([
        ("http_request", request),
        ("http_response", response),
        ("src_endpoint", source(fields)),
        ("dst_endpoint", destination(fields)),
        ("tls", tls(fields)),
        ("traffic", traffic(fields)),
        ("duration", duration(fields)),
    ]);
    ClassFields { activity, members }
}

fn network(fields: &mut EventFields) -> ClassFields {
    let activity = match fields.peek_str("sluice.outcome") {
        Some("relayed") => (2, None),
        Some("failed") => (4, None),
        Some("refused") => (5, None),
        Some(other) => (99, Some(other.to_owned())),
        None => (0, None),
    };
    let transport = object([("protocol_name", fields.take("network.transport"))]);
    let members = object([
        ("connection_info", transport),
        ("src_endpoint", source(fields)),
        ("dst_endpoint", destination(fields)),
        ("tls", tls(fields)),
        ("traffic", traffic(fields)),
        ("duration", duration(fields)),
    ]);
    ClassFields { activity, members }
}

fn dns(fields: &mut EventFields) -> ClassFields {
    let query = object([
        ("hostname", fields.take("dns.question.name")),
        ("type", fields.take("dns.question.type")),
    ]);
    let transport = object([("protocol_name", fields.take("network.transport"))]);
    let members = object([
        ("query", query),
        ("rcode", fields.take("dns.response_code")),
        ("connection_info", transport),
        ("src_endpoint", source(fields)),
        ("duration", duration(fields)),
    ]);
    ClassFields { activity: (1, None), members }
}

fn finding(fields: &mut EventFields) -> ClassFields {
    let sighting = fields.take("sluice.finding.type");
    let title = match sighting.as_str() {
        Some("canary") => "A canary in outgoing traffic",
        Some("secret") => "A secret in outgoing traffic",
        _ => "Something shaped like a credential in outgoing traffic",
    };
    let info = object([
        ("uid", fields.peek("id").cloned().unwrap_or_default()),
        ("title", title.into()),
        ("types", json!([sighting])),
    ]);
    let evidence = object([("dst_endpoint", destination(fields))]);
    let members = object([
        ("finding_info", info),
        ("evidences", if evidence.is_null() { Value::Null } else { json!([evidence]) }),
    ]);
    ClassFields { activity: (1, None), members }
}

fn source(fields: &mut EventFields) -> Value {
    object([("ip", fields.take("client.address")), ("port", fields.take("client.port"))])
}

fn destination(fields: &mut EventFields) -> Value {
    object([
        ("hostname", fields.take("server.address")),
        ("port", fields.take("server.port")),
        ("ip", fields.take("network.peer.address")),
    ])
}

fn tls(fields: &mut EventFields) -> Value {
    object([
        ("version", fields.take("tls.protocol.version")),
        ("cipher", fields.take("tls.cipher")),
        ("sni", fields.take("tls.client.server_name")),
        ("alpn", fields.take("tls.next_protocol")),
    ])
}

fn traffic(fields: &mut EventFields) -> Value {
    object([
        ("bytes_out", fields.take("sluice.bytes.sent")),
        ("bytes_in", fields.take("sluice.bytes.received")),
    ])
}

/// Whole milliseconds, as the schema has it.
fn duration(fields: &mut EventFields) -> Value {
    match fields.take("sluice.timing.total_ms").as_f64() {
        Some(millis) => (millis.round() as u64).into(),
        None => Value::Null,
    }
}
