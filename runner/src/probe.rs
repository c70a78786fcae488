//! What must be in force before a command starts.
//!
//! The sandbox's first process measures ([`crate::init::measure`]); this judges.
//! Each line is a prerequisite of a promise. One that does not hold is a refusal
//! to start, never a weaker start. One that cannot be measured does not hold.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::plan::Plan;

/// Facts from inside, by name.
pub type Facts = BTreeMap<String, String>;

/// One prerequisite, and whether it holds.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Finding {
    pub what: &'static str,
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
    let findings = findings(facts, plan);
    let isolated = findings.iter().all(|finding| finding.holds).then_some(Isolated(()));
    (findings, isolated)
}

fn findings(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    let is = |what, name: &str, wanted: &str| judged(facts, what, name, wanted, |m| m == wanted);
    let zero = |what, name: &str| is(what, name, NO_CAPABILITIES);
    let limits = &plan.limits;
    let user = format!("{0} {0} {0} {0}", plan.user.uid);
    let mut findings = vec![
        is("no new privileges", "no_new_privs", "1"),
        is("system calls are filtered", "seccomp", "2"),
        zero("no inheritable capabilities", "cap_inheritable"),
        zero("no permitted capabilities", "cap_permitted"),
        zero("no effective capabilities", "cap_effective"),
        zero("no capabilities to gain", "cap_bounding"),
        zero("no ambient capabilities", "cap_ambient"),
        is("not root", "uid", &user),
        is("the root is read-only", "root", "readonly"),
        is("own control group namespace", "cgroup_namespace", "private"),
        is("no IPv6", "ipv6", "none"),
        is("no packet sockets", "af_packet", "refused"),
        is("no hypervisor sockets", "af_vsock", "refused"),
        is("no engine socket", "engine_socket", "none"),
        is("kernel settings are closed", "kernel_settings", "closed"),
        is("system requests are closed", "sysrq", "closed"),
        judged(
            facts,
            "open files are limited",
            "open_files",
            &limits.open_files.to_string(),
            |m| at_most(m, limits.open_files),
        ),
    ];
    if plan.workspace.source.is_some() {
        findings.push(is("the workspace is the project", "workspace", "there"));
    }
    // What nobody can keep here is said in the plan, and is nothing to measure.
    let is_kept = |limit: &str| !plan.unenforced.contains(&limit);
    if is_kept("memory") {
        let most = limits.memory;
        findings.push(judged(facts, "memory is limited", "memory_limit", &most.to_string(), |m| {
            at_most(m, most)
        }));
    }
    if is_kept("pids") {
        let most = limits.pids;
        findings.push(judged(
            facts,
            "processes are limited",
            "pids_limit",
            &most.to_string(),
            |m| at_most(m, most.into()),
        ));
    }
    if is_kept("cpus") {
        let most = limits.cpu_millis;
        findings.push(judged(facts, "processors are limited", "cpu_quota", &cpus(most), |m| {
            quota_millis(m).is_some_and(|millis| millis <= u64::from(most))
        }));
    }
    match &plan.network {
        None => findings.push(is("no network", "interfaces", "lo")),
        Some(network) => findings.extend([
            is("one network", "interfaces", network.interfaces),
            judged(facts, "nobody at the next hop", "next_hop", "none or silent", |m| {
                m == "none" || m == "silent"
            }),
            is("names lead to the gateway", "names", "gateway"),
        ]),
    }
    // Nothing relies on it, so it is no reason to refuse; what there is is told.
    if let Some(wall) = facts.get("second_wall").filter(|wall| *wall != "unknown") {
        findings.push(Finding {
            what: "a second wall",
            measured: wall.clone(),
            wanted: "landlock, where the kernel has it".to_owned(),
            holds: true,
        });
    }
    findings
}

/// Every set of capabilities, empty.
const NO_CAPABILITIES: &str = "0000000000000000";

fn judged(
    facts: &Facts,
    what: &'static str,
    name: &str,
    wanted: &str,
    holds: impl Fn(&str) -> bool,
) -> Finding {
    let measured = facts.get(name).map_or("nothing", String::as_str).to_owned();
    Finding { what, holds: holds(&measured), measured, wanted: wanted.to_owned() }
}

fn at_most(measured: &str, most: u64) -> bool {
    measured.parse::<u64>().is_ok_and(|measured| measured <= most)
}

fn cpus(millis: u32) -> String {
    format!("{millis} thousandths")
}

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
