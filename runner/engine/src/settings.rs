//! What the gateway of a run is told: its settings, and the policy as it was read.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Component, Path};

use policies::{Registries, RegistryUrl};

use crate::backend::{Listeners, Network};
use crate::plan::{NetworkPlan, Origin, Plan, Ports, UserIds};
pub use crate::public_file::write;
pub use crate::spec::{GatewayPolicy, Upstream};

/// `gateway.yaml`, as the gateway sees things: it is shut in the same way by
/// every backend.
pub fn gateway_yaml(
    plan: &Plan,
    planned: &NetworkPlan,
    policy: &GatewayPolicy,
    network: &Network,
    upstream: &Upstream,
    roots: &[String],
) -> String {
    let mut text = format!(
        "run: {}
policy: {}
policy_root: {POLICY_ROOT}
control: /control/control.sock
audit: /audit
ca: memory
limits: {{drain: 2s}}
{}",
        plan.run,
        quoted(&policy.path.display().to_string()),
        doors(&planned.ports, network)
    );
    text.push_str(&origin(&plan.origin));
    if !policy.allow.is_empty() {
        let hosts: Vec<String> = policy.allow.iter().map(|host| format!("\"{host}\"")).collect();
        writeln!(text, "allow: [{}]", hosts.join(", ")).expect("writing to a string");
    }
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

/// Who started the run, for the first line of its log.
fn origin(origin: &Origin) -> String {
    let Origin { user, host, project, backend, version } = origin;
    let mut text = format!(
        "origin: {{user: {}, host: {}, backend: {backend}, version: {}",
        quoted(user),
        quoted(host),
        quoted(version),
    );
    if let Some(project) = project {
        write!(text, ", project: {}", quoted(&project.display().to_string()))
            .expect("writing to a string");
    }
    text.push_str("}\n");
    text
}

/// What somebody else wrote, as a YAML scalar: what JSON quotes, YAML reads.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Where it listens, and what it stands between.
fn doors(ports: &Ports, network: &Network) -> String {
    let at = network.gateway;
    match network.listeners {
        Listeners::Own => format!(
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
        Listeners::Inherited => format!(
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
pub fn write_policy(folder: &Path, policy: &GatewayPolicy) -> io::Result<()> {
    let folder = folder.join(POLICY_ROOT);
    for (path, text) in &policy.texts {
        let path = path.strip_prefix("/").unwrap_or(path);
        // A path that leads out would be written there.
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

/// Who the gateway is: the caller, unless that is root.
pub fn gateway_user() -> UserIds {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if uid == 0 { UserIds { uid: GATEWAY_UID, gid: GATEWAY_UID } } else { UserIds { uid, gid } }
}

/// Where the policy's files are, below the settings: the whole path of each, so
/// that what was beside a file, or above it, still is.
const POLICY_ROOT: &str = "files";

/// A user that no distribution gives away.
const GATEWAY_UID: u32 = 65532;

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use policies::HostPattern;

    use super::*;

    const NETWORK: NetworkPlan = NetworkPlan {
        gateway: std::borrow::Cow::Borrowed("gateway.sluice"),
        interfaces: std::borrow::Cow::Borrowed("lo"),
        ports: crate::plan::Ports { dns: 53, http: 80, https: 443, proxy: 3128, socks: 1080 },
        observe: true,
        rules: 0,
        trust: std::borrow::Cow::Borrowed("/etc/sluice/ca"),
        covered: Vec::new(),
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
        let request = crate::plan::tests::request();
        let plan = crate::plan::tests::planned("version: 1\n", &request);
        let allow = vec![HostPattern::parse("c.test").unwrap()];
        let own = PathBuf::from("/home/kim/a \"b\"/p.yaml");
        let policy = GatewayPolicy { path: own.clone(), texts: Vec::new(), allow };
        let roots = ["roots/system.pem".to_owned()];
        let at = std::net::Ipv4Addr::new(192, 0, 2, 2);
        let network =
            Network { name: "n".to_owned(), gateway: at, sandbox: at, listeners: Listeners::Own };
        let text = gateway_yaml(&plan, &NETWORK, &policy, &network, &upstream, &roots);
        let source = policies::Source::new("gateway.yaml", text);
        let read = gateway::config::read(&source, Path::new("/settings")).unwrap();
        assert!(read.observe);
        assert_eq!(read.registries, upstream.registries);
        assert_eq!((read.policy, read.allow), (own, policy.allow));
        assert_eq!(read.policy_root, Some(PathBuf::from("/settings/files")));
        assert_eq!(read.origin, plan.origin.recorded());

        let meant = registries_meant(&upstream.registries);
        assert!(meant.lines().all(|line| line.starts_with("# ")), "{meant}");
        assert!(meant.contains("mean https://files.test, for files"), "{meant}");
    }

    #[test]
    fn no_policy_file_is_written_outside_its_folder() {
        let home = tempfile::tempdir().unwrap();
        let inside = home.path().join("in");
        for path in ["../out", "/../out", "a/../../out"] {
            let texts = vec![(PathBuf::from(path), Arc::from("x"))];
            let policy = GatewayPolicy { path: path.into(), texts, allow: Vec::new() };
            assert!(write_policy(&inside, &policy).is_err(), "{path}");
        }
        assert!(!home.path().join("out").exists());
    }
}
