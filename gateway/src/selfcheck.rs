//! What must hold before the gateway serves anyone.
//!
//! A gateway between two networks keeps a sandbox in only while the kernel does
//! not forward packets around it, and containers inherit `ip_forward=1` from the
//! machine. So forwarding is measured, and a gateway that cannot measure it does
//! not start. The other things that must hold (a policy that can be
//! read, a log that can be written, a key that only we can read) are checked by
//! whoever opens them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use protocol::settings::Topology;

/// Why a sandbox could go around the gateway.
#[derive(Debug, thiserror::Error)]
pub enum SelfCheckError {
    #[error(
        "this gateway stands on {} networks ({}) and the kernel forwards packets between them ({setting} = 1), so a sandbox could go around it; start it with `{setting}=0` (Docker: --sysctl {setting}=0), or write `topology: host` if it stands between nothing",
        interfaces.len(), interfaces.join(", ")
    )]
    Router { setting: &'static str, interfaces: Vec<String> },
    #[error(
        "cannot tell whether the kernel forwards packets around this gateway: {} cannot be read; make it readable, or write `topology: host` if it stands between nothing",
        path.display()
    )]
    Unknown { path: PathBuf, source: io::Error },
}

/// Fails if the kernel would forward packets past the gateway.
pub(crate) fn check(topology: Topology) -> Result<(), SelfCheckError> {
    check_below(Path::new("/"), topology)
}

fn check_below(root: &Path, topology: Topology) -> Result<(), SelfCheckError> {
    match topology {
        Topology::Host => return Ok(()),
        Topology::DualHomed => {}
    }
    let interfaces = interfaces(root)?;
    if interfaces.len() < 2 {
        return Ok(());
    }
    for (setting, file) in FORWARDING {
        if is_on(&root.join(file))? {
            return Err(SelfCheckError::Router { setting, interfaces });
        }
    }
    Ok(())
}

/// The interfaces that are up and lead somewhere.
fn interfaces(root: &Path) -> Result<Vec<String>, SelfCheckError> {
    let all = root.join("sys/class/net");
    let unknown = |path: &Path| {
        let path = path.to_owned();
        move |source| SelfCheckError::Unknown { path, source }
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(&all).map_err(unknown(&all))? {
        let entry = entry.map_err(unknown(&all))?;
        let file = entry.path().join("flags");
        let flags = match fs::read_to_string(&file) {
            Ok(flags) => flags,
            // `bonding_masters` is no interface, and an interface may just be going.
            Err(err) if is_absent(&err) => continue,
            Err(source) => return Err(SelfCheckError::Unknown { path: file, source }),
        };
        let digits = flags.trim().trim_start_matches("0x");
        // An interface whose flags cannot be parsed counts as up.
        let flags = u32::from_str_radix(digits, 16).unwrap_or(IS_UP);
        if flags & IS_UP != 0 && flags & IS_LOOPBACK == 0 {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found.sort();
    Ok(found)
}

fn is_on(setting: &Path) -> Result<bool, SelfCheckError> {
    match fs::read_to_string(setting) {
        Ok(value) => Ok(value.trim() != "0"),
        // A kernel without IPv6 has no such setting, and forwards nothing by it.
        Err(err) if is_absent(&err) => Ok(false),
        Err(source) => Err(SelfCheckError::Unknown { path: setting.to_owned(), source }),
    }
}

fn is_absent(err: &io::Error) -> bool {
    matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

const FORWARDING: [(&str, &str); 2] = [
    ("net.ipv4.ip_forward", "proc/sys/net/ipv4/ip_forward"),
    ("net.ipv6.conf.all.forwarding", "proc/sys/net/ipv6/conf/all/forwarding"),
];
const IS_UP: u32 = 0x1;
const IS_LOOPBACK: u32 = 0x8;

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// A machine with these interfaces and these forwarding settings.
    fn machine(interfaces: &[(&str, &str)], v4: &str, v6: Option<&str>) -> TempDir {
        let root = tempfile::tempdir().expect("a directory can be made");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("it can be made");
            fs::write(path, text).expect("it can be written");
        };
        for (name, flags) in interfaces {
            write(&format!("sys/class/net/{name}/flags"), flags);
        }
        write("sys/class/net/bonding_masters", "");
        write("proc/sys/net/ipv4/ip_forward", v4);
        if let Some(v6) = v6 {
            write("proc/sys/net/ipv6/conf/all/forwarding", v6);
        }
        root
    }

    const LO: (&str, &str) = ("lo", "0x9\n");
    const ETH0: (&str, &str) = ("eth0", "0x1003\n");
    const ETH1: (&str, &str) = ("eth1", "0x1003\n");
    const DOWN: (&str, &str) = ("tunl0", "0x80\n");

    #[test]
    fn a_gateway_between_two_networks_that_forwards_does_not_start() {
        let root = machine(&[LO, ETH0, ETH1], "1\n", Some("0\n"));
        let err = check_below(root.path(), Topology::DualHomed).expect_err("it is a router");
        assert_eq!(
            err.to_string(),
            "this gateway stands on 2 networks (eth0, eth1) and the kernel forwards packets between them (net.ipv4.ip_forward = 1), so a sandbox could go around it; start it with `net.ipv4.ip_forward=0` (Docker: --sysctl net.ipv4.ip_forward=0), or write `topology: host` if it stands between nothing"
        );
    }

    #[test]
    fn forwarding_ipv6_alone_makes_a_router_too() {
        let root = machine(&[LO, ETH0, ETH1], "0\n", Some("1\n"));
        let err = check_below(root.path(), Topology::DualHomed).expect_err("it is a router");
        let SelfCheckError::Router { setting, .. } = err else { panic!("{err}") };
        assert_eq!(setting, "net.ipv6.conf.all.forwarding");
    }

    #[test]
    fn one_network_is_nothing_to_route_between() {
        let root = machine(&[LO, ETH0, DOWN], "1\n", Some("1\n"));
        assert!(check_below(root.path(), Topology::DualHomed).is_ok());
    }

    #[test]
    fn two_networks_without_forwarding_are_fine() {
        let root = machine(&[LO, ETH0, ETH1], "0\n", None);
        assert!(check_below(root.path(), Topology::DualHomed).is_ok());
    }

    #[test]
    fn inherited_sockets_on_a_host_that_routes_are_fine() {
        let root = machine(&[LO, ETH0, ETH1], "1\n", Some("1\n"));
        assert!(check_below(root.path(), Topology::Host).is_ok());
    }

    #[test]
    fn what_cannot_be_measured_is_taken_for_the_worst() {
        let root = tempfile::tempdir().expect("a directory can be made");
        let err = check_below(root.path(), Topology::DualHomed).expect_err("nothing is known");
        assert!(matches!(err, SelfCheckError::Unknown { .. }), "{err}");
    }
}
