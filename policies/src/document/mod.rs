//! A policy as written: the shape of `sandbox.policy.yaml`.
//!
//! These types say what may stand in the file and nothing else. The small ones
//! (hosts, methods, sizes, patterns) are already right when they exist; what
//! needs several fields to judge is checked on the way to a
//! [`Policy`](crate::Policy). The JSON Schema that editors use is made from
//! this folder, so every doc comment below is also help for whoever edits a
//! policy.

mod rule;

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::attachment::Attachment;
use crate::from_text::at_least_one;
use crate::glob::FileGlob;
use crate::host_pattern::HostPattern;
use crate::names::{HeaderName, PlainName, RelativePath, SandboxPath, SecretName};
use crate::units::{Cpus, Size, Span};
use crate::yaml::{Item, Spanned};
pub(crate) use rule::{OneOrMany, RuleFields, RuleProtocol, Unless, WrittenRule};

/// What a sandbox may do.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Sluice policy, version 1")]
pub struct PolicyDocument {
    /// The version of this language.
    pub version: LanguageVersion,
    /// What reports call this policy; the file's name if left out.
    #[serde(default)]
    pub name: Option<PlainName>,
    /// Presets (`github-read`) or files (`./team.policy.yaml`) whose rules and limits are added.
    #[serde(default)]
    pub extends: Vec<Spanned<String>>,
    #[serde(default)]
    pub fs: FsSection,
    #[serde(default)]
    pub proc: ProcSection,
    #[serde(default)]
    pub net: NetSection,
    /// Credentials that only the gateway knows, by name. The sandbox holds placeholders.
    #[serde(default)]
    pub secrets: BTreeMap<SecretName, Item<SecretSection>>,
    #[serde(default)]
    pub scan: ScanSection,
    #[serde(default)]
    pub approvals: ApprovalsSection,
    #[serde(default)]
    pub overrides: OverridesSection,
    /// Requests and the answers this policy must give; `sluice policy test` runs them.
    #[serde(default)]
    pub tests: Vec<Item<TestSection>>,
}

/// The version of the policy language. This program knows `1`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "u64")]
pub struct LanguageVersion;

impl TryFrom<u64> for LanguageVersion {
    type Error = String;

    fn try_from(number: u64) -> Result<Self, String> {
        match number {
            1 => Ok(Self),
            other => Err(format!("version {other} is not known; this program reads `version: 1`")),
        }
    }
}

impl JsonSchema for LanguageVersion {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Version".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "const": 1 })
    }
}

at_least_one!(
    /// How many. Zero would mean "nothing at all" to one reader and "no limit" to another.
    PositiveCount,
    u32 = "u32",
    "must be at least 1; leave it out for the default"
);

/// Files: what the sandbox sees of the project and what it may change.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FsSection {
    /// How the project appears at `/workspace`; `overlay` if left out.
    pub workspace: Option<Workspace>,
    /// Read-only paths in the project, beside `.git` and `scripts`, which always are.
    pub protect: Vec<RelativePath>,
    /// Files that the sandbox cannot read, such as `**/.env*`.
    pub deny: Vec<FileGlob>,
    /// Files that the sandbox may read although they usually hold credentials and are hidden,
    /// such as `.env.test`.
    pub show: Vec<FileGlob>,
    /// Further directories of the host.
    pub mounts: Vec<Spanned<MountSection>>,
    /// Files collected when the run ends, such as `dist/**`.
    pub artifacts: Vec<FileGlob>,
}

/// How the project appears in the sandbox.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd)]
#[serde(rename_all = "lowercase")]
// From the strictest to the widest, so that the smallest of several wins.
pub enum Workspace {
    /// Not at all.
    None,
    /// As it is, not to be changed.
    Readonly,
    /// Changes are kept apart until a person applies them.
    Overlay,
    /// Changes go straight to the host.
    Direct,
}

/// One directory of the host, and where the sandbox sees it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MountSection {
    /// The directory on the host, relative to this file.
    pub source: String,
    /// Where it appears, such as `/deps`.
    pub target: SandboxPath,
    /// `ro` if left out.
    #[serde(default)]
    pub mode: MountMode,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum MountMode {
    #[default]
    Ro,
    Rw,
}

/// Processes: how much of the machine a run may take.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProcSection {
    /// Processors, such as `2` or `0.5`.
    pub cpus: Option<Cpus>,
    /// Memory, such as `2GiB`.
    pub memory: Option<Size>,
    /// Processes and threads.
    pub pids: Option<PositiveCount>,
    /// What the run may write, such as `4GiB`.
    pub disk: Option<Size>,
    /// Wall clock, such as `30m`.
    pub timeout: Option<Span>,
    /// What the command may print, such as `64MiB`.
    pub output: Option<Size>,
}

/// Network: whom the sandbox may talk to. Any `deny` beats any `ask` beats any `allow`; no match is deny.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NetSection {
    /// Off unless some policy says `true` and none says `false`.
    pub enabled: Option<bool>,
    /// `observe` lets requests pass that no rule names, and records what would have been denied.
    pub mode: Option<Mode>,
    /// How the sandbox is attached to its gateway at least: `sockets` is stronger than `network`. Where that
    /// cannot be had nothing starts.
    pub attach: Option<Attachment>,
    /// Requests that may go out.
    pub allow: Vec<Item<WrittenRule>>,
    /// Requests that wait for a person.
    pub ask: Vec<Item<WrittenRule>>,
    /// Requests that never go out.
    pub deny: Vec<Item<WrittenRule>>,
    /// Hosts whose TLS is not opened: nothing inside is judged, only who is contacted.
    pub passthrough: Vec<Item<WrittenRule>>,
    pub limits: NetLimitsSection,
}

/// Whether rules are enforced or only observed.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// What no rule allows is refused.
    Enforce,
    /// What no rule names passes and is recorded as `would_deny`.
    Observe,
}

/// Limits on traffic. The strictest of several policies counts.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NetLimitsSection {
    /// Bytes a run may send in all.
    pub upload: Option<Size>,
    /// Bytes a run may receive in all.
    pub download: Option<Size>,
    /// Bytes a run may send to any one host.
    pub host_upload: Option<Size>,
    /// The largest body of one request.
    pub body: Option<Size>,
    /// Hosts a run may reach in all.
    pub hosts: Option<PositiveCount>,
    /// Bytes of host names that stand for a `*`, each name counted once: whoever answers for the
    /// suffix learns them.
    pub wildcard_names: Option<Size>,
    /// Bytes of paths and queries a run may ask for in all, each URL counted once.
    pub urls: Option<Size>,
    /// Requests in any minute.
    pub requests_per_minute: Option<PositiveCount>,
    /// Connections open at once.
    pub connections: Option<PositiveCount>,
    /// How long a connection may be silent.
    pub idle: Option<Span>,
    /// How long one connection may last.
    pub total: Option<Span>,
}

/// One credential: where the gateway finds it and where it may put it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretSection {
    /// Where the value is; it never stands in a policy. In a project's policy this is left out: it
    /// stands in the configuration of whoever runs it.
    #[serde(default)]
    pub from: Option<Spanned<SecretFrom>>,
    /// The only hosts it is sent to.
    pub hosts: Vec<HostPattern>,
    /// The request header that carries it, such as `x-api-key`.
    #[serde(default)]
    pub header: Option<HeaderName>,
    /// What stands in that header, with `{secret}` in place of the value; `Bearer {secret}` for example.
    #[serde(default)]
    pub format: Option<String>,
    /// Instead of `header`: the user name of a `Basic` authorization whose password it is.
    #[serde(default)]
    pub basic: Option<String>,
}

/// Where a secret's value is found.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum SecretFrom {
    /// An environment variable of whoever starts the run.
    Env(String),
    /// A file on the host.
    File(String),
}

/// What is looked for in what leaves the sandbox.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScanSection {
    /// The secrets themselves, in any encoding; `deny` if left out.
    pub secrets: Option<ScanAction>,
    /// The shapes of well-known tokens; `report` if left out.
    pub patterns: Option<ScanAction>,
}

impl ScanSection {
    pub(crate) fn is_written(&self) -> bool {
        self.secrets.is_some() || self.patterns.is_some()
    }
}

/// What happens when something is found.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd)]
#[serde(rename_all = "lowercase")]
// From the strictest to the widest, so that the smallest of several wins.
pub enum ScanAction {
    /// The request is refused.
    Deny,
    /// The request passes and the finding is recorded.
    Report,
    /// Nothing is looked for.
    Off,
}

/// How long a person has to answer.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalsSection {
    /// A request that is not answered by then is refused; `5m` if left out.
    pub timeout: Option<Span>,
}

/// How far a single run may go beyond this policy.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OverridesSection {
    /// Hosts that `--allow` may add.
    pub allow: Option<Spanned<Vec<HostPattern>>>,
    /// The most that `--memory` and its kin may ask for.
    pub max: Option<Spanned<ProcSection>>,
    /// Whether `--observe` is permitted.
    pub observe: Option<Spanned<bool>>,
    /// Whether `--no-sandbox` is permitted. It runs the command without any protection.
    pub no_sandbox: Option<Spanned<bool>>,
}

/// A request and the answer it must get.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TestSection {
    /// Method and URL, such as `GET https://api.github.com/repos/acme/widgets`.
    pub request: String,
    pub expect: Expectation,
    /// The rule that must have decided, such as `net.allow[1]`.
    #[serde(default)]
    pub rule: Option<String>,
    /// Whether the request asks to become a WebSocket.
    #[serde(default)]
    pub websocket: bool,
    /// Request headers.
    #[serde(default)]
    pub headers: BTreeMap<HeaderName, String>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Expectation {
    Allow,
    Ask,
    Deny,
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        })
    }
}
