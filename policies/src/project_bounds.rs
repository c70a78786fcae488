//! What a project's own policy may grant.
//!
//! A policy that comes with a project was written by the project's author, or by an
//! earlier run. Even when approved, it cannot grant more than the user's own
//! configuration permits: which directories outside of the project may be mounted,
//! how far a run may go beyond its policy, and which hosts get a secret. It cannot
//! say at all where a secret's value comes from.

use std::collections::BTreeMap;
use std::fmt;

use crate::document::{
    MountMode, OverridesSection, PolicyDocument, ProcSection, SecretFrom, SecretSection,
};
use crate::host_pattern::{HostPattern, listed_hosts};
use crate::merge::{merge_overrides, proc_limits};
use crate::names::SecretName;
use crate::policy::{Overrides, ProcLimits};
use crate::problems::{Problems, Source};
use crate::yaml::{Item, Spanned};

/// What files of a project may grant at most.
pub struct ProjectBounds<'b> {
    /// How far a single run may go beyond its policy.
    pub overrides: &'b Overrides,
    /// The hosts that may get a secret. A secret that is not listed has no value, so
    /// its hosts are not checked.
    pub secrets: BTreeMap<&'b SecretName, &'b [HostPattern]>,
    /// Whether a directory may be mounted; if not, the reason and who can permit it.
    pub mount: Box<MayMount<'b>>,
    /// Whether the policy is about to be enforced. Then these problems are reported
    /// together with all others.
    pub is_enforced: bool,
}

/// Called with a mount's source as written.
pub type MayMount<'b> = dyn Fn(&str, MountMode) -> Result<(), String> + 'b;

impl fmt::Debug for ProjectBounds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProjectBounds")
            .field("overrides", &self.overrides)
            .field("secrets", &self.secrets)
            .finish_non_exhaustive()
    }
}

impl OverridesSection {
    /// What this section alone grants.
    pub fn granted(&self) -> Overrides {
        merge_overrides(std::iter::once(self))
    }
}

impl ProjectBounds<'_> {
    /// Everything that `document` asks for beyond them.
    pub(crate) fn check(
        &self,
        source: &Source,
        document: &PolicyDocument,
        out_of_bounds: &mut Problems,
    ) {
        for (index, Spanned { at, value }) in document.fs.mounts.iter().enumerate() {
            if let Err(why) = (self.mount)(&value.source, value.mode) {
                out_of_bounds.push(source.problem(*at, format!("fs.mounts[{index}]"), why));
            }
        }
        for (name, written) in &document.secrets {
            self.secret(source, name, written, out_of_bounds);
        }
        self.overrides(source, &document.overrides, out_of_bounds);
    }

    fn secret(
        &self,
        source: &Source,
        name: &SecretName,
        written: &Item<SecretSection>,
        out_of_bounds: &mut Problems,
    ) {
        let SecretSection { from, hosts, .. } = &written.value;
        if let Some(Spanned { at, value }) = from {
            let from = match value {
                SecretFrom::Env(name) => format!("{{env: {name}}}"),
                SecretFrom::File(path) => format!("{{file: {path}}}"),
            };
            let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
            let message = format!(
                "a project's policy names a secret and cannot say where its value comes from; if \
                 you mean it, write `secrets: {{{name}: {{from: {from}, hosts: [{}]}}}}` into your \
                 own configuration and leave `from` out here",
                hosts.join(", ")
            );
            out_of_bounds.push(source.problem(*at, format!("secrets.{name}.from"), message));
        }
        let Some(permitted) = self.secrets.get(name) else { return };
        for host in hosts.iter().filter(|host| !host.is_among(permitted)) {
            let message = format!(
                "`{host}` is not among the hosts that your configuration gives `{name}` to, which \
                 are {}; add it to `secrets.{name}.hosts` there, or drop it here",
                listed(permitted)
            );
            out_of_bounds.push(source.problem(
                written.at,
                format!("secrets.{name}.hosts"),
                message,
            ));
        }
    }

    fn overrides(&self, source: &Source, written: &OverridesSection, out_of_bounds: &mut Problems) {
        let switches = [
            ("no_sandbox", &written.no_sandbox, self.overrides.no_sandbox),
            ("observe", &written.observe, self.overrides.observe),
        ];
        for (name, written, permitted) in switches {
            if let Some(Spanned { at, value: true }) = written
                && !permitted
            {
                let message = format!(
                    "a project's policy cannot permit this by itself; your own configuration can: \
                     `overrides: {{{name}: true}}`"
                );
                out_of_bounds.push(source.problem(*at, format!("overrides.{name}"), message));
            }
        }
        if let Some(Spanned { at, value: hosts }) = &written.allow {
            let permitted = &self.overrides.allow;
            for host in hosts.iter().filter(|host| !host.is_among(permitted)) {
                let message = format!(
                    "a project's policy may let a run add only hosts that your own configuration \
                     permits, which are {}; `overrides: {{allow: [\"{host}\"]}}` there permits this",
                    listed(permitted)
                );
                out_of_bounds.push(source.problem(*at, "overrides.allow", message));
            }
        }
        if let Some(Spanned { at, value }) = &written.max {
            for why in beyond_max(value, &self.overrides.max) {
                out_of_bounds.push(source.problem(*at, "overrides.max", why));
            }
        }
    }
}

fn beyond_max(written: &ProcSection, permitted: &ProcLimits) -> Vec<String> {
    let ProcLimits { cpus, memory, pids, disk, timeout, output } = proc_limits(written);
    let checked = [
        larger("cpus", cpus, permitted.cpus),
        larger("memory", memory, permitted.memory),
        larger("pids", pids, permitted.pids),
        larger("disk", disk, permitted.disk),
        larger("timeout", timeout, permitted.timeout),
        larger("output", output, permitted.output),
    ];
    checked.into_iter().flatten().collect()
}

fn larger<T: Copy + Ord + ToString>(
    limit: &str,
    written: Option<T>,
    permitted: Option<T>,
) -> Option<String> {
    let written = written?;
    let most = match permitted {
        Some(most) if written <= most => return None,
        Some(most) => format!("`{}`", most.to_string()),
        None => "nothing".to_owned(),
    };
    let written = written.to_string();
    Some(format!(
        "{limit} `{written}` is more than your own configuration lets a project's policy permit, \
         which is {most}; `overrides: {{max: {{{limit}: {written}}}}}` there permits this"
    ))
}

fn listed(hosts: &[HostPattern]) -> String {
    if hosts.is_empty() { "none".to_owned() } else { listed_hosts(hosts) }
}

#[cfg(test)]
mod tests;
