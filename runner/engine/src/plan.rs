//! What a run will be, decided before anything is made.
//!
//! Planning is pure: it takes a [`Request`] and what is known of the
//! machine and the caller, and returns a [`Plan`] that a backend carries out
//! without deciding anything more. `--dry-run` prints exactly that.
//!
//! Everything a plan holds is safe to show: it names secrets and never holds
//! one.

mod limits;
mod show;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use certs::variables::{self, KitPaths, Proxy};
use inside::launch::idmap::Swap;
use jiff::Timestamp;
use policies::{Attachment, FileGlob, MountMode, Policy, RelativePath, Workspace};
pub use protocol::UserIds;
use protocol::doors;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::abilities::{Abilities, Enforcement, UserOf};
pub use crate::origin::{Origin, StartedBy};
pub use crate::own_user::{OWN_USERS, OwnUsers};
pub use crate::run_id::{NotARun, RunId};
use crate::spec::{
    Approval, ReadPolicyFile, Request, SecretPlan, TrustedRoot, UpstreamPin, beneath,
};
pub(crate) use limits::files_in;
pub use limits::{Limits, Machine};
pub use show::PlanText;

/// What is usually one of our own words, and after reading one back a copy of it.
pub type Word = Cow<'static, str>;

/// One run, decided.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Plan {
    pub run: RunId,
    /// Beside the plan in the record.
    #[serde(skip)]
    pub origin: Origin,
    pub backend: Word,
    pub command: Vec<String>,
    /// A terminal, or three pipes.
    pub tty: bool,
    pub image: String,
    /// Who the command is inside.
    pub user: UserIds,
    /// Who it is to the host's kernel, for whom it counts and whose files it may
    /// touch: another, where a sandbox has a user of its own.
    pub host_user: UserIds,
    /// Where the command starts.
    pub directory: String,
    pub workspace: WorkspacePlan,
    pub mounts: Vec<MountPlan>,
    /// Memory that looks like a directory, and how much of it.
    pub tmpfs: Vec<TmpfsPlan>,
    /// Nothing means no network at all, and no gateway.
    pub network: Option<NetworkPlan>,
    pub limits: Limits,
    /// Limits that the backend cannot keep here; none that anybody asked for.
    pub unenforced: Vec<Word>,
    /// A sandbox that outlives the command that starts it, and until when.
    pub session: Option<SessionPlan>,
    /// What the command gets; the record has [`Plan::recorded`] instead.
    #[serde(skip)]
    pub environment: Vec<(String, String)>,
    #[serde(rename = "environment")]
    pub recorded: Vec<(String, RecordedValue)>,
    /// Variables of the image that the command must not see.
    pub unset: Vec<String>,
    pub policy: PolicyPlan,
    /// The secrets that the policy names.
    pub secrets: Vec<SecretPlan>,
    /// Names that lead where a person said, and whom else the gateway believes.
    pub pins: Vec<UpstreamPin>,
    pub trusted: Vec<TrustedRoot>,
    /// The folder of evidence.
    pub evidence: PathBuf,
    /// Worth a person's look before anything starts.
    pub notes: Vec<String>,
}

/// A variable's value, as far as evidence says it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(untagged)]
pub enum RecordedValue {
    /// A person gave it, so it may be a secret. Nothing if there is no key.
    Hashed { hmac_sha256: Option<String> },
    /// We chose it ourselves.
    Plain(String),
}

/// What is recorded of an environment.
pub fn recorded(
    environment: &[(String, String)],
    request: &Request,
) -> Vec<(String, RecordedValue)> {
    let given = |name: &str| {
        let mut all = request.environment.iter().chain(&request.tools);
        all.any(|(known, _)| known == name)
    };
    let value = |name: &str, value: &str| match given(name) {
        true => RecordedValue::Hashed { hmac_sha256: request.value_hashes.get(name).cloned() },
        false => RecordedValue::Plain(value.to_owned()),
    };
    environment.iter().map(|(name, set)| (name.clone(), value(name, set))).collect()
}

/// A sandbox kept for several commands.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SessionPlan {
    pub name: Option<String>,
    #[serde(rename = "ttl_seconds", with = "crate::record_format::seconds")]
    pub ttl: Duration,
    /// When its time is over. Its first process and its gateway both keep it.
    pub until: Timestamp,
}

impl Plan {
    /// What ends the run's gateway, as its program is told: that its standard
    /// input ends, which we hold; or, for a session, its time. That is a little
    /// later than the sandbox's, whose last requests are still recorded.
    pub fn gateway_life(&self) -> Vec<String> {
        match &self.session {
            None => vec!["--lifeline".to_owned()],
            Some(SessionPlan { until, .. }) => {
                let until = until.as_second().saturating_add(GATEWAY_STAYS);
                vec!["--until".to_owned(), until.to_string()]
            }
        }
    }
}

/// Seconds; more than a sandbox is given for ending.
const GATEWAY_STAYS: i64 = 10;

/// Something that was asked for and that nobody would keep.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PlanError {
    #[error(
        "{backend} cannot attach a sandbox to its gateway by `{wanted}` here: {why}; {wanted_by} \
         wants it"
    )]
    Attachment { backend: &'static str, wanted: Attachment, wanted_by: &'static str, why: String },
    #[error(
        "the policy names {count} ports beside the usual ones, and a sandbox has at most {}; use \
         fewer `port` and `tcp` rules",
        doors::MAX_DOORS
    )]
    TooManyDoors { count: usize },
    #[error(
        "{backend} cannot limit {limit} here: {why}; leave the limit out, or choose another backend"
    )]
    Unenforceable { backend: &'static str, limit: &'static str, why: String },
}

/// How the project appears in the sandbox.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct WorkspacePlan {
    #[serde(serialize_with = "mode_name", deserialize_with = "mode_named")]
    pub mode: Workspace,
    /// The project's directory on the host; nothing with mode `none`.
    pub source: Option<PathBuf>,
    pub target: Word,
    /// Read-only in every mode, relative to the project.
    #[serde(serialize_with = "crate::record_format::as_written")]
    pub protect: BTreeSet<RelativePath>,
    /// Files the sandbox cannot read.
    #[serde(serialize_with = "crate::record_format::as_written")]
    pub deny: Vec<FileGlob>,
    /// Files collected when the run ends.
    #[serde(serialize_with = "crate::record_format::as_written")]
    pub artifacts: Vec<FileGlob>,
    /// Who owns the project and what the run writes there, on disk. Another than
    /// the sandbox's user on the host appears to it as that user.
    pub owner: UserIds,
}

impl WorkspacePlan {
    /// Under whom the project appears, if that is another than on disk.
    pub fn swap(&self, host_user: UserIds) -> Option<Swap> {
        let differs = self.source.is_some() && self.owner != host_user;
        differs.then_some(Swap { disk: self.owner, shown: host_user })
    }
}

/// A further directory of the host.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct MountPlan {
    pub source: PathBuf,
    pub target: String,
    pub read_only: bool,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct TmpfsPlan {
    pub target: Word,
    pub bytes: u64,
    pub executable: bool,
}

/// The sandbox's only network, which leads to its gateway.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct NetworkPlan {
    /// How the sandbox calls its gateway.
    pub gateway: Word,
    /// How the sandbox's doors reach it.
    #[serde(default)]
    pub attach: Attachment,
    /// What the sandbox sees of it, and nothing else.
    pub interfaces: Word,
    pub ports: Ports,
    /// Where it listens besides, because rules name ports.
    #[serde(default)]
    pub doors: DoorsPlan,
    /// Requests that no rule names pass and are recorded.
    pub observe: bool,
    /// Rules of the policy, for people.
    pub rules: usize,
    /// Where the trust kit appears.
    pub trust: Word,
    /// Bundles of common distributions, each covered by ours.
    pub covered: Vec<Word>,
}

/// Where the gateway listens.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Ports {
    pub dns: u16,
    pub http: u16,
    pub https: u16,
    pub proxy: u16,
    pub socks: u16,
}

/// The doors that a policy's rules ask for beside the usual ones.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct DoorsPlan {
    /// Where TLS and HTTP are captured.
    pub ports: Vec<u16>,
    /// Hosts of `tcp` rules, whose programs say no name.
    pub hosts: Vec<HostDoorsPlan>,
}

/// A host that has an address of its own in the sandbox.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct HostDoorsPlan {
    pub host: String,
    /// Nobody else's for as long as the sandbox lives.
    pub address: Ipv4Addr,
    pub ports: Vec<u16>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PolicyPlan {
    pub name: String,
    /// The files and presets it is made of.
    pub sources: Vec<String>,
    /// By whose word it is obeyed.
    pub approved: Approval,
}

/// Decides what `request` means under `policy`, which has been checked against
/// what the request asks for beyond it, on a backend that can do this much.
pub fn plan(
    run: RunId,
    request: &Request,
    policy: &Policy,
    machine: &Machine,
    abilities: &Abilities,
) -> Result<Plan, PlanError> {
    let limits = Limits::choose(&policy.proc, &request.defaults, machine);
    let (user, host_user) = users(&run, request, policy, abilities);
    let mut notes = request.notes.clone();
    let unenforced = unenforced(policy, abilities, &mut notes)?;
    let mode = request.mode.map_or(policy.fs.workspace, |asked| asked.min(policy.fs.workspace));
    let source = (mode != Workspace::None).then(|| request.workspace.clone());
    let directory = if source.is_some() { WORKSPACE } else { HOME };
    let attach = match policy.net.enabled {
        true => Some(attach(request, policy, abilities, &mut notes)?),
        false => None,
    };
    let doors = match attach {
        Some(attach) => doors(policy, attach, &mut notes)?,
        None => DoorsPlan::default(),
    };
    let network = attach.map(|attach| NetworkPlan {
        gateway: GATEWAY.into(),
        attach,
        interfaces: attach.interfaces().into(),
        ports: PORTS,
        doors,
        observe: policy.net.mode == policies::Mode::Observe,
        rules: policy.rules().count(),
        trust: protocol::init::TRUST_KIT.into(),
        covered: COVERED.iter().map(|path| Word::Borrowed(path)).collect(),
    });
    let (environment, unset) = environment(request, network.as_ref(), &run, &mut notes);
    notes.extend(policy.notes.iter().map(|note| note.message.clone()));
    let origin = Origin {
        user: request.caller.user.clone(),
        host: request.caller.host.clone(),
        project: source.clone(),
        backend: abilities.backend.into(),
        version: env!("CARGO_PKG_VERSION").into(),
    };
    Ok(Plan {
        origin,
        backend: abilities.backend.into(),
        command: request.command.clone(),
        tty: request.tty,
        image: request.image.clone().unwrap_or_else(|| abilities.image.to_owned()),
        user,
        host_user,
        directory: directory.to_owned(),
        workspace: WorkspacePlan {
            mode,
            source,
            target: WORKSPACE.into(),
            protect: protect(request, policy),
            deny: policy.fs.deny.clone(),
            artifacts: policy.fs.artifacts.clone(),
            owner: request.owner,
        },
        mounts: mounts(request, policy),
        tmpfs: tmpfs(&limits),
        network,
        limits,
        unenforced,
        session: None,
        recorded: recorded(&environment, request),
        environment,
        pins: request.pins.clone(),
        trusted: request.trusted.clone(),
        unset,
        policy: PolicyPlan {
            name: policy.name.to_string(),
            sources: policy.sources.iter().map(ToString::to_string).collect(),
            approved: request.approval,
        },
        secrets: request.secrets.clone(),
        evidence: request.runs.join(run.as_str()),
        run,
        notes,
    })
}

/// Who the command is inside, and to the host's kernel.
///
/// Further mounts show files of the host as they are, to the user that they are
/// for: then a sandbox is the one it always was.
fn users(
    run: &RunId,
    request: &Request,
    policy: &Policy,
    abilities: &Abilities,
) -> (UserIds, UserIds) {
    let (usual, own_users) = (request.user, request.own_users.as_ref());
    let own = own_users.filter(|_| policy.fs.mounts.is_empty()).and_then(|users| users.of(run));
    match (own, abilities.user) {
        (Some(uid), UserOf::Itself) => (usual, UserIds { uid, ..usual }),
        (Some(uid), UserOf::Host) => (UserIds { uid, ..usual }, UserIds { uid, ..usual }),
        (None, _) | (_, UserOf::Caller) => (usual, usual),
    }
}

/// How the sandbox is attached to its gateway: as the person says, else the strongest way
/// there is; never weaker than the policy wants.
fn attach(
    request: &Request,
    policy: &Policy,
    abilities: &Abilities,
    notes: &mut Vec<String>,
) -> Result<Attachment, PlanError> {
    let backend = abilities.backend;
    let why_not_sockets = abilities.no_sockets.as_deref().unwrap_or("it has no such way");
    let refused = |wanted: Attachment, wanted_by, why: &str| PlanError::Attachment {
        backend,
        wanted,
        wanted_by,
        why: why.to_owned(),
    };
    let chosen = match request.attach {
        Some(wanted) if abilities.attachments.contains(&wanted) => wanted,
        Some(wanted) => return Err(refused(wanted, "your configuration", why_not_sockets)),
        None => {
            let (usual, wanted) = (abilities.usual_attachment(), policy.net.attach);
            let is_had = usual < wanted && abilities.attachments.contains(&wanted);
            let chosen = if is_had { wanted } else { usual };
            if let Some(why) = &abilities.no_sockets {
                notes.push(format!("the sandbox is attached to its gateway by a {chosen}: {why}"));
            }
            chosen
        }
    };
    if chosen < policy.net.attach {
        let why = match request.attach {
            Some(configured) => &format!("your configuration says `attach: {configured}`"),
            None => why_not_sockets,
        };
        return Err(refused(policy.net.attach, "the policy", why));
    }
    Ok(chosen)
}

/// Where a sandbox without a network finds its gateway.
pub fn gateway_of(attach: Attachment) -> Ipv4Addr {
    match attach {
        Attachment::Network | Attachment::Sockets => doors::GATEWAY,
        Attachment::Relay => doors::RELAYED_GATEWAY,
    }
}

/// The doors that the policy's rules ask for.
fn doors(
    policy: &Policy,
    attach: Attachment,
    notes: &mut Vec<String>,
) -> Result<DoorsPlan, PlanError> {
    let wanted = policy.doors();
    if wanted.count() > doors::MAX_DOORS {
        return Err(PlanError::TooManyDoors { count: wanted.count() });
    }
    let mut planned = DoorsPlan { ports: wanted.ports, hosts: Vec::new() };
    // Somebody else is there already, who speaks to programs that know proxies.
    planned.ports.retain(|port| !doors::FIXED_PORTS.contains(port));
    for (index, named) in (0..).zip(wanted.tcp) {
        let address = doors::named(gateway_of(attach), index);
        let host = named.host.to_string();
        planned.hosts.push(HostDoorsPlan { host, address, ports: named.ports });
    }
    if attach == Attachment::Network && !planned.hosts.is_empty() {
        let hosts: Vec<&str> = planned.hosts.iter().map(|named| &*named.host).collect();
        notes.push(format!(
            "programs that know no proxy cannot reach {}: a `tcp` rule's host has an address of \
             its own only in a sandbox that is attached by sockets",
            hosts.join(", ")
        ));
        planned.hosts.clear();
    }
    Ok(planned)
}

/// The limits that this backend cannot keep: an error where the policy sets one,
/// worth a note where it is only our own idea.
fn unenforced(
    policy: &Policy,
    abilities: &Abilities,
    notes: &mut Vec<String>,
) -> Result<Vec<Word>, PlanError> {
    let backend = abilities.backend;
    let limits = [
        ("cpus", &abilities.cpus, policy.proc.cpus.is_some()),
        ("memory", &abilities.memory, policy.proc.memory.is_some()),
        ("pids", &abilities.pids, policy.proc.pids.is_some()),
    ];
    let mut unenforced = Vec::new();
    for (limit, ability, asked) in limits {
        let (why, kept) = match ability {
            Enforcement::Enforced => continue,
            Enforcement::Unavailable { why } => (why, "does not limit"),
            Enforcement::Watched { why } => (why, "only looks after, and does not limit,"),
        };
        if asked {
            return Err(PlanError::Unenforceable { backend, limit, why: why.clone() });
        }
        notes.push(format!("{backend} {kept} {limit} here: {why}"));
        unenforced.push(limit.into());
    }
    Ok(unenforced)
}

/// What the policy names, and every policy: who may write to the rules of the next
/// run has none.
fn protect(request: &Request, policy: &Policy) -> BTreeSet<RelativePath> {
    let inside = |file: &ReadPolicyFile| {
        let path = file.path.strip_prefix(&request.workspace).ok()?.to_str()?;
        RelativePath::parse(path).ok()
    };
    let mut protect: BTreeSet<RelativePath> = policy.fs.protect.iter().cloned().collect();
    protect.extend(request.files.values().filter_map(inside));
    protect.extend(request.policies_here.iter().cloned());
    protect
}

fn mounts(request: &Request, policy: &Policy) -> Vec<MountPlan> {
    let beside = |mount: &policies::Mount| {
        beneath(&request.policy_directory(&mount.declared_in), &mount.source)
    };
    let mounts = policy.fs.mounts.iter();
    mounts
        .map(|mount| MountPlan {
            source: beside(mount),
            target: mount.target.as_str().to_owned(),
            read_only: mount.mode == MountMode::Ro,
        })
        .collect()
}

/// All of it is charged to the run's memory, so together it stays below that.
fn tmpfs(limits: &Limits) -> Vec<TmpfsPlan> {
    let part = |share: u64| (limits.memory / share).min(limits.disk);
    vec![
        TmpfsPlan { target: HOME.into(), bytes: part(4), executable: true },
        TmpfsPlan { target: "/run".into(), bytes: part(64).min(16 << 20), executable: false },
        TmpfsPlan { target: "/tmp".into(), bytes: part(2), executable: true },
    ]
}

fn environment(
    request: &Request,
    network: Option<&NetworkPlan>,
    run: &RunId,
    notes: &mut Vec<String>,
) -> (Vec<(String, String)>, Vec<String>) {
    let mut set = vec![
        ("HOME".to_owned(), HOME.to_owned()),
        ("SLUICE_RUN".to_owned(), run.as_str().to_owned()),
        ("USER".to_owned(), "agent".to_owned()),
    ];
    if request.tty {
        set.push(("TERM".to_owned(), request.terminal.clone()));
    }
    let mut unset = Vec::new();
    if let Some(network) = network {
        let proxy = Proxy { host: network.gateway.to_string(), port: network.ports.proxy };
        let chosen = |name: &str| request.environment.iter().any(|(known, _)| known == name);
        let kit =
            variables::environment_beside(&KitPaths::under(&*network.trust), Some(&proxy), chosen);
        set.extend(kit.set.into_iter().map(|(name, value)| (name.to_owned(), value)));
        unset.extend(kit.unset.into_iter().map(str::to_owned));
        notes.extend(kit.kept.iter().map(ToString::to_string));
        set.extend(request.tools.iter().cloned());
    }
    // What a person said stands last and wins.
    set.retain(|(name, _)| !request.environment.iter().any(|(chosen, _)| chosen == name));
    set.extend(request.environment.iter().cloned());
    (set, unset)
}

fn mode_named<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Workspace, D::Error> {
    let name = String::deserialize(deserializer)?;
    let modes = [Workspace::Direct, Workspace::None, Workspace::Overlay, Workspace::Readonly];
    let found = modes.into_iter().find(|mode| name_of(*mode) == name);
    found.ok_or_else(|| D::Error::custom(format!("there is no mode `{name}`")))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn mode_name<S: Serializer>(mode: &Workspace, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name_of(*mode))
}

pub fn name_of(mode: Workspace) -> &'static str {
    match mode {
        Workspace::Direct => "direct",
        Workspace::None => "none",
        Workspace::Overlay => "overlay",
        Workspace::Readonly => "readonly",
    }
}

pub const WORKSPACE: &str = "/workspace";
const HOME: &str = "/home/agent";
/// A name, since the address is known only when the network is made.
const GATEWAY: &str = "gateway.sluice";
const PORTS: Ports = Ports { dns: 53, http: 80, https: 443, proxy: 3128, socks: 1080 };
/// Debian, Fedora, Alpine: for tools that read no variable.
const COVERED: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

#[cfg(test)]
pub(crate) mod tests;
