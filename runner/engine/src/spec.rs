//! What is meant by one run.
//!
//! Plain types, filled by whoever asks for the run. The result says what is
//! wanted; how it is done is decided by [`crate::plan`].

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use audit::Digest;
use policies::{
    Attachment, FileGlob, HostPattern, Policy, ProcLimits, Registries, RelativePath, Workspace,
};
use protocol::UserIds;
use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::origin::StartedBy;
use crate::own_user::OwnUsers;
use crate::phases::Phases;

/// The image that `sluice image build` makes.
pub const AGENT_IMAGE: &str = "sluice/agent";

/// One run, as it was meant.
#[derive(Clone, Debug)]
pub struct Request {
    pub command: Vec<String>,
    /// Who asks.
    pub caller: StartedBy,
    pub tty: bool,
    /// There is no sandbox: the policy permits that, and somebody asked for it.
    pub no_sandbox: bool,
    /// A refused request fails a run that would have succeeded.
    pub fail_on_denied: bool,
    /// The sandbox holds our attack program, to be tried with it.
    pub probe: bool,
    /// What the caller's terminal is called.
    pub terminal: String,
    pub backend: BackendKind,
    /// How the sandbox is attached to its gateway; nothing means the strongest way there is.
    pub attach: Option<Attachment>,
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
    pub files: BTreeMap<Arc<str>, ReadPolicyFile>,
    /// By whose word the policy is obeyed.
    pub approval: Approval,
    /// Policies in the project, whether the run is under them or not.
    pub policies_here: Vec<RelativePath>,
    /// The policy's secrets, and who says where they come from.
    pub secrets: Vec<SecretPlan>,
    /// Where names lead by the person's word, and whom else the gateway believes.
    pub pins: Vec<UpstreamPin>,
    pub trusted: Vec<TrustedRoot>,
    pub notes: Vec<String>,
}

/// Where a run can execute.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Deserialize)]
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
    pub const ALL: [Self; 4] = [Self::Auto, Self::Docker, Self::Namespaces, Self::Podman];

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

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
pub struct ResolvedRun {
    pub request: Request,
    pub policy: Policy,
    /// The policy as the gateway reads it.
    pub for_gateway: GatewayPolicy,
    pub upstream: Upstream,
    /// Since when, and what took how long.
    pub phases: Phases,
    /// The state directory, with the key that evidence is sealed with.
    pub state: PathBuf,
    /// The variables of whoever asks for the run.
    pub environment: Environment,
}

/// How the gateway finds upstreams, which CAs it trusts for them, and which registries
/// rules mean.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Upstream {
    /// Names that live at an address of the operator's choice.
    pub pins: Vec<(String, String)>,
    /// Further CAs to trust.
    pub roots: Vec<PathBuf>,
    /// What rules mean that name no registry.
    pub registries: Registries,
}

/// The policy of a run, as its gateway reads it.
#[derive(Clone, Debug)]
pub struct GatewayPolicy {
    /// The policy's own file, as its author knows it.
    pub path: PathBuf,
    /// Every file that was read, by its whole path; the policy's own first.
    pub texts: Vec<(PathBuf, Arc<str>)>,
    /// Hosts that the run adds.
    pub allow: Vec<HostPattern>,
}

impl Request {
    /// The directory that a policy's relative paths start from.
    pub fn policy_directory(&self, declared_in: &str) -> PathBuf {
        directory_of(&self.files, declared_in).unwrap_or_else(|| self.workspace.clone())
    }
}

/// The directory of a file of the policy.
pub fn directory_of(
    files: &BTreeMap<Arc<str>, ReadPolicyFile>,
    declared_in: &str,
) -> Option<PathBuf> {
    files.get(declared_in)?.path.parent().map(Path::to_owned)
}

/// A name that leads to an address by a person's word.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct UpstreamPin {
    pub name: String,
    pub address: String,
}

/// An authority that the gateway believes beside the usual ones.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct TrustedRoot {
    pub file: PathBuf,
    pub sha256: Digest,
}

/// A secret of the policy, never with its value.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SecretPlan {
    pub name: String,
    /// Where the value is, and who says so; nothing if nobody does.
    pub from: Option<String>,
    /// Who may get it.
    pub hosts: Vec<String>,
}

/// A file of a policy, as it was when it was read.
#[derive(Clone, Debug)]
pub struct ReadPolicyFile {
    pub path: PathBuf,
    pub text: Arc<str>,
    /// The project's word, and not a person's own.
    pub is_projects: bool,
}

/// By whose word a policy is obeyed.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    /// A person named the file, or it is their own.
    Named,
    /// Nobody's yet; nothing but a plan is made of it.
    None,
    /// A person approved what it says.
    Trusted,
}

/// `written` as seen from `beside`, which has no links in it: going up from there
/// is the same for everybody, going up later may lead back out of a link.
pub fn beneath(beside: &Path, written: &str) -> PathBuf {
    let mut path = beside.to_owned();
    let mut is_up = true;
    for part in Path::new(written).components() {
        is_up &= matches!(part, Component::ParentDir | Component::CurDir);
        match part {
            Component::CurDir => {}
            Component::ParentDir if is_up => {
                path.pop();
            }
            part => path.push(part),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn going_up_is_resolved_only_where_it_means_one_thing() {
        for (written, expected) in [
            ("../b", "/a/b"),
            ("./c", "/a/p/c"),
            ("c/../../b", "/a/p/c/../../b"),
            ("/b", "/b"),
            ("../../../b", "/b"),
        ] {
            assert_eq!(beneath(Path::new("/a/p"), written), Path::new(expected), "{written}");
        }
    }
}
