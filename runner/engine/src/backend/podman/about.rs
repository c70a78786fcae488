//! What this Podman can promise, from what it says about itself.
//!
//! Without root, on control groups of the first version, it ignores limits and
//! says so in a warning that nobody reads. So it is asked beforehand.

use inside::launch::pools;
use policies::Attachment;
use serde::{Deserialize, Serialize};

use super::NAME;
use crate::backend::{Abilities, Enforcement, UserOf};
use crate::backend::{shared_inotify, shared_pipes};
use crate::spec::AGENT_IMAGE;

/// The parts of `podman info` that matter here.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct About {
    host: PodmanHost,
    version: Version,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodmanHost {
    cgroup_version: String,
    #[serde(default)]
    cgroup_controllers: Option<Vec<String>>,
    #[serde(default)]
    network_backend: String,
    security: Security,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Security {
    rootless: bool,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Version {
    #[serde(rename = "Version")]
    version: String,
}

impl About {
    pub(super) fn version(&self) -> &str {
        &self.version.version
    }

    /// Why it will not do at all.
    pub(super) fn unfit(&self) -> Option<String> {
        let version = &self.version.version;
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        if major.is_none_or(|major| major < OLDEST) {
            return Some(format!("this is Podman {version}; it takes {OLDEST} or newer"));
        }
        // It shares interfaces and firewall with Docker then, and is not what was
        // measured.
        if !self.host.security.rootless {
            let why = "it runs as root, and only Podman without root is known to keep a sandbox in; \
                       use it as another user, or take `--backend docker` or `namespaces`";
            return Some(why.to_owned());
        }
        // Older ones have another, whose internal networks nobody has measured.
        (self.host.network_backend != "netavark").then(|| {
            let found = &self.host.network_backend;
            format!("its networks are made by `{found}`, and only `netavark` is known to keep a sandbox in")
        })
    }

    pub(super) fn abilities(&self) -> Abilities {
        Abilities {
            backend: NAME,
            image: AGENT_IMAGE,
            attachments: Attachment::ALL.to_vec(),
            no_sockets: None,
            cpus: self.limits("cpu"),
            memory: self.limits("memory"),
            // Without a control group, the kernel counts in the user namespace
            // that each sandbox has for itself.
            pids: Enforcement::Enforced,
            inotify: if pools::can_bound() { Enforcement::Enforced } else { shared_inotify() },
            pipes: shared_pipes(),
            terminals: Enforcement::Enforced,
            user: UserOf::Caller,
        }
    }

    /// Whether it can limit what this controller counts.
    pub(super) fn limits(&self, controller: &str) -> Enforcement {
        if self.host.cgroup_version != "v2" {
            let why =
                "without root it needs control groups of version 2, and this machine has version 1";
            return Enforcement::Unavailable { why: why.to_owned() };
        }
        let delegated = self.host.cgroup_controllers.iter().flatten();
        if delegated.into_iter().any(|known| known == controller) {
            return Enforcement::Enforced;
        }
        Enforcement::Unavailable {
            why: format!("the controller `{controller}` is not delegated to this user"),
        }
    }
}

const OLDEST: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn about(rootless: bool, groups: &str, controllers: &[&str]) -> About {
        let said = serde_json::json!({
            "host": {
                "cgroupVersion": groups,
                "cgroupControllers": controllers,
                "networkBackend": "netavark",
                "security": {"rootless": rootless},
                "somethingElse": 1,
            },
            "version": {"Version": "4.3.1"},
        });
        serde_json::from_value(said).unwrap()
    }

    fn enforced(about: &About) -> [bool; 3] {
        let Abilities { cpus, memory, pids, .. } = about.abilities();
        [cpus, memory, pids].map(|ability| ability == Enforcement::Enforced)
    }

    #[test]
    fn without_root_the_first_version_of_control_groups_limits_nothing_but_processes() {
        let about = about(true, "v1", &[]);
        assert_eq!(enforced(&about), [false, false, true]);
        let Enforcement::Unavailable { why } = about.limits("memory") else { panic!("it cannot") };
        assert!(why.contains("version 2"), "{why}");
    }

    #[test]
    fn without_root_only_what_is_delegated_is_limited() {
        assert_eq!(enforced(&about(true, "v2", &["memory", "pids"])), [false, true, true]);
        assert_eq!(enforced(&about(true, "v2", &["cpu", "memory", "pids"])), [true, true, true]);
    }

    #[test]
    fn what_nobody_has_measured_is_refused() {
        let mut old = about(true, "v2", &[]);
        assert_eq!(old.unfit(), None);
        assert!(about(false, "v2", &[]).unfit().unwrap().contains("as root"));
        old.host.network_backend = "cni".to_owned();
        assert!(old.unfit().unwrap().contains("netavark"));
        old.version.version = "3.4.4".to_owned();
        assert!(old.unfit().unwrap().contains("3.4.4"));
    }
}
