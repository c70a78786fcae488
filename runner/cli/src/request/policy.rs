//! The policy a run is under, and its text as the gateway will read it.
//!
//! The gateway reads the same files that were read here, byte for byte, under the
//! same names, so that both mean the same. What a run adds stands in the gateway's
//! settings, and the policy is asked there once more whether it permits that.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::anyhow;
use engine::settings::GatewayPolicy;
use engine::spec::Approval;
use policies::{HostPattern, NoFiles, NotPermitted, Policy, RunOverrides, Source};

use crate::console::Console;
use crate::exit::Failure;
use crate::policy::obey::{Chosen, obey};
use crate::policy::read::{FilesRead, ReadForRun};
use crate::policy::registries::Managers;

/// A policy, and how to write it down for somebody else.
#[derive(Debug)]
pub(super) struct UnderPolicy {
    pub(super) policy: Policy,
    pub(super) approval: Approval,
    pub(super) files: FilesRead,
    pub(super) for_gateway: GatewayPolicy,
    pub(super) managers: Managers,
}

/// The policy that was chosen, if it may be obeyed, and what this run wants beyond
/// it.
pub(super) fn from_file(
    chosen: Chosen<'_>,
    wanted: &RunOverrides,
    console: &mut Console,
) -> Result<UnderPolicy, Failure> {
    let obeyed = obey(chosen, console).map_err(|failure| match failure {
        // To `run`, 1 is what a command may end with.
        Failure::Failed(_) | Failure::NotStarted(_) => Failure::Usage(failure.in_one_line()),
        Failure::OutputClosed | Failure::Policy(_) | Failure::Usage(_) => failure,
    });
    let (ReadForRun { policy, files, managers }, approval) = obeyed?;
    let policy = policy.for_run(wanted).map_err(|beyond| {
        let beyond: Vec<_> = beyond.iter().map(ToString::to_string).collect();
        Failure::Usage(format!("the policy does not permit this: {}", beyond.join("; ")))
    })?;
    let path = own_file(&policy, &files)?;
    let mut texts: Vec<_> =
        files.values().map(|file| (file.path.clone(), Arc::clone(&file.text))).collect();
    // The policy's own file first.
    texts.sort_by_key(|(other, _)| *other != path);
    let for_gateway = GatewayPolicy { path, texts, allow: wanted.allow.clone() };
    Ok(UnderPolicy { policy, approval, files, for_gateway, managers })
}

/// Where the policy's own file was when it was read.
fn own_file(policy: &Policy, files: &FilesRead) -> Result<PathBuf, Failure> {
    let own = policy.sources.first().and_then(|name| files.get(name));
    Ok(own.map(|own| own.path.clone()).ok_or_else(|| anyhow!("the policy has no file"))?)
}

/// Without a file the command line is the policy: the network is off unless
/// hosts were named, and then it leads to those.
pub(super) fn from_flags(wanted: &RunOverrides) -> Result<UnderPolicy, Failure> {
    // A command line that permits itself what only a policy may would be no limit.
    if wanted.no_sandbox {
        let beyond = NotPermitted::NoSandbox;
        return Err(Failure::Usage(format!(
            "only a policy can permit this, and there is none: {beyond}"
        )));
    }
    let mut text = String::from("version: 1\nname: command-line\n");
    if !wanted.allow.is_empty() || wanted.observe {
        let mode = if wanted.observe { "observe" } else { "enforce" };
        let hosts = hosts(&wanted.allow);
        text.push_str(&format!("net: {{enabled: true, mode: {mode}, allow: [{hosts}]}}\n"));
    }
    let text: Arc<str> = text.into();
    let name = "the command line";
    let mut policy = policies::read(&Source::new(name, Arc::clone(&text)), &NoFiles)?;
    policy.proc = wanted.proc.clone();
    Ok(UnderPolicy {
        policy,
        approval: Approval::Named,
        files: FilesRead::new(),
        for_gateway: GatewayPolicy {
            path: name.into(),
            texts: vec![(name.into(), text)],
            allow: Vec::new(),
        },
        managers: Managers::default(),
    })
}

fn hosts(hosts: &[HostPattern]) -> String {
    hosts.iter().map(|host| format!("\"{host}\"")).collect::<Vec<_>>().join(", ")
}
