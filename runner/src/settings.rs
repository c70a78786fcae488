//! What the gateway of a run is told: its settings, and the policy as it was read.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::backend::{Doors, Network};
use crate::plan::{NetworkPlan, Ports, RunId, UserIds};

/// How the gateway finds and believes upstreams, for pilots and tests.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Upstream {
    /// Names that live at an address of the operator's choice.
    pub pins: Vec<(String, String)>,
    /// Further authorities to believe.
    pub roots: Vec<PathBuf>,
}

/// `gateway.yaml`, as the gateway sees things: it is shut in the same way by
/// every backend.
pub fn gateway_yaml(
    run: &RunId,
    planned: &NetworkPlan,
    network: &Network,
    upstream: &Upstream,
) -> String {
    let mut text = format!(
        "run: {run}
policy: policy.yaml
control: /control/control.sock
audit: /audit
ca: memory
limits: {{drain: 2s}}
{}",
        doors(&planned.ports, network)
    );
    if !upstream.pins.is_empty() || !upstream.roots.is_empty() {
        text.push_str("upstream:\n");
    }
    if !upstream.roots.is_empty() {
        let files: Vec<_> =
            (0..upstream.roots.len()).map(|number| format!("roots/{number}.pem")).collect();
        writeln!(text, "  roots: {{files: [{}]}}", files.join(", ")).expect("writing to a string");
    }
    if !upstream.pins.is_empty() {
        text.push_str("  hosts:\n");
        for (name, address) in &upstream.pins {
            writeln!(text, "    {name}: \"{address}\"").expect("writing to a string");
        }
    }
    text
}

/// Where it listens, and what it stands between.
fn doors(ports: &Ports, network: &Network) -> String {
    let at = network.gateway;
    match network.doors {
        Doors::Own => format!(
            "topology: dual_homed
listen:
  proxy: {at}:{}
  socks: {at}:{}
  http: {at}:{}
  https: {at}:{}
  dns: {at}:{}
",
            ports.proxy, ports.socks, ports.http, ports.https, ports.dns
        ),
        // Planted sockets listen on every address, so it has to be told its own.
        Doors::Planted => format!(
            "topology: host
listen: {{proxy: fd:proxy, socks: fd:socks, http: fd:http, https: fd:https, dns: fd:dns}}
dns: {{answer: {at}}}
"
        ),
    }
}

/// Writes the policy's files and the roots below `folder`, where the gateway
/// reads them.
pub fn write_policy(
    folder: &Path,
    policy: &[(PathBuf, Arc<str>)],
    upstream: &Upstream,
) -> io::Result<()> {
    for (path, text) in policy {
        // These are our own; but a path that leads out would be written there.
        if !path.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(io::Error::other(format!("{} leads out of its folder", path.display())));
        }
        write(&folder.join(path), text.as_bytes())?;
    }
    for (number, root) in upstream.roots.iter().enumerate() {
        write(&folder.join(format!("roots/{number}.pem")), &fs::read(root)?)?;
    }
    Ok(())
}

/// Writes a file that the gateway's user can read; the folder around all of it
/// is closed to everybody else.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(above) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(above)?;
    }
    fs::write(path, bytes)?;
    fs::set_permissions(path, Permissions::from_mode(0o644))
}

/// Who the gateway is: the caller, unless that is root.
pub fn gateway_user() -> UserIds {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if uid == 0 { UserIds { uid: NOBODY_ELSE, gid: NOBODY_ELSE } } else { UserIds { uid, gid } }
}

/// A user that no distribution gives away.
const NOBODY_ELSE: u32 = 65532;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_policy_file_is_written_outside_its_folder() {
        let home = tempfile::tempdir().unwrap();
        let inside = home.path().join("in");
        for path in ["../out", "/out", "a/../../out"] {
            let policy = [(PathBuf::from(path), Arc::from("x"))];
            assert!(write_policy(&inside, &policy, &Upstream::default()).is_err(), "{path}");
        }
        assert!(!home.path().join("out").exists());
    }
}
