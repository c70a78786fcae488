//! What the gateway of a run is told: its settings, and the policy as it was read.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use policies::{Registries, RegistryUrl};

use crate::backend::{Doors, Network};
use crate::plan::{NetworkPlan, Ports, RunId, UserIds};

/// How the gateway finds and believes upstreams, for pilots and tests.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Upstream {
    /// Names that live at an address of the operator's choice.
    pub pins: Vec<(String, String)>,
    /// Further authorities to believe.
    pub roots: Vec<PathBuf>,
    /// What rules mean that name no registry.
    pub registries: Registries,
}

/// `gateway.yaml`, as the gateway sees things: it is shut in the same way by
/// every backend.
pub fn gateway_yaml(
    run: &RunId,
    planned: &NetworkPlan,
    network: &Network,
    upstream: &Upstream,
    roots: &[String],
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
    if planned.observe {
        text.push_str("observe: true\n");
    }
    text.push_str(&registries(&upstream.registries));
    if !upstream.pins.is_empty() || !roots.is_empty() {
        text.push_str("upstream:\n");
    }
    if !roots.is_empty() {
        writeln!(text, "  roots: {{files: [{}]}}", roots.join(", ")).expect("writing to a string");
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

/// The section of rules that name no registry; nothing if there are none.
fn registries(known: &Registries) -> String {
    if known.is_empty() {
        return String::new();
    }
    let list = |urls: &[RegistryUrl]| {
        urls.iter().map(|url| format!("\"{url}\"")).collect::<Vec<_>>().join(", ")
    };
    let Registries { npm, pip, pip_files } = known;
    format!(
        "registries: {{npm: [{}], pip: [{}], pip_files: [{}]}}\n",
        list(npm),
        list(pip),
        list(pip_files)
    )
}

/// What rules without a registry meant, for whoever reads the policy later.
pub fn registries_meant(known: &Registries) -> String {
    let mut text = String::new();
    let managers = [
        ("pip", &known.pip, ""),
        ("pip", &known.pip_files, ", for files"),
        ("npm", &known.npm, ""),
    ];
    for (manager, urls, what) in managers {
        for url in urls {
            writeln!(text, "# {manager} rules that name no registry mean {url}{what}")
                .expect("writing to a string");
        }
    }
    text
}

/// Writes the policy's files below `folder`, where the gateway reads them.
pub fn write_policy(folder: &Path, policy: &[(PathBuf, Arc<str>)]) -> io::Result<()> {
    for (path, text) in policy {
        // These are our own; but a path that leads out would be written there.
        if !path.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(io::Error::other(format!("{} leads out of its folder", path.display())));
        }
        write(&folder.join(path), text.as_bytes())?;
    }
    Ok(())
}

/// Writes whom the gateway believes below `folder`, and returns how its
/// settings call that: this machine's own roots, since the gateway stands where
/// there may be none, and what the operator named.
pub fn write_roots(folder: &Path, upstream: &Upstream) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    let mut add = |name: String, bytes: &[u8]| {
        write(&folder.join(&name), bytes)?;
        names.push(name);
        Ok::<_, io::Error>(())
    };
    if let Some(system) = certs::system_pem() {
        add("roots/system.pem".to_owned(), system.as_bytes())?;
    }
    for (number, root) in upstream.roots.iter().enumerate() {
        add(format!("roots/{number}.pem"), &fs::read(root)?)?;
    }
    Ok(names)
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

    const NETWORK: NetworkPlan = NetworkPlan {
        gateway: "gateway.sluice",
        interfaces: "lo",
        ports: crate::plan::Ports { dns: 53, http: 80, https: 443, proxy: 3128, socks: 1080 },
        observe: true,
        rules: 0,
        trust: "/etc/sluice/ca",
        covered: &[],
    };

    #[test]
    fn what_the_gateway_is_told_is_what_it_reads() {
        let url = |text| RegistryUrl::parse(text).unwrap();
        let upstream = Upstream {
            pins: vec![("up.test".to_owned(), "192.0.2.7:8443".to_owned())],
            roots: Vec::new(),
            registries: Registries {
                pip: vec![url("https://index.test/simple")],
                pip_files: vec![url("https://files.test/")],
                npm: vec![url("https://npm.test:8443/a")],
            },
        };
        let run = RunId::parse("20261116-031045-7f3a2b").unwrap();
        let roots = ["roots/system.pem".to_owned()];
        let at = std::net::Ipv4Addr::new(192, 0, 2, 2);
        let network = Network { name: "n".to_owned(), gateway: at, sandbox: at, doors: Doors::Own };
        let text = gateway_yaml(&run, &NETWORK, &network, &upstream, &roots);
        let source = policies::Source::new("gateway.yaml", text);
        let read = gateway::config::read(&source, Path::new("/settings")).unwrap();
        assert!(read.observe);
        assert_eq!(read.registries, upstream.registries);

        let meant = registries_meant(&upstream.registries);
        assert!(meant.lines().all(|line| line.starts_with("# ")), "{meant}");
        assert!(meant.contains("mean https://files.test, for files"), "{meant}");
    }

    #[test]
    fn no_policy_file_is_written_outside_its_folder() {
        let home = tempfile::tempdir().unwrap();
        let inside = home.path().join("in");
        for path in ["../out", "/out", "a/../../out"] {
            let policy = [(PathBuf::from(path), Arc::from("x"))];
            assert!(write_policy(&inside, &policy).is_err(), "{path}");
        }
        assert!(!home.path().join("out").exists());
    }
}
