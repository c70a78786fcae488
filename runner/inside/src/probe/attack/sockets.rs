//! Kinds of sockets that pass by a network's walls, and sockets in the file
//! system behind which somebody stronger listens.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::{AddressFamily, Protocol, SocketType, ipproto, netlink, socket};

use super::{Attack, AttackVerdict, Targets, attack};

pub(super) const ATTACKS: &[Attack] = &[
    attack("H1", "af-vsock", "a socket to the hypervisor (AF_VSOCK)", |_| {
        families(&[("AF_VSOCK", AddressFamily::VSOCK)])
    }),
    attack("D10", "af-packet", "a socket for raw frames (AF_PACKET)", |_| {
        families(&[("AF_PACKET", AddressFamily::PACKET)])
    }),
    attack("H1", "af-alg", "a socket to the kernel's ciphers (AF_ALG)", |_| {
        families(&[("AF_ALG", AddressFamily::from_raw(38))])
    }),
    attack("H1", "af-others", "sockets of twelve rare families", |_| {
        families(&[
            ("AF_BLUETOOTH", AddressFamily::BLUETOOTH),
            ("AF_CAN", AddressFamily::from_raw(29)),
            ("AF_IB", AddressFamily::from_raw(27)),
            ("AF_KCM", AddressFamily::from_raw(41)),
            ("AF_KEY", AddressFamily::from_raw(15)),
            ("AF_NFC", AddressFamily::from_raw(39)),
            ("AF_PPPOX", AddressFamily::from_raw(24)),
            ("AF_QIPCRTR", AddressFamily::from_raw(42)),
            ("AF_RDS", AddressFamily::from_raw(21)),
            ("AF_SMC", AddressFamily::from_raw(43)),
            ("AF_TIPC", AddressFamily::from_raw(30)),
            ("AF_XDP", AddressFamily::from_raw(44)),
        ])
    }),
    attack("H1", "netlink", "the kernel's firewall, audit, events and IPsec (AF_NETLINK)", netlink),
    attack("D10", "raw-sockets", "raw ICMP, TCP and UDP sockets", raw),
    attack("H3", "engine-sockets", "sockets of engines, agents, D-Bus and displays", known),
    attack("H3", "any-socket", "connect to every Unix socket there is", every),
    attack("H3", "abstract-sockets", "connect to abstract Unix sockets of the host", abstracts),
    attack("H3", "variables", "variables that lead to an agent or an engine", variables),
];

const TYPES: [SocketType; 4] =
    [SocketType::STREAM, SocketType::DGRAM, SocketType::RAW, SocketType::SEQPACKET];

fn families(families: &[(&str, AddressFamily)]) -> AttackVerdict {
    let opens = |family| TYPES.into_iter().any(|kind| socket(family, kind, None).is_ok());
    let open: Vec<_> =
        families.iter().filter(|(_, family)| opens(*family)).map(|(name, _)| *name).collect();
    match open.is_empty() {
        true => AttackVerdict::held("no such socket"),
        false => AttackVerdict::broken(format_args!("opened: {}", open.join(" "))),
    }
}

/// The routing table may be read: programs ask it for their addresses.
fn netlink(_: &Targets) -> AttackVerdict {
    let protocols: [(&str, Protocol); 7] = [
        ("NETFILTER", netlink::NETFILTER),
        ("AUDIT", netlink::AUDIT),
        ("KOBJECT_UEVENT", netlink::KOBJECT_UEVENT),
        ("XFRM", netlink::XFRM),
        ("GENERIC", netlink::GENERIC),
        ("CONNECTOR", netlink::CONNECTOR),
        ("SOCK_DIAG", netlink::SOCK_DIAG),
    ];
    let open: Vec<_> = protocols
        .iter()
        .filter(|(_, protocol)| {
            socket(AddressFamily::NETLINK, SocketType::RAW, Some(*protocol)).is_ok()
        })
        .map(|(name, _)| *name)
        .collect();
    match open.is_empty() {
        true => AttackVerdict::held("no such socket"),
        false => AttackVerdict::broken(format_args!("opened: {}", open.join(" "))),
    }
}

fn raw(_: &Targets) -> AttackVerdict {
    let kinds = [
        ("ICMP", AddressFamily::INET, ipproto::ICMP),
        ("TCP", AddressFamily::INET, ipproto::TCP),
        ("UDP", AddressFamily::INET, ipproto::UDP),
        ("RAW", AddressFamily::INET, ipproto::RAW),
        ("ICMPv6", AddressFamily::INET6, ipproto::ICMPV6),
    ];
    let open: Vec<_> = kinds
        .iter()
        .filter(|(_, family, protocol)| socket(*family, SocketType::RAW, Some(*protocol)).is_ok())
        .map(|(name, ..)| *name)
        .collect();
    match open.is_empty() {
        true => AttackVerdict::held("no raw socket"),
        false => AttackVerdict::broken(format_args!("opened: {}", open.join(" "))),
    }
}

fn known(_: &Targets) -> AttackVerdict {
    let uid = rustix::process::getuid().as_raw();
    let mut paths: Vec<PathBuf> = [
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/run/podman/podman.sock",
        "/run/containerd/containerd.sock",
        "/run/crio/crio.sock",
        "/run/buildkit/buildkitd.sock",
        "/run/dbus/system_bus_socket",
        "/run/systemd/private",
        "/run/systemd/journal/socket",
        "/run/systemd/resolve/io.systemd.Resolve",
        "/run/snapd.socket",
        "/run/libvirt/libvirt-sock",
        "/tmp/.X11-unix/X0",
        "/control/control.sock",
    ]
    .map(PathBuf::from)
    .into();
    for name in ["bus", "podman/podman.sock", "docker.sock", "gnupg/S.gpg-agent", "wayland-0"] {
        paths.push(format!("/run/user/{uid}/{name}").into());
    }
    let there: Vec<_> = paths
        .iter()
        .filter(|path| fs::symlink_metadata(path).is_ok())
        .map(|path| path.display().to_string())
        .collect();
    match there.is_empty() {
        true => AttackVerdict::held(format_args!("none of {} is there", paths.len())),
        false => AttackVerdict::broken(format_args!("there: {}", there.join(" "))),
    }
}

/// Whatever it is called and wherever it stands.
fn every(_: &Targets) -> AttackVerdict {
    let mut sockets = Vec::new();
    let mut open = Vec::new();
    let mut folders: Vec<(PathBuf, u32)> =
        ["/run", "/var", "/tmp", "/home", "/etc/sluice", "/mnt", "/srv", "/opt", "/dev"]
            .map(|path| (PathBuf::from(path), 0))
            .into();
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            // What is mounted there, not what it is mounted on.
            let Ok(found) = fs::symlink_metadata(entry.path()) else { continue };
            if found.is_dir() && depth < 5 {
                folders.push((entry.path(), depth + 1));
            } else if found.file_type().is_socket() {
                sockets.push(entry.path());
            }
        }
    }
    for path in &sockets {
        if UnixStream::connect(path).is_ok() {
            open.push(path.display().to_string());
        }
    }
    match open.is_empty() {
        true => AttackVerdict::held(format_args!("nobody listens at any of {}", sockets.len())),
        false => AttackVerdict::broken(format_args!("somebody listens: {}", open.join(" "))),
    }
}

/// They belong to a network namespace, not to a file system.
fn abstracts(targets: &Targets) -> AttackVerdict {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let seen = table.lines().filter_map(|line| line.split_whitespace().nth(7)?.strip_prefix('@'));
    let mut names: Vec<String> = seen.map(str::to_owned).collect();
    names.extend(targets.abstract_socket.clone());
    let mut open = Vec::new();
    for name in &names {
        let Ok(address) = SocketAddr::from_abstract_name(name) else { continue };
        let Ok(mut stream) = UnixStream::connect_addr(&address) else { continue };
        drop(stream.set_read_timeout(Some(Duration::from_secs(1))));
        let mut said = [0; 256];
        drop(stream.write_all(b"hello\n"));
        let length = stream.read(&mut said).unwrap_or_default();
        let said = String::from_utf8_lossy(said.get(..length).unwrap_or_default()).into_owned();
        // A program of the sandbox may listen for its own reasons.
        if Some(name) == targets.abstract_socket.as_ref() || said.contains(&targets.token) {
            open.push(name.clone());
        }
    }
    match open.is_empty() {
        true => AttackVerdict::held(format_args!("none of {} is the host's", names.len())),
        false => AttackVerdict::broken(format_args!("connected: {}", open.join(" "))),
    }
}

fn variables(_: &Targets) -> AttackVerdict {
    let names = [
        "SSH_AUTH_SOCK",
        "GPG_AGENT_INFO",
        "DBUS_SESSION_BUS_ADDRESS",
        "DBUS_SYSTEM_BUS_ADDRESS",
        "DOCKER_HOST",
        "CONTAINER_HOST",
        "KUBECONFIG",
        "DISPLAY",
        "WAYLAND_DISPLAY",
        "XDG_RUNTIME_DIR",
    ];
    let set: Vec<_> = names.into_iter().filter(|name| std::env::var_os(name).is_some()).collect();
    match set.is_empty() {
        true => AttackVerdict::held(format_args!("none of {} is set", names.len())),
        false => AttackVerdict::broken(format_args!("set: {}", set.join(" "))),
    }
}
