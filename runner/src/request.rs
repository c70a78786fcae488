//! What is meant by one command line.
//!
//! Flags win over the environment, which wins over the configuration file. What
//! a run asks for beyond its policy is checked against what the policy permits,
//! all of it at once. The result says what is wanted; how it is done is decided
//! by [`crate::plan`].

mod flags;
mod policy;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use policies::{Policy, ProcLimits, Workspace};

use crate::plan::UserIds;
use crate::policy::files::Opened;
use crate::run::phases::Phases;
use crate::settings::Upstream;
pub(crate) use flags::environment;
pub use flags::{AGENT_IMAGE, RunFlags};

/// One run, as it was meant.
#[derive(Clone, Debug)]
pub struct Request {
    pub command: Vec<String>,
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
    pub user: UserIds,
    /// Who owns the project's files on disk; appears as that user in the sandbox.
    pub owner: UserIds,
    /// Limits where neither the policy nor a flag sets one.
    pub defaults: ProcLimits,
    /// Variables that a person chose for the command.
    pub environment: Vec<(String, String)>,
    /// What package managers are told, so that they mean the registry the
    /// policy means.
    pub tools: Vec<(String, String)>,
    /// Where the evidence of all runs is.
    pub runs: PathBuf,
    /// The files of the policy, by the names it knows them by.
    pub files: BTreeMap<Arc<str>, Opened>,
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
    /// The policy as the gateway reads it: files by name, the first one first.
    pub gateway_policy: Vec<(PathBuf, Arc<str>)>,
    pub upstream: Upstream,
    /// Since when, and what took how long.
    pub phases: Phases,
    /// The state directory, with the key that evidence is sealed with.
    pub state: PathBuf,
}

impl Request {
    /// The directory that a policy's relative paths start from.
    pub(crate) fn policy_directory(&self, declared_in: &str) -> PathBuf {
        let file = self.files.get(declared_in);
        let beside = file.and_then(|file| file.path.parent()).map(Path::to_owned);
        beside.unwrap_or_else(|| self.workspace.clone())
    }
}
