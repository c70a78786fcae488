//! What a gateway answers on its control socket.

use serde::{Deserialize, Serialize};

/// How a gateway stands.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Status {
    pub run: String,
    pub version: String,
    pub uptime_seconds: u64,
    /// It takes connections, and can record them.
    pub ready: bool,
    pub draining: bool,
    pub listening: Vec<Listening>,
    pub policy: PolicyStatus,
    pub counts: Counts,
    pub audit: AuditStatus,
}

/// One socket that the sandbox can reach.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Listening {
    /// `proxy`, `socks`, `http`, `https`, `dns/udp`, `dns/tcp`, `port:8443` for a
    /// further port, or `tcp:db.example:5432` for a host with a door of its own.
    pub way: String,
    pub address: String,
}

/// The policy in force.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PolicyStatus {
    pub name: String,
    /// The file that a reload reads.
    pub file: String,
    pub hash: String,
    pub generation: u64,
    pub rules: usize,
    /// What no rule names is let pass and recorded.
    pub observing: bool,
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Counts {
    pub requests: u64,
    /// Of these, the ones that did not pass.
    #[serde(default)]
    pub refused: u64,
    /// Now, not since the start.
    pub open_connections: u32,
    pub uploaded: u64,
    pub downloaded: u64,
}

/// Whether what happens can be recorded.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct AuditStatus {
    pub available: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why_not: Option<String>,
    pub written: u64,
    pub unwritten: u64,
}

/// A policy took effect.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Reloaded {
    pub name: String,
    pub hash: String,
    pub generation: u64,
}

/// Requests that wait for a person.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Holds {
    pub holds: Vec<serde_json::Value>,
}

/// One thing that is wrong with a policy that was to be loaded.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct PolicyProblem {
    pub source: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub column: Option<usize>,
    /// Such as `net.allow[2].host`.
    pub path: String,
    pub message: String,
    /// The same for a person: with the line quoted, and the place underlined.
    pub text: String,
}

/// What is sent when an action was not carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RefusedAction {
    pub code: String,
    pub detail: String,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub problems: Vec<PolicyProblem>,
}
