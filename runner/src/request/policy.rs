//! The policy a run is under, and its text as the gateway will read it.
//!
//! The gateway reads the same files that were read here, byte for byte, in the
//! same places relative to each other, so that both mean the same. What a run
//! adds is a policy of its own that extends them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use policies::{Beyond, HostPattern, NoFiles, Policy, RunOverrides, Source};

use crate::exit::Failure;
use crate::policy::files::Opened;
use crate::policy::read::{self, ReadForRun};
use crate::policy::registries::Managers;

/// A policy, and how to write it down for somebody else.
#[derive(Debug)]
pub(super) struct UnderPolicy {
    pub(super) policy: Policy,
    pub(super) files: BTreeMap<Arc<str>, Opened>,
    /// Where each text goes, the first one first.
    pub(super) texts: Vec<(PathBuf, Arc<str>)>,
    pub(super) managers: Managers,
}

/// The policy in the file at `path`, and what this run wants beyond it.
pub(super) fn from_file(path: &Path, wanted: &RunOverrides) -> Result<UnderPolicy, Failure> {
    let ReadForRun { policy, files, managers } = read::read_for_run(path)?;
    let policy = policy.for_run(wanted).map_err(|beyond| {
        let beyond: Vec<_> = beyond.iter().map(ToString::to_string).collect();
        Failure::Usage(format!("the policy does not permit this: {}", beyond.join("; ")))
    })?;
    let own = path.canonicalize().map_err(|err| anyhow!(err))?;
    let mut texts = vec![(PathBuf::from(FIRST), extending(&kept_at(&own), wanted).into())];
    texts.extend(files.values().map(|file| (kept_at(&file.path), Arc::clone(&file.text))));
    Ok(UnderPolicy { policy, files, texts, managers })
}

/// Without a file the command line is the policy: the network is off unless
/// hosts were named, and then it leads to those.
pub(super) fn from_flags(wanted: &RunOverrides) -> Result<UnderPolicy, Failure> {
    // A command line that permits itself what only a policy may would be no limit.
    if wanted.no_sandbox {
        let beyond = Beyond::NoSandbox;
        return Err(Failure::Usage(format!(
            "there is no policy here, and only one permits it: {beyond}"
        )));
    }
    let mut text = String::from("version: 1\nname: command-line\n");
    if !wanted.allow.is_empty() || wanted.observe {
        let mode = if wanted.observe { "observe" } else { "enforce" };
        let hosts = hosts(&wanted.allow);
        text.push_str(&format!("net: {{enabled: true, mode: {mode}, allow: [{hosts}]}}\n"));
    }
    let text: Arc<str> = text.into();
    let mut policy = policies::read(&Source::new("the command line", Arc::clone(&text)), &NoFiles)?;
    policy.proc = wanted.proc.clone();
    Ok(UnderPolicy {
        policy,
        files: BTreeMap::new(),
        texts: vec![(FIRST.into(), text)],
        managers: Managers::default(),
    })
}

fn extending(base: &Path, wanted: &RunOverrides) -> String {
    let mut text = format!("version: 1\nname: run\nextends: [\"./{}\"]\n", base.display());
    if !wanted.allow.is_empty() {
        let hosts = hosts(&wanted.allow);
        writeln!(text, "net: {{enabled: true, allow: [{hosts}]}}").expect("writing to a string");
    }
    text
}

fn hosts(hosts: &[HostPattern]) -> String {
    hosts.iter().map(|host| format!("\"{host}\"")).collect::<Vec<_>>().join(", ")
}

/// The whole path, below the gateway's own folder: what was beside a file, or
/// above it, still is.
fn kept_at(path: &Path) -> PathBuf {
    Path::new("files").join(path.strip_prefix("/").unwrap_or(path))
}

/// The policy the gateway is told to read.
const FIRST: &str = "policy.yaml";
