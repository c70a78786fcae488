//! What is meant by one command line.
//!
//! Flags win over the environment, which wins over the configuration file. What
//! a run asks for beyond its policy is checked against what the policy permits,
//! all of it at once. The result says what is wanted; how it is done is decided
//! by [`crate::plan`].

mod flags;
mod ours;
mod pins;
mod policy;
mod secrets;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use policies::{FileGlob, Policy, ProcLimits, RelativePath, Workspace};

use crate::plan::{Caller, OwnUsers, UserIds};
use crate::policy::files::Opened;
use crate::policy::obey::Approval;
use crate::run::phases::Phases;
use crate::settings::{GatewayPolicy, Upstream};
pub(crate) use flags::environment;
pub use flags::{AGENT_IMAGE, RunFlags};
pub use pins::{Pin, TrustedRoot};
pub use secrets::SecretPlan;

/// One run, as it was meant.
#[derive(Clone, Debug)]
pub struct Request {
    pub command: Vec<String>,
    /// Who asks.
    pub caller: Caller,
    pub tty: bool,
    /// There is no sandbox: the policy permits that, and somebody asked for it.
    pub no_sandbox: bool,
    /// A refused request fails a run that would have succeeded.
    pub fail_on_denied: bool,
    /// Our own result goes to stdout, so what the command prints does not.
    pub keep_stdout: bool,
    /// What the caller's terminal is called.
    pub terminal: String,
    pub backend: BackendKind,
    /// Nothing means the backend's usual one.
    pub image: Option<String>,
    /// The project's directory, whole.
    pub workspace: PathBuf,
    /// How the project appears, where that is stricter than the policy.
    pub mode: Option<Workspace>,
    /// Files that are shown although they are hidden by default.
    pub show: Vec<FileGlob>,
    pub user: UserIds,
    /// Where a sandbox can have a user of its own instead.
    pub own_users: Option<OwnUsers>,
    /// Who owns the project's files on disk; appears as that user in the sandbox.
    pub owner: UserIds,
    /// Limits where neither the policy nor a flag sets one.
    pub defaults: ProcLimits,
    /// Variables that a person chose for the command.
    pub environment: Vec<(String, String)>,
    /// What is recorded of their values, and of those in `tools`, by name.
    pub value_hashes: BTreeMap<String, String>,
    /// What package managers are told, so that they mean the registry the
    /// policy means.
    pub tools: Vec<(String, String)>,
    /// Where the evidence of all runs is.
    pub runs: PathBuf,
    /// The files of the policy, by the names it knows them by.
    pub files: BTreeMap<Arc<str>, Opened>,
    /// By whose word the policy is obeyed.
    pub approval: Approval,
    /// Policies in the project, whether the run is under them or not.
    pub policies_here: Vec<RelativePath>,
    /// The policy's secrets, and who says where they come from.
    pub secrets: Vec<SecretPlan>,
    /// Where names lead by the person's word, and whom else the gateway believes.
    pub pins: Vec<Pin>,
    pub trusted: Vec<TrustedRoot>,
    pub notes: Vec<String>,
}

/// Where a run can execute.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// An engine if one answers, else namespaces.
    #[default]
    Auto,
    Docker,
    Namespaces,
    Podman,
}

impl BackendKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Docker => "docker",
            Self::Namespaces => "namespaces",
            Self::Podman => "podman",
        }
    }
}

/// A request and the policy it is under.
#[derive(Debug)]
pub struct Understood {
    pub request: Request,
    pub policy: Policy,
    /// The policy as the gateway reads it.
    pub for_gateway: GatewayPolicy,
    pub upstream: Upstream,
    /// Since when, and what took how long.
    pub phases: Phases,
    /// The state directory, with the key that evidence is sealed with.
    pub state: PathBuf,
}

impl Request {
    /// The directory that a policy's relative paths start from.
    pub(crate) fn policy_directory(&self, declared_in: &str) -> PathBuf {
        directory_of(&self.files, declared_in).unwrap_or_else(|| self.workspace.clone())
    }
}

fn directory_of(files: &BTreeMap<Arc<str>, Opened>, declared_in: &str) -> Option<PathBuf> {
    files.get(declared_in)?.path.parent().map(Path::to_owned)
}
