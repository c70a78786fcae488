//! One rule on the host, when we may set it: nothing from a sandbox's bridge is
//! for the host itself.
//!
//! The bridge has no address, so nothing on the host answers there anyway. The
//! rule is for what does not need one, such as a raw frame. It is set once and
//! stays: it names every bridge of ours, and there may be other runs.

use std::process::{Command, Stdio};

use super::labels::BRIDGE_PREFIX;
use crate::environment::Environment;

/// Whether the rule is in force.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Firewall {
    /// We are not root, or there is no `iptables`.
    Absent,
    InForce,
}

pub(super) fn ensure(environment: &Environment) -> Firewall {
    if !rustix::process::geteuid().is_root() {
        return Firewall::Absent;
    }
    let device = format!("{BRIDGE_PREFIX}+");
    let rule = |verb: &str| {
        iptables(environment, &["-w", "5", verb, "INPUT", "-i", &device, "-j", "DROP"])
    };
    if rule("-C") || rule("-I") { Firewall::InForce } else { Firewall::Absent }
}

fn iptables(environment: &Environment, arguments: &[&str]) -> bool {
    let ran = Command::new("iptables")
        .args(arguments)
        .env_clear()
        .envs(environment.variables())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    ran.is_ok_and(|status| status.success())
}
