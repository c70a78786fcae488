//! A policy that cannot be wrong.
//!
//! There is no other way to a [`Policy`] than [`read`](crate::read), which
//! refuses a file with any problem, so nothing downstream checks again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::authority::Destination;
use crate::capability::PythonPackage;
use crate::decide::{Admission, Question, Rules};
use crate::document::{Expectation, Mode, MountMode, ScanAction, SecretFrom, Workspace};
use crate::fields::is_same_field;
use crate::glob::FileGlob;
use crate::names::{HeaderName, RelativePath, SandboxPath, SecretName};
use crate::overridden::FurtherPath;
use crate::pattern::HostPattern;
use crate::problems::Problems;
use crate::reach::Reach;
use crate::rule::{Paths, Rule};
use crate::units::{Cpus, Size, Span};
use crate::verdict::{Decision, Reason};

/// What one sandbox may do.
#[derive(Debug)]
pub struct Policy {
    pub name: Arc<str>,
    pub fs: Fs,
    pub proc: ProcLimits,
    pub net: Net,
    pub secrets: BTreeMap<SecretName, Secret>,
    pub scan: Scan,
    pub approvals: Approvals,
    pub overrides: Overrides,
    pub tests: Vec<PolicyTest>,
    /// The files and presets it was made of, the policy's own first.
    pub sources: Vec<Arc<str>>,
    /// Things worth a person's look that are not wrong.
    pub notes: Vec<Note>,
    /// What files of a project ask for and only a person can grant. Whoever puts a
    /// sandbox under this policy refuses it unless this is empty.
    pub beyond: Problems,
}

/// What the sandbox sees of the project.
#[derive(Clone, Debug)]
pub struct Fs {
    pub workspace: Workspace,
    pub protect: BTreeSet<RelativePath>,
    pub deny: Vec<FileGlob>,
    /// What is shown although it is hidden by default; takes nothing from `deny`.
    pub show: Vec<FileGlob>,
    pub mounts: Vec<Mount>,
    pub artifacts: Vec<FileGlob>,
}

#[derive(Clone, Debug)]
pub struct Mount {
    /// As written; relative to the file that says so.
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
    pub limits: NetLimits,
    /// Somebody said `enabled: false`, which no run can take back.
    pub(crate) turned_off: bool,
    pub(crate) rules: Rules,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NetLimits {
    pub upload: Option<Size>,
    pub download: Option<Size>,
    pub body: Option<Size>,
    pub requests_per_minute: Option<u32>,
    pub connections: Option<u32>,
    pub idle: Option<Span>,
    pub total: Option<Span>,
}

/// A credential: where it is and where it may go, never what it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Secret {
    /// Nothing where somebody else says so.
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
pub struct Scan {
    pub secrets: ScanAction,
    pub patterns: ScanAction,
    /// Somebody wrote it, and may rely on it.
    pub is_written: bool,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Approvals {
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
    pub(crate) asked: crate::testing::Asked,
}

/// Something worth a look, and the rule it is about.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Note {
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
    /// Observing does not change the answer: whoever lets such a request pass
    /// asks [`Decision::yields_to_observing`] and records both.
    pub fn decide(&self, question: &Question<'_>) -> Decision<'_> {
        if !self.net.enabled {
            return Decision::NETWORK_OFF;
        }
        // The server may serve any of the paths that it is told, so the strictest
        // answer counts.
        let as_sent = self.net.rules.decide(question);
        question.further.iter().fold(as_sent, |strictest, FurtherPath { path, query }| {
            let as_told = Question { path, query: query.as_ref(), ..*question };
            strictest.for_either(self.net.rules.decide(&as_told))
        })
    }

    /// Whether some rule asks for a header that a server could take `name` for.
    /// Such a field cannot come after the request was judged.
    pub fn judges_header(&self, name: &[u8]) -> bool {
        let mut judged =
            self.rules().flat_map(|rule| &rule.shapes).flat_map(|shape| &shape.headers);
        judged.any(|(judged, _)| is_same_field(judged.as_str().as_bytes(), name))
    }

    /// Which addresses `to` may resolve to for one rule or another. Each
    /// request is held to its own rule's reach besides.
    pub fn reach_of(&self, to: &Destination) -> Reach {
        self.net.rules.reach_of(to)
    }

    /// The Python packages that rules of this policy name.
    pub fn python_packages(&self) -> impl Iterator<Item = &PythonPackage> {
        let paths = self.rules().flat_map(|rule| &rule.shapes).map(|shape| &shape.paths);
        paths.flat_map(|paths| match paths {
            Paths::PythonFiles(files) => files.packages(),
            Paths::Any | Paths::Patterns(_) => &[],
        })
    }

    /// Every rule, the policy's own first.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.net.rules.iter()
    }
}
