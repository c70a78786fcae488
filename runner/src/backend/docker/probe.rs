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
        judged(facts, "memory is limited", "memory_limit", &limits.memory.to_string(), |m| {
            at_most(m, limits.memory)
        }),
        judged(facts, "processes are limited", "pids_limit", &limits.pids.to_string(), |m| {
            at_most(m, limits.pids.into())
        }),
        judged(facts, "processors are limited", "cpu_quota", &cpus(limits.cpu_millis), |m| {
            quota_millis(m).is_some_and(|millis| millis <= u64::from(limits.cpu_millis))
        }),
        judged(
            facts,
            "open files are limited",
            "open_files",
            &limits.open_files.to_string(),
            |m| at_most(m, limits.open_files),
        ),
    ];
    match &plan.network {
        None => findings.push(is("no network", "interfaces", "lo")),
        Some(_) => findings.push(is("one network", "interfaces", "eth0 lo")),
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
