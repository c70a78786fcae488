//! Reads the gateway's settings.
//!
//! There are two types and one way from the first to the second. `Document` is
//! `gateway.yaml` as written; [`Config`] is what the gateway runs on, and holds
//! nothing that still needs checking. Reading reports every problem in the
//! file, not only the first, each with its line.
//!
//! Paths in the file are relative to the file, so that it means the same
//! wherever the program is started.

mod authority;
mod bounds;
mod document;
mod door;
mod doors;
mod given;
mod proxy;
mod upstream;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, io, path};

use policies::yaml::{self, Spanned};
use policies::{HostName, HostPattern, Problems, Registries, Source};
use protocol::settings::Topology;

use crate::dial::UpstreamSettings;
use crate::limits::Bounds;
pub use authority::Ca;
use document::{AnswerAddress, Document, FilePath};
pub use door::{Door, Fd};
use doors::WrittenHost;
pub use doors::{CapturedPort, HostDoor};
pub use given::{SettingValue, SettingValueError};

/// What the gateway runs on.
#[derive(Debug)]
pub struct Config {
    /// The run whose name every record bears.
    pub run: String,
    pub policy: PathBuf,
    /// The folder that stands in for `/` where policies are read: they keep the
    /// names that the person knows who wrote them.
    pub policy_root: Option<PathBuf>,
    /// Hosts that this run may reach as well, where the policy permits that.
    pub allow: Vec<HostPattern>,
    /// Let pass what no rule names, and record it, where the policy permits that.
    pub observe: bool,
    /// What rules mean that name no registry.
    pub registries: Registries,
    /// Who started the run, for the first line of its log.
    pub origin: audit::LogOrigin,
    pub topology: Topology,
    pub listen: Listen,
    pub dns: DnsSettings,
    /// The control socket.
    pub control: PathBuf,
    /// The directory of the audit log.
    pub audit: PathBuf,
    pub ca: Ca,
    /// The directory into which the trust kit is written at the start, for a
    /// sandbox to which no runner hands it.
    pub trust_kit: Option<PathBuf>,
    pub limits: Bounds,
    /// How many threads serve connections, the caller's included.
    pub workers: usize,
    pub(crate) upstream: UpstreamSettings,
}

/// Where the sandbox is listened for, by way in.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Listen {
    pub proxy: Vec<Door>,
    pub socks: Vec<Door>,
    pub http: Vec<Door>,
    pub https: Vec<Door>,
    pub dns: Vec<Door>,
    /// Ports beside 80 and 443.
    pub ports: Vec<CapturedPort>,
    /// Doors of one host each.
    pub tcp: Vec<HostDoor>,
    /// Raw sockets that see what no listener answers.
    pub unanswered: Option<Fd>,
}

impl Listen {
    fn doors(&self) -> impl Iterator<Item = &Door> {
        let fixed = [&self.proxy, &self.socks, &self.http, &self.https, &self.dns];
        let ports = self.ports.iter().map(|captured| &captured.at);
        let tcp = self.tcp.iter().map(|host| &host.at);
        fixed.into_iter().flatten().chain(ports).chain(tcp)
    }
}

/// How names are answered. Where is [`Listen::dns`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DnsSettings {
    /// The address every name gets; the one that was asked if left out.
    pub answer: Option<Ipv4Addr>,
    /// Names that have an address of their own.
    pub hosts: BTreeMap<HostName, Ipv4Addr>,
    /// How long the sandbox may believe it.
    pub ttl: Duration,
    /// More questions than this are dropped and counted, not answered.
    pub queries_per_second: u32,
}

/// Why there are no settings.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(transparent)]
    Problems(#[from] Problems),
    #[error("{} names `${{{name}}}`, and nobody says what that is; give it with --set {name}=VALUE", path.display())]
    NotGiven { path: PathBuf, name: String },
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is larger than {MAX_SETTINGS_BYTES} bytes, which no settings are", path.display())]
    TooLarge { path: PathBuf },
}

/// Reads the settings in the file at `path`.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    load_with(path, &[])
}

/// The same, with values for what the file only names.
pub fn load_with(path: &Path, given: &[SettingValue]) -> Result<Config, ConfigError> {
    let cannot = |source| ConfigError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let file = fs::File::open(path).map_err(cannot)?;
    file.take(MAX_SETTINGS_BYTES + 1).read_to_string(&mut text).map_err(cannot)?;
    if text.len() as u64 > MAX_SETTINGS_BYTES {
        return Err(ConfigError::TooLarge { path: path.to_owned() });
    }
    let text = given::fill(&text, given)
        .map_err(|name| ConfigError::NotGiven { path: path.to_owned(), name })?;
    let file = path::absolute(path).map_err(cannot)?;
    let base = file.parent().unwrap_or(Path::new("/"));
    Ok(read(&Source::new(path.display().to_string(), text), base)?)
}

/// Reads settings whose relative paths start at `base`.
pub fn read(source: &Source, base: &Path) -> Result<Config, Problems> {
    let document: Document = yaml::read(source)?;
    resolve(document, source, base)
}

fn resolve(document: Document, source: &Source, base: &Path) -> Result<Config, Problems> {
    let mut problems = Problems::default();
    let Document {
        run,
        policy,
        policy_root,
        allow,
        listen,
        dns,
        control,
        audit,
        ca,
        trust_kit,
        limits,
        upstream,
        topology,
        observe,
        registries,
        origin,
    } = document;

    let answer = dns.answer.map(|AnswerAddress(address)| address);
    let listen = listen.map(|Spanned { at, value }| {
        let listen = value.resolve();
        if let Err((path, message)) = check_listeners(&listen, answer) {
            problems.push(source.problem(at, path, message));
        }
        listen
    });
    let upstream = upstream.resolve(source, base, &|name| env::var(name), &mut problems);
    let ca = ca.resolve(base, |Spanned { at, value }| {
        problems.push(source.problem(at, "ca.lifetime", value));
    });

    for (name, is_missing) in [
        ("run", run.is_none()),
        ("policy", policy.is_none()),
        ("listen", listen.is_none()),
        ("control", control.is_none()),
        ("audit", audit.is_none()),
    ] {
        if is_missing {
            problems.push(source.whole(format!("`{name}` is missing")));
        }
    }
    let (
        Some(run),
        Some(FilePath(policy)),
        Some(listen),
        Some(FilePath(control)),
        Some(FilePath(audit)),
    ) = (run, policy, listen, control, audit)
    else {
        return Err(problems.in_reading_order());
    };

    problems.or(Config {
        run: run.as_str().to_owned(),
        policy: if policy_root.is_some() { policy } else { base.join(policy) },
        policy_root: policy_root.map(|FilePath(path)| base.join(path)),
        allow,
        observe,
        registries: registries.resolve(),
        origin: origin.resolve(),
        topology: topology.unwrap_or_else(|| topology_of(&listen)),
        listen,
        dns: DnsSettings {
            answer,
            hosts: dns
                .hosts
                .into_iter()
                .map(|(WrittenHost(name), AnswerAddress(at))| (name, at))
                .collect(),
            ttl: dns.ttl.map_or(DEFAULT_DNS_TTL, policies::Span::get),
            queries_per_second: dns
                .queries_per_second
                .map_or(DEFAULT_DNS_QUERIES_PER_SECOND, |count| count.0),
        },
        control: base.join(control),
        audit: base.join(audit),
        ca,
        trust_kit: trust_kit.map(|FilePath(path)| base.join(path)),
        workers: 1,
        limits: limits.resolve(),
        upstream,
    })
}

/// What is wrong with the listeners together, and where that is written.
fn check_listeners(
    listen: &Listen,
    answer: Option<Ipv4Addr>,
) -> Result<(), (&'static str, String)> {
    if listen.doors().next().is_none() {
        let message = "nothing would listen; name at least one of `proxy`, `socks`, `http`, \
                       `https`, `dns`, `ports`, `tcp`";
        return Err(("listen", message.to_owned()));
    }
    match listen.dns.iter().find(|door| answer.is_none() && !door.has_own_ipv4()) {
        None => Ok(()),
        Some(door) => Err((
            "listen.dns",
            format!(
                "`{door}` does not say which IPv4 address names are answered with; listen on one \
                 address, or write `dns: {{answer: ADDRESS}}`"
            ),
        )),
    }
}

/// Where nothing is said: a gateway that listens on a network stands between
/// that network and another.
fn topology_of(listen: &Listen) -> Topology {
    if listen.doors().all(Door::is_on_this_host) { Topology::Host } else { Topology::DualHomed }
}

const MAX_SETTINGS_BYTES: u64 = 1024 * 1024;
/// Long enough for a program to use what it asked for, short enough that a
/// gateway that moved is found again.
const DEFAULT_DNS_TTL: Duration = Duration::from_secs(5);
/// A busy package manager asks for dozens of names a second.
const DEFAULT_DNS_QUERIES_PER_SECOND: u32 = 200;

#[cfg(test)]
mod tests;
