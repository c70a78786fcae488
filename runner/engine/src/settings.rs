//! What the gateway of a run is told: its settings, and the policy as it was read.

use std::fmt::Write as _;
use std::fs;
use std::io;

use policies::{Registries, RegistryUrl};
use protocol::settings::{
    CaPlace, DnsAnswers, GatewaySettings, LimitSettings, ListenSettings, PortDoor, RegistryUrls,
    RootFiles, RunOrigin, TcpDoor, Topology, UpstreamPlaces,
};

use crate::backend::{ContentFiles, ListenerSource, Network};
use crate::door_places::{UNANSWERED, door_of_host, door_of_port, listens_everywhere, own_ports};
use crate::plan::{NetworkPlan, Origin, Plan};
pub use crate::spec::{GatewayPolicy, Upstream};

/// Everything that the gateway reads: its settings, the policy, and the CA certificates by
/// which it verifies upstreams.
/// It is shut in the same way by every backend, so paths are the same too.
pub fn gateway_files(
    plan: &Plan,
    planned: &NetworkPlan,
    policy: &GatewayPolicy,
    network: &Network,
    upstream: &Upstream,
    roots: ContentFiles,
) -> ContentFiles {
    let (topology, listen, dns) = listeners(planned, network);
    let settings = GatewaySettings {
        run: plan.run.to_string(),
        policy: policy.path.display().to_string(),
        policy_root: POLICY_ROOT.to_owned(),
        control: "/control/control.sock".to_owned(),
        audit: "/audit".to_owned(),
        ca: CaPlace::Memory,
        limits: LimitSettings { drain: "2s".to_owned() },
        topology,
        listen,
        dns,
        origin: origin(&plan.origin),
        allow: policy.allow.iter().map(ToString::to_string).collect(),
        observe: planned.observe,
        registries: registries(&upstream.registries),
        upstream: UpstreamPlaces {
            roots: RootFiles { files: roots.iter().map(|(path, _)| path.to_owned()).collect() },
            hosts: upstream.pins.iter().cloned().collect(),
        },
    };
    let mut files = roots;
    let text = serde_json::to_vec_pretty(&settings).expect("plain data");
    files.add("gateway.yaml", text);
    for (path, text) in &policy.texts {
        let path = path.strip_prefix("/").unwrap_or(path);
        files.add(format!("{POLICY_ROOT}/{}", path.display()), text.as_bytes());
    }
    files
}

/// Who started the run, for the first line of its log.
fn origin(origin: &Origin) -> RunOrigin {
    let Origin { user, host, project, backend, version } = origin;
    RunOrigin {
        user: user.clone(),
        host: host.clone(),
        project: project.as_ref().map(|path| path.display().to_string()),
        backend: backend.to_string(),
        version: version.to_string(),
    }
}

/// What it stands between, where it listens, and what it answers to names.
fn listeners(
    planned: &NetworkPlan,
    network: &Network,
) -> (Topology, ListenSettings, Option<DnsAnswers>) {
    let NetworkPlan { ports, doors, .. } = planned;
    let at = network.gateway;
    let listen = |place: &dyn Fn(&str, u16) -> String| ListenSettings {
        ports: doors
            .ports
            .iter()
            .map(|port| PortDoor { port: *port, at: place(&door_of_port(*port), *port) })
            .collect(),
        proxy: place("proxy", ports.proxy),
        socks: place("socks", ports.socks),
        http: place("http", ports.http),
        https: place("https", ports.https),
        dns: place("dns", ports.dns),
        ..ListenSettings::default()
    };
    match network.listeners {
        ListenerSource::Own => {
            (Topology::DualHomed, listen(&|_, port| format!("{at}:{port}")), None)
        }
        // Sockets that it is handed listen on every address, so it is told its own.
        ListenerSource::Inherited => {
            let hosts = doors.hosts.iter().map(|named| (named.host.clone(), named.address));
            let dns = Some(DnsAnswers { answer: at, hosts: hosts.collect() });
            let mut listen = listen(&|name, _| format!("fd:{name}"));
            listen.tcp = doors
                .hosts
                .iter()
                .flat_map(|named| own_ports(planned, named).map(move |port| (named, port)))
                .map(|(named, port)| TcpDoor {
                    host: named.host.clone(),
                    port,
                    at: format!("fd:{}", door_of_host(named, port)),
                })
                .collect();
            listen.unanswered = listens_everywhere(planned).then(|| format!("fd:{UNANSWERED}"));
            (Topology::Host, listen, dns)
        }
    }
}

fn registries(known: &Registries) -> RegistryUrls {
    let list = |urls: &[RegistryUrl]| urls.iter().map(ToString::to_string).collect();
    let Registries { npm, pip, pip_files } = known;
    RegistryUrls { npm: list(npm), pip: list(pip), pip_files: list(pip_files) }
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

/// The CA certificates by which the gateway verifies upstreams: this machine's own roots,
/// since it stands where there may be none, and what the operator named.
pub fn upstream_roots(upstream: &Upstream) -> io::Result<ContentFiles> {
    let mut files = ContentFiles::default();
    if let Some(system) = certs::system_pem() {
        files.add("roots/system.pem", system);
    }
    for (number, root) in upstream.roots.iter().enumerate() {
        files.add(format!("roots/{number}.pem"), fs::read(root)?);
    }
    Ok(files)
}

/// Where the policy's files are, below the settings: the whole path of each, so
/// that what was beside a file, or above it, still is.
const POLICY_ROOT: &str = "files";

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use policies::HostPattern;

    use super::*;

    const NETWORK: NetworkPlan = NetworkPlan {
        gateway: std::borrow::Cow::Borrowed("gateway.sluice"),
        attach: policies::Attachment::Network,
        interfaces: std::borrow::Cow::Borrowed("lo"),
        ports: crate::plan::Ports { dns: 53, http: 80, https: 443, proxy: 3128, socks: 1080 },
        doors: crate::plan::DoorsPlan { ports: Vec::new(), hosts: Vec::new() },
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
        let mut roots = ContentFiles::default();
        roots.add("roots/system.pem", "");
        let at = std::net::Ipv4Addr::new(192, 0, 2, 2);
        let network = Network {
            name: "n".to_owned(),
            gateway: at,
            sandbox: at,
            listeners: ListenerSource::Own,
        };
        let files = gateway_files(&plan, &NETWORK, &policy, &network, &upstream, roots);
        let text = files.iter().find(|(path, _)| *path == "gateway.yaml").unwrap().1;
        let text = String::from_utf8(text.to_owned()).unwrap();
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
}
