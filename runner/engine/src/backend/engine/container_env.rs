//! What is inside a sandbox, whichever engine makes it.

use std::path::PathBuf;

use policies::Attachment;
use protocol::init::{InitArgs, RelayArgs, SandboxLifetime};

use crate::backend::doors;
use crate::backend::local::LocalFiles;
use crate::backend::{SandboxContent, WorkspaceMount};
use crate::plan::{NetworkPlan, Plan};

/// Something of the host's that a sandbox sees.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::backend) struct Bind {
    pub(in crate::backend) source: PathBuf,
    pub(in crate::backend) target: String,
    pub(in crate::backend) read_only: bool,
}

/// Everything of the host's that a sandbox sees, but for an overlay. Engines
/// mount what lies deeper later, whatever the order here.
pub(in crate::backend) fn binds(
    plan: &Plan,
    inside: &SandboxContent,
    local: &LocalFiles,
) -> Vec<Bind> {
    let bind = |source: &std::path::Path, target: &str, read_only| Bind {
        source: source.to_owned(),
        target: target.to_owned(),
        read_only,
    };
    let mut binds = vec![bind(&inside.init, INIT, true), bind(&local.socket(), SOCKET, false)];
    binds.extend(inside.probe.iter().map(|probe| bind(probe, PROBE, true)));
    binds.extend(relayed(plan).map(|_| bind(&local.relay_socket(), RELAY_SOCKET, false)));
    if let Some(network) = &plan.network {
        let kit = local.trust();
        binds.push(bind(&kit, &network.trust, true));
        let bundle = kit.join(certs::TrustKit::BUNDLE);
        binds.extend(network.covered.iter().map(|path| bind(&bundle, path, true)));
    }
    for mount in &plan.mounts {
        binds.push(bind(&mount.source, &mount.target, mount.read_only));
    }
    if let WorkspaceMount::Bind { source, read_only } = &inside.workspace {
        binds.push(bind(source, &plan.workspace.target, *read_only));
    }
    binds.extend(inside.protected.iter().map(|(source, target)| bind(source, target, true)));
    binds.extend(inside.masked.iter().map(|masked| bind(&masked.with, &masked.path, true)));
    binds
}

/// What the first process is told.
pub(in crate::backend) fn init_args(plan: &Plan) -> Vec<String> {
    let places = plan.tmpfs.iter().map(|place| &*place.target).chain(["/dev/shm"]);
    let places = places.chain(plan.workspace.source.as_ref().map(|_| &*plan.workspace.target));
    let args = InitArgs {
        socket: SOCKET.into(),
        grace: plan.limits.grace,
        bounded: places.map(str::to_owned).collect(),
        lifetime: match &plan.session {
            Some(session) => SandboxLifetime::Until(session.until.into()),
            None => SandboxLifetime::Attached,
        },
        relay: relayed(plan).map(|network| RelayArgs {
            socket: RELAY_SOCKET.into(),
            doors: doors::listeners(network),
        }),
    };
    vec![serde_json::to_string(&args).expect("plain data")]
}

/// The network of a sandbox whose first process opens the doors by itself.
pub(in crate::backend) fn relayed(plan: &Plan) -> Option<&NetworkPlan> {
    plan.network.as_ref().filter(|network| network.attach == Attachment::Relay)
}

/// What lets it, without a privilege.
pub(in crate::backend) const ANY_PORT: (&str, &str) = ("net.ipv4.ip_unprivileged_port_start", "0");

pub(in crate::backend) const INIT: &str = "/run/sluice/init";
pub(crate) const PROBE: &str = "/run/sluice/probe";
pub(in crate::backend) const SOCKET: &str = "/run/sluice/runner.sock";
const RELAY_SOCKET: &str = "/run/sluice/relay.sock";
pub(in crate::backend) const SHARED_MEMORY: u64 = 64 << 20;

/// What the engine hides by itself, and what it forgot.
pub(in crate::backend) const MASKED: [&str; 13] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/kernel/debug",
];

pub(in crate::backend) const READ_ONLY: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
