//! A policy that has passed every check.
//!
//! Only [`read()`](crate::read()) makes a [`Policy`], and it refuses a file with any
//! problem. So nothing downstream checks again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::attachment::Attachment;
use crate::authority::Destination;
use crate::decide::{Admission, Rules};
use crate::decision::{Decision, Reason};
use crate::document::{Expectation, Mode, MountMode, ScanAction, SecretFrom, Workspace};
use crate::glob::FileGlob;
use crate::header_fields::is_same_field;
use crate::host_pattern::HostPattern;
use crate::names::{HeaderName, RelativePath, SandboxPath, SecretName};
use crate::problems::Problems;
use crate::question::PolicyQuestion;
use crate::reach::Reach;
use crate::request_overrides::AlternatePath;
use crate::rule::Rule;
use crate::units::{Cpus, Size, Span};

/// What one sandbox may do.
#[derive(Debug)]
pub struct Policy {
    pub name: Arc<str>,
    pub fs: Fs,
    pub proc: ProcLimits,
    pub net: Net,
    pub secrets: BTreeMap<SecretName, Secret>,
    pub scan: ScanSettings,
    pub approvals: ApprovalSettings,
    pub overrides: Overrides,
    pub tests: Vec<PolicyTest>,
    /// The files and presets it was made of, the policy's own first.
    pub sources: Vec<Arc<str>>,
    /// Things worth a person's look that are not wrong.
    pub notes: Vec<PolicyNote>,
    /// What a project's files ask for and only a person can grant. A caller that
    /// enforces this policy must refuse it unless this is empty.
    pub out_of_bounds: Problems,
}

/// What the sandbox sees of the project.
#[derive(Clone, Debug)]
pub struct Fs {
    pub workspace: Workspace,
    pub protect: BTreeSet<RelativePath>,
    pub deny: Vec<FileGlob>,
    /// Files that are hidden by default and shown here. `deny` still applies.
    pub show: Vec<FileGlob>,
    pub mounts: Vec<Mount>,
    pub artifacts: Vec<FileGlob>,
}

#[derive(Clone, Debug)]
pub struct Mount {
    /// As written, relative to `declared_in`.
    pub source: String,
    pub declared_in: Arc<str>,
    pub target: SandboxPath,
    pub mode: MountMode,
}

/// How much of the machine a run may take. What is not set is the runner's
/// choice, never unlimited.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ProcLimits {
    pub cpus: Option<Cpus>,
    pub memory: Option<Size>,
    pub pids: Option<u32>,
    pub disk: Option<Size>,
    pub timeout: Option<Span>,
    pub output: Option<Size>,
}

/// Whom the sandbox may talk to.
#[derive(Debug)]
pub struct Net {
    pub enabled: bool,
    pub mode: Mode,
    /// How the sandbox is attached to its gateway, at least.
    pub attach: Attachment,
    pub limits: NetLimits,
    /// Some file says `enabled: false`. No run can override that.
    pub(crate) turned_off: bool,
    pub(crate) rules: Rules,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NetLimits {
    pub upload: Option<Size>,
    pub download: Option<Size>,
    pub host_upload: Option<Size>,
    pub body: Option<Size>,
    pub hosts: Option<u32>,
    pub wildcard_names: Option<Size>,
    pub urls: Option<Size>,
    pub requests_per_minute: Option<u32>,
    pub connections: Option<u32>,
    pub idle: Option<Span>,
    pub total: Option<Span>,
}

/// A credential: where it is and where it may go, never what it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Secret {
    /// None if the user's own configuration says it.
    pub from: Option<SecretFrom>,
    pub declared_in: Arc<str>,
    pub hosts: Vec<HostPattern>,
    pub carried: Carried,
}

/// How a request carries a secret.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Carried {
    /// As the password of a `Basic` authorization.
    Basic { user: String },
    /// In a header, between two pieces of text.
    Header { name: HeaderName, before: String, after: String },
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScanSettings {
    pub secrets: ScanAction,
    pub patterns: ScanAction,
    /// Some file sets it, so its author may rely on it.
    pub is_written: bool,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ApprovalSettings {
    pub timeout: Span,
}

/// How far one run may go beyond the policy.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Overrides {
    pub allow: Vec<HostPattern>,
    pub max: ProcLimits,
    pub observe: bool,
    pub no_sandbox: bool,
}

/// A request, and the answer the policy must give.
#[derive(Clone, Debug)]
pub struct PolicyTest {
    pub request: Arc<str>,
    pub expect: Expectation,
    pub rule: Option<Arc<str>>,
    pub line: usize,
    pub(crate) sample: crate::sample_request::SampleRequest,
}

/// Something worth a look, and the rule it is about.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PolicyNote {
    pub rule: Option<Arc<str>>,
    pub message: String,
}

impl Policy {
    /// Policy on the destination, before anything is known of the request.
    pub fn admit(&self, to: &Destination) -> Admission<'_> {
        if !self.net.enabled {
            return Admission::Deny(Decision::NETWORK_OFF);
        }
        match self.net.rules.admit(to) {
            // Requests are let through one by one, so that each is recorded.
            Admission::Deny(decision)
                if decision.reason == Reason::NoRule && self.net.mode == Mode::Observe =>
            {
                Admission::Inspect
            }
            other => other,
        }
    }

    /// Policy on one request.
    ///
    /// Observe mode does not change the answer. The caller lets a request pass if
    /// [`Decision::is_unmatched`], and records both the answer and the exception.
    pub fn decide(&self, question: &PolicyQuestion<'_>) -> Decision<'_> {
        if !self.net.enabled {
            return Decision::NETWORK_OFF;
        }
        // The server may serve any of these paths, so the strictest answer counts.
        let as_sent = self.net.rules.decide(question);
        question.alternate_paths.iter().fold(as_sent, |strictest, AlternatePath { path, query }| {
            let as_told = PolicyQuestion { path, query: query.as_ref(), ..*question };
            strictest.for_either(self.net.rules.decide(&as_told))
        })
    }

    /// Whether some rule has a condition on a header that a server could read
    /// `name` as. Such a field cannot be accepted in a trailer: by then the request
    /// has been judged.
    pub fn judges_header(&self, name: &[u8]) -> bool {
        let mut judged =
            self.rules().flat_map(|rule| &rule.shapes).flat_map(|shape| &shape.headers);
        judged.any(|(header, _)| is_same_field(header.as_str().as_bytes(), name))
    }

    /// How many bytes of the name of `to` no rule writes out, so that whoever asks for
    /// it chose them: what stands for a `*`, or the whole name in observe mode.
    pub fn chosen_name_bytes(&self, to: &Destination) -> usize {
        self.net.rules.chosen_name_bytes(to)
    }

    /// Which addresses `to` may resolve to under any rule. Each request is checked
    /// against its own rule's reach as well.
    pub fn reach_of(&self, to: &Destination) -> Reach {
        self.net.rules.reach_of(to)
    }

    /// Every rule, the policy's own first.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.net.rules.iter()
    }
}
