//! What isolation must be in force before a command starts.
//!
//! The sandbox's first process measures ([`inside::init::measure`]); this judges.
//! Each [`Check`] is a prerequisite of a promise. One that does not hold is a
//! refusal to start, never a weaker start. One that cannot be measured does not
//! hold.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// Facts from inside, by name.
pub type Facts = BTreeMap<String, String>;

/// One prerequisite, and whether it holds.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Finding {
    pub id: Check,
    /// The label of `id`, for people.
    pub what: String,
    pub measured: String,
    pub wanted: String,
    pub holds: bool,
}

/// Proof that a sandbox is as strong as its plan. Made only by [`check`].
#[derive(Debug)]
#[must_use]
pub struct Isolated(());

/// Judges what was measured in the sandbox of `plan`.
pub fn check(facts: &Facts, plan: &Plan) -> (Vec<Finding>, Option<Isolated>) {
    let findings: Vec<_> = Check::ALL.iter().filter_map(|it| it.judge(facts, plan)).collect();
    let isolated = findings.iter().all(|finding| finding.holds).then_some(Isolated(()));
    (findings, isolated)
}

/// Declares [`Check`], so that no list of them can miss one.
macro_rules! checks {
    ($($name:ident, $id:literal, $label:literal;)+) => {
        /// Something that is measured from inside, in the order of `run.json`.
        #[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
        pub enum Check {
            $(#[serde(rename = $id)] $name,)+
        }

        impl Check {
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// Its name for programs, which stays.
            pub const fn id(self) -> &'static str {
                match self {
                    $(Self::$name => $id,)+
                }
            }

            /// What it is called towards people.
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)+
                }
            }
        }
    };
}

checks! {
    NoNewPrivs, "no_new_privs", "no new privileges";
    Seccomp, "seccomp", "system calls are filtered";
    CapInheritable, "cap_inheritable", "no inheritable capabilities";
    CapPermitted, "cap_permitted", "no permitted capabilities";
    CapEffective, "cap_effective", "no effective capabilities";
    CapBounding, "cap_bounding", "no capabilities to gain";
    CapAmbient, "cap_ambient", "no ambient capabilities";
    Uid, "uid", "not root";
    Root, "root", "the root is read-only";
    CgroupNamespace, "cgroup_namespace", "own control group namespace";
    Ipv6, "ipv6", "no IPv6";
    AfPacket, "af_packet", "no packet sockets";
    AfVsock, "af_vsock", "no hypervisor sockets";
    EngineSocket, "engine_socket", "no engine socket";
    KernelSettings, "kernel_settings", "kernel settings are closed";
    Sysrq, "sysrq", "system requests are closed";
    OpenFiles, "open_files", "open files are limited";
    Workspace, "workspace", "the workspace is the project";
    MemoryLimit, "memory_limit", "memory is limited";
    PidsLimit, "pids_limit", "processes are limited";
    CpuQuota, "cpu_quota", "processors are limited";
    NoNetwork, "no_network", "no network";
    OneNetwork, "one_network", "no network but its gateway's";
    NextHop, "next_hop", "nobody at the next hop";
    Names, "names", "names lead to the gateway";
    Landlock, "landlock", "a second wall";
}

/// What a measurement is compared with.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Wanted {
    AtMost(u64),
    /// Thousandths of a processor.
    CpusAtMost(u32),
    Exactly(String),
    /// The next hop is not there, or does not answer.
    NoAnswer,
    /// Nothing relies on it: what was measured is told, whatever it is.
    Told(&'static str),
}

impl Check {
    /// What a person can do where it does not hold; nothing where nobody can.
    pub const fn advice(self) -> Option<&'static str> {
        Some(match self {
            Self::NoNewPrivs | Self::Seccomp => {
                "the engine ignored a security option; look for a wrapper or an authorization \
                 plugin that rewrites containers"
            }
            Self::CapInheritable
            | Self::CapPermitted
            | Self::CapEffective
            | Self::CapBounding
            | Self::CapAmbient => {
                "the engine adds capabilities to every container; look at its default settings"
            }
            Self::MemoryLimit | Self::PidsLimit | Self::CpuQuota => {
                "the engine cannot limit it here; rootless engines need control groups version 2 \
                 with the controllers delegated to the user"
            }
            Self::CgroupNamespace => {
                "the engine shares control groups; it needs `--default-cgroupns-mode private` or \
                 a newer version"
            }
            Self::Ipv6 => "IPv6 could not be turned off in the sandbox's network",
            Self::NoNetwork | Self::OneNetwork => {
                "the engine attached the sandbox to a further network"
            }
            Self::NextHop => {
                "the engine gave the sandbox's network an address of this machine; it must know \
                 com.docker.network.bridge.inhibit_ipv4"
            }
            Self::Names => {
                "the engine asks other name servers than the gateway; names would leave this \
                 machine"
            }
            Self::EngineSocket => "the image or the engine mounts an engine's socket",
            Self::Root => "the engine made the image's file system writable",
            Self::OpenFiles => "the engine did not take the limit of open files",
            Self::Uid
            | Self::AfPacket
            | Self::AfVsock
            | Self::KernelSettings
            | Self::Sysrq
            | Self::Workspace
            | Self::Landlock => return None,
        })
    }

    /// What the first process calls the measurement.
    const fn fact(self) -> &'static str {
        match self {
            Self::NoNetwork | Self::OneNetwork => "interfaces",
            Self::Landlock => "second_wall",
            other => other.id(),
        }
    }

    /// What `plan` wants of it; nothing if the plan does not rely on it.
    fn wanted(self, plan: &Plan) -> Option<Wanted> {
        let limits = &plan.limits;
        // What nobody can keep here is said in the plan, and is nothing to measure.
        let is_kept = |limit: &str| !plan.unenforced.iter().any(|known| known == limit);
        let exactly = |text: &str| Some(Wanted::Exactly(text.to_owned()));
        match self {
            Self::NoNewPrivs => exactly("1"),
            Self::Seccomp => exactly("2"),
            Self::CapInheritable
            | Self::CapPermitted
            | Self::CapEffective
            | Self::CapBounding
            | Self::CapAmbient => exactly(NO_CAPABILITIES),
            Self::Uid => exactly(&format!("{0} {0} {0} {0}", plan.user.uid)),
            Self::Root => exactly("readonly"),
            Self::CgroupNamespace => exactly("private"),
            Self::Ipv6 | Self::EngineSocket => exactly("none"),
            Self::AfPacket | Self::AfVsock => exactly("refused"),
            Self::KernelSettings | Self::Sysrq => exactly("closed"),
            Self::OpenFiles => Some(Wanted::AtMost(limits.open_files)),
            Self::Workspace => plan.workspace.source.as_ref().and_then(|_| exactly("there")),
            Self::MemoryLimit => is_kept("memory").then_some(Wanted::AtMost(limits.memory)),
            Self::PidsLimit => is_kept("pids").then_some(Wanted::AtMost(limits.pids.into())),
            Self::CpuQuota => is_kept("cpus").then_some(Wanted::CpusAtMost(limits.cpu_millis)),
            Self::NoNetwork => plan.network.is_none().then_some(Wanted::Exactly("lo".to_owned())),
            Self::OneNetwork => plan.network.as_ref().and_then(|it| exactly(&it.interfaces)),
            Self::NextHop => plan.network.is_some().then_some(Wanted::NoAnswer),
            Self::Names => plan.network.as_ref().and_then(|_| exactly("gateway")),
            Self::Landlock => Some(Wanted::Told("landlock, where the kernel has it")),
        }
    }

    fn judge(self, facts: &Facts, plan: &Plan) -> Option<Finding> {
        let wanted = self.wanted(plan)?;
        let measured = facts.get(self.fact()).map(String::as_str);
        if matches!(wanted, Wanted::Told(_)) && measured.is_none_or(|told| told == "unknown") {
            return None;
        }
        let measured = measured.unwrap_or("nothing");
        Some(Finding {
            id: self,
            what: self.label().to_owned(),
            measured: measured.to_owned(),
            wanted: wanted.in_words(),
            holds: wanted.is_met_by(measured),
        })
    }
}

impl Wanted {
    fn is_met_by(&self, measured: &str) -> bool {
        match self {
            Self::AtMost(most) => measured.parse::<u64>().is_ok_and(|measured| measured <= *most),
            Self::CpusAtMost(most) => {
                quota_millis(measured).is_some_and(|millis| millis <= u64::from(*most))
            }
            Self::Exactly(wanted) => measured == wanted,
            Self::NoAnswer => matches!(measured, "none" | "silent"),
            Self::Told(_) => true,
        }
    }

    fn in_words(&self) -> String {
        match self {
            Self::AtMost(most) => most.to_string(),
            Self::CpusAtMost(millis) => format!("{millis} thousandths"),
            Self::Exactly(wanted) => wanted.clone(),
            Self::NoAnswer => "none or silent".to_owned(),
            Self::Told(wanted) => (*wanted).to_owned(),
        }
    }
}

/// Every set of capabilities, empty.
const NO_CAPABILITIES: &str = "0000000000000000";

/// `50000 100000`: microseconds in each period.
fn quota_millis(measured: &str) -> Option<u64> {
    let (quota, period) = measured.split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    quota.checked_mul(1000)?.checked_div(period)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::{planned, request};

    /// What a sandbox as planned measures.
    fn good(plan: &Plan) -> Facts {
        let network = if plan.network.is_some() { "eth0 lo" } else { "lo" };
        let facts = [
            ("no_new_privs", "1"),
            ("seccomp", "2"),
            ("cap_inheritable", NO_CAPABILITIES),
            ("cap_permitted", NO_CAPABILITIES),
            ("cap_effective", NO_CAPABILITIES),
            ("cap_bounding", NO_CAPABILITIES),
            ("cap_ambient", NO_CAPABILITIES),
            ("uid", "1500 1500 1500 1500"),
            ("root", "readonly"),
            ("cgroup_namespace", "private"),
            ("ipv6", "none"),
            ("af_packet", "refused"),
            ("af_vsock", "refused"),
            ("engine_socket", "none"),
            ("kernel_settings", "closed"),
            ("sysrq", "closed"),
            ("workspace", "there"),
            ("memory_limit", "2147483648"),
            ("pids_limit", "512"),
            ("cpu_quota", "200000 100000"),
            ("open_files", "16384"),
            ("interfaces", network),
        ];
        let only_there = [("names", "gateway"), ("next_hop", "silent")];
        let only_there = only_there.into_iter().filter(|_| plan.network.is_some());
        let all = facts.into_iter().chain(only_there);
        all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn plans() -> [Plan; 2] {
        ["version: 1\n", "version: 1\nnet: {enabled: true}\n"]
            .map(|policy| planned(policy, &request()))
    }

    #[test]
    fn a_sandbox_as_planned_may_start() {
        for plan in plans() {
            let (findings, isolated) = check(&good(&plan), &plan);
            assert!(isolated.is_some(), "{findings:?}");
        }
    }

    #[test]
    fn a_finding_has_a_name_that_stays_and_can_be_read_back() {
        let [_, plan] = plans();
        let (findings, _) = check(&good(&plan), &plan);
        let written = serde_json::to_value(&findings[0]).unwrap();
        assert_eq!(
            written,
            serde_json::json!({
                "id": "no_new_privs", "what": "no new privileges",
                "measured": "1", "wanted": "1", "holds": true,
            })
        );
        for finding in findings {
            let written = serde_json::to_string(&finding).unwrap();
            assert!(written.contains(&format!("{{\"id\":\"{}\"", finding.id.id())), "{written}");
            assert_eq!(serde_json::from_str::<Finding>(&written).unwrap(), finding);
        }
    }

    #[test]
    fn a_second_wall_is_told_and_not_relied_upon() {
        let [plan, _] = plans();
        let mut facts = good(&plan);
        for (wall, told) in [("unknown", None), ("landlock 3", Some("landlock 3"))] {
            facts.insert("second_wall".to_owned(), wall.to_owned());
            let (findings, isolated) = check(&facts, &plan);
            let found = findings.iter().find(|finding| finding.id == Check::Landlock);
            assert_eq!(found.map(|finding| finding.measured.as_str()), told);
            assert!(isolated.is_some());
        }
    }

    #[test]
    fn each_prerequisite_that_is_not_measured_is_a_refusal() {
        for plan in plans() {
            for name in good(&plan).keys() {
                let mut facts = good(&plan);
                facts.remove(name);
                let (findings, isolated) = check(&facts, &plan);
                assert!(isolated.is_none(), "{name}");
                let missing: Vec<_> = findings.iter().filter(|finding| !finding.holds).collect();
                assert_eq!((missing.len(), missing[0].measured.as_str()), (1, "nothing"), "{name}");
            }
        }
    }

    #[test]
    fn each_prerequisite_that_is_weaker_is_a_refusal() {
        let [plan, _] = plans();
        for (name, weaker) in [
            ("no_new_privs", "0"),
            ("seccomp", "0"),
            ("cap_effective", "00000000a80425fb"),
            ("cap_bounding", "0000000000002000"),
            ("uid", "0 0 0 0"),
            ("uid", "1500 0 0 0"),
            ("root", "writable"),
            ("cgroup_namespace", "host"),
            ("ipv6", "present"),
            ("af_vsock", "open"),
            ("engine_socket", "/run/docker.sock"),
            ("memory_limit", "9223372036854771712"),
            ("memory_limit", "max"),
            ("pids_limit", "max"),
            ("cpu_quota", "-1 100000"),
            ("cpu_quota", "max 100000"),
            ("open_files", "unlimited"),
            ("interfaces", "eth0 lo"),
        ] {
            let mut facts = good(&plan);
            facts.insert(name.to_owned(), weaker.to_owned());
            assert!(check(&facts, &plan).1.is_none(), "{name} {weaker}");
        }
        let [_, plan] = plans();
        for (name, weaker) in [("next_hop", "answers"), ("names", "[192.0.2.7]")] {
            let mut facts = good(&plan);
            facts.insert(name.to_owned(), weaker.to_owned());
            assert!(check(&facts, &plan).1.is_none(), "{name} {weaker}");
        }
    }
}
