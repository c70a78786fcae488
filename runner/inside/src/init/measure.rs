//! What isolation is in force, seen from inside.
//!
//! Nothing here trusts what was asked of an engine: it reads what the kernel
//! says about this very process, and tries what must fail. Facts are names and
//! text; whether they suffice is judged outside, by the runner's `isolation`.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use protocol::init::{TRUST_KIT, TRUST_STORE};
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Resource, getrlimit};

use super::pids_limit;
use crate::launch::SECOND_WALL;
use crate::names;
use crate::process_tree::ProcessStat;

/// What was measured, by name.
pub type Fact = (String, String);

/// Everything measured before the command starts.
pub fn before() -> Vec<Fact> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut facts = vec![
        fact("no_new_privs", field(&status, "NoNewPrivs")),
        fact("seccomp", field(&status, "Seccomp")),
        fact("cap_inheritable", field(&status, "CapInh")),
        fact("cap_permitted", field(&status, "CapPrm")),
        fact("cap_effective", field(&status, "CapEff")),
        fact("cap_bounding", field(&status, "CapBnd")),
        fact("cap_ambient", field(&status, "CapAmb")),
        fact("uid", field(&status, "Uid")),
        fact("gid", field(&status, "Gid")),
        fact("groups", field(&status, "Groups")),
        fact("root", root()),
        fact("cgroup_namespace", cgroup_namespace()),
        fact("interfaces", interfaces()),
        fact("default_route", default_route()),
        fact("ipv6", ipv6()),
        fact("next_hop", next_hop()),
        fact("names", names()),
        fact("name_servers", name_servers()),
        fact("open_files", open_files()),
        fact("af_packet", socket(AddressFamily::PACKET)),
        fact("af_vsock", socket(AddressFamily::VSOCK)),
        fact("engine_socket", engine_socket()),
        fact("kernel_settings", writable("/proc/sys/kernel/core_pattern")),
        fact("sysrq", writable("/proc/sysrq-trigger")),
        fact("second_wall", std::env::var(SECOND_WALL).unwrap_or_default()),
        fact("workspace", workspace(Path::new("/workspace"))),
    ];
    facts.extend([
        fact("memory_limit", memory_limit()),
        fact("pids_limit", pids_limit::limit().map(|most| most.to_string()).unwrap_or_default()),
        fact("cpu_quota", cpu_quota()),
    ]);
    facts
}

/// What the run took, measured when the command has ended.
pub fn after(bounded: &[String]) -> Vec<Fact> {
    vec![
        fact("memory_peak", memory_peak()),
        fact("oom_kills", oom_kills()),
        fact("cpu_nanoseconds", cpu_nanoseconds()),
        fact("pids_peak", pids_peak()),
        fact("pids_refused", pids_limit::refused().to_string()),
        fact("full", full(bounded)),
    ]
}

/// What the kernel counts for the whole sandbox, at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    oom_kills: u64,
    pids_refused: u64,
}

impl Counted {
    pub(super) fn now() -> Self {
        let oom_kills = oom_kills().parse().unwrap_or_default();
        Self { oom_kills, pids_refused: pids_limit::refused() }
    }
}

/// What one of several commands met with, measured when it has ended.
pub(super) fn since(before: &Counted, bounded: &[String]) -> Vec<Fact> {
    let now = Counted::now();
    let oom_kills = now.oom_kills.saturating_sub(before.oom_kills);
    let pids_refused = now.pids_refused.saturating_sub(before.pids_refused);
    vec![
        fact("oom_kills", oom_kills.to_string()),
        fact("pids_refused", pids_refused.to_string()),
        fact("full", full(bounded)),
    ]
}

fn fact(name: &str, value: String) -> Fact {
    let value = if value.is_empty() { "unknown".to_owned() } else { value };
    // One that the kernel made long must still fit into a line.
    (name.to_owned(), value.chars().take(MAX_FACT_CHARS).collect())
}

const MAX_FACT_CHARS: usize = 4096;

/// One line of `/proc/self/status`.
fn field(status: &str, name: &str) -> String {
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The root is read-only when the mount says so and a write fails.
fn root() -> String {
    let mounted = match statvfs("/") {
        Ok(found) if found.f_flag.contains(StatVfsMountFlags::RDONLY) => "readonly",
        Ok(_) => "writable",
        Err(_) => "unknown",
    };
    let probe = Path::new("/.sluice-probe");
    match fs::File::create_new(probe) {
        Ok(_) => {
            drop(fs::remove_file(probe));
            "writable".to_owned()
        }
        Err(_) => mounted.to_owned(),
    }
}

/// In a namespace of its own a process sees itself at the root of every tree.
fn cgroup_namespace() -> String {
    let seen = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let outside = seen.lines().any(|line| line.rsplit(':').next() != Some("/"));
    if seen.is_empty() {
        String::new()
    } else if outside {
        "host".into()
    } else {
        "private".into()
    }
}

fn interfaces() -> String {
    let table = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let mut names: Vec<_> =
        table.lines().skip(2).filter_map(|line| line.split(':').next()).map(str::trim).collect();
    names.sort_unstable();
    names.join(" ")
}

fn default_route() -> String {
    let Ok(table) = fs::read_to_string("/proc/net/route") else { return String::new() };
    let is_default = |line: &str| line.split_whitespace().nth(1) == Some("00000000");
    if table.lines().skip(1).any(is_default) { "present".into() } else { "none".into() }
}

/// Who is at the next hop of the default route: an engine may set one although
/// nobody is there. A datagram that nobody waits for makes the kernel look for
/// it, and its table of neighbours says whether it was found.
fn next_hop() -> String {
    let Ok(table) = fs::read_to_string("/proc/net/route") else { return String::new() };
    let hop = table.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (to, hop) = (words.next()?, words.next()?);
        (to == "00000000" && hop != "00000000").then(|| u32::from_str_radix(hop, 16).ok())?
    });
    let Some(hop) = hop.map(|hop| Ipv4Addr::from(hop.swap_bytes())) else { return "none".into() };
    let sent = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|socket| socket.send_to(b"?", (hop, NOBODYS_PORT)));
    if sent.is_ok() {
        for _ in 0..6 {
            thread::sleep(Duration::from_millis(5));
            if is_a_neighbour(hop) {
                return "answers".into();
            }
        }
    }
    "silent".into()
}

const NOBODYS_PORT: u16 = 9;

fn is_a_neighbour(address: Ipv4Addr) -> bool {
    let table = fs::read_to_string("/proc/net/arp").unwrap_or_default();
    table.lines().skip(1).any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // The flag says that its hardware address is known.
        matches!(words[..], [known, _, flags, ..]
            if known.parse() == Ok(address)
                && u8::from_str_radix(flags.trim_start_matches("0x"), 16)
                    .is_ok_and(|flags| flags & 2 != 0))
    })
}

/// Where a name leads that is asked of the server programs here ask. Not what
/// the settings say: an engine's own resolver stands in between, and asks the
/// host's when it is told nothing better.
fn names() -> String {
    let Some(gateway) = names::in_hosts(GATEWAY) else { return "there is no gateway".into() };
    let Some(server) = names::servers().first().copied() else { return "nobody is asked".into() };
    wait_for_the_gateway();
    let ask = || names::ask_within(SocketAddr::new(server, 53), GATEWAY, NAME_RETRY_INTERVAL);
    // An engine that starts many sandboxes at once answers none of them for a
    // while; to refuse takes longer than to wait.
    let patient = (1..TIMES_TO_ASK).fold(ask(), |found, _| found.or_else(|_| ask()));
    match patient {
        Ok(found) if !found.is_empty() && found.iter().all(|at| gateway == *at) => "gateway".into(),
        Ok(found) => format!("{found:?}"),
        Err(err) => err.to_string(),
    }
}

/// Waits until the runner has written the trust kit, which it does as soon as
/// the gateway serves. Whoever asks the network before has the kernel look for
/// somebody who is not there yet, and look again only after a second.
fn wait_for_the_gateway() {
    let kit = Path::new(TRUST_KIT).join(TRUST_STORE);
    let is_empty = || fs::metadata(&kit).is_ok_and(|found| found.len() == 0);
    let begun = Instant::now();
    while is_empty() && begun.elapsed() < GATEWAY_STARTS {
        thread::sleep(TRUST_KIT_POLL_INTERVAL);
    }
}

const TRUST_KIT_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// An engine that starts a hundred at once on a busy machine takes minutes for some of
/// them. The runner ends us as soon as it knows that there will be none, and its own
/// patience ends later.
const GATEWAY_STARTS: Duration = Duration::from_secs(270);
const NAME_RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// A quarter of a minute, together.
const TIMES_TO_ASK: u32 = 60;

/// A name that may as well be asked of somebody else.
const GATEWAY: &str = "gateway.sluice";

/// Addresses beyond loopback; with them a bridge is a way to the host.
fn ipv6() -> String {
    let table = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let beyond = table.lines().any(|line| line.split_whitespace().last() != Some("lo"));
    if beyond { "present".into() } else { "none".into() }
}

fn name_servers() -> String {
    let text = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let servers: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix("nameserver ")).map(str::trim).collect();
    if servers.is_empty() { "none".into() } else { servers.join(" ") }
}

fn open_files() -> String {
    getrlimit(Resource::Nofile).maximum.map_or_else(|| "unlimited".into(), |most| most.to_string())
}

/// Whether a kind of socket can be had at all.
fn socket(family: AddressFamily) -> String {
    let opened = rustix::net::socket(family, SocketType::DGRAM, None)
        .or_else(|_| rustix::net::socket(family, SocketType::STREAM, None));
    if opened.is_ok() { "open".into() } else { "refused".into() }
}

fn engine_socket() -> String {
    let known = ["/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock"];
    match known.iter().find(|path| fs::symlink_metadata(path).is_ok()) {
        Some(path) => (*path).to_owned(),
        None => "none".to_owned(),
    }
}

fn writable(path: &str) -> String {
    match fs::OpenOptions::new().write(true).open(path) {
        Ok(_) => "writable".to_owned(),
        Err(_) => "closed".to_owned(),
    }
}

/// A file that says: what should be mounted here is not.
///
/// It lies below the mount of a project that is shown under another owner. Who
/// sees it looks at an empty folder and would take that for the project.
pub const NOTHING_MOUNTED: &str = ".sluice-nothing-is-mounted-here";

fn workspace(at: &Path) -> String {
    match fs::symlink_metadata(at.join(NOTHING_MOUNTED)) {
        Ok(_) => "missing".into(),
        Err(_) if at.is_dir() => "there".into(),
        Err(_) => "none".into(),
    }
}

/// A file of our control group, in the first or the second version of them;
/// its lines joined by `;`.
pub(super) fn cgroup(controller: &str, first: &str, second: &str) -> String {
    let paths =
        [format!("/sys/fs/cgroup/{controller}/{first}"), format!("/sys/fs/cgroup/{second}")];
    let text = paths.iter().find_map(|path| fs::read_to_string(path).ok()).unwrap_or_default();
    text.trim_end().replace('\n', ";")
}

/// Whether what the control group counts is what this sandbox takes. Without a
/// limit of its own it is somebody else's group that we happen to be in.
fn is_counted(limit: Option<u64>) -> bool {
    // The first version's way to say that there is none.
    limit.is_some_and(|limit| limit < u64::MAX / 4)
}

fn memory_limit() -> String {
    cgroup("memory", "memory.limit_in_bytes", "memory.max")
}

fn pids_peak() -> String {
    if !pids_limit::is_counted() {
        return String::new();
    }
    first(cgroup("pids", "pids.peak", "pids.peak"))
}

fn memory_peak() -> String {
    if !is_counted(memory_limit().parse().ok()) {
        return String::new();
    }
    first(cgroup("memory", "memory.max_usage_in_bytes", "memory.peak"))
}

fn first(text: String) -> String {
    text.split(';').next().unwrap_or_default().to_owned()
}

/// Microseconds of processor time a period, and the period.
fn cpu_quota() -> String {
    let quota = cgroup("cpu", "cpu.cfs_quota_us", "cpu.max");
    if quota.contains(' ') {
        return quota;
    }
    format!("{quota} {}", cgroup("cpu", "cpu.cfs_period_us", "cpu.max"))
}

fn cpu_nanoseconds() -> String {
    let quota = cpu_quota();
    if !is_counted(quota.split(' ').next().and_then(|quota| quota.parse().ok())) {
        return own_cpu_nanoseconds().map(|taken| taken.to_string()).unwrap_or_default();
    }
    if let Ok(text) = fs::read_to_string("/sys/fs/cgroup/cpuacct/cpuacct.usage") {
        return text.trim().to_owned();
    }
    let stat = fs::read_to_string("/sys/fs/cgroup/cpu.stat").unwrap_or_default();
    let usage = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
    usage.map(|usage| format!("{usage}000")).unwrap_or_default()
}

/// What we and our ended children took.
fn own_cpu_nanoseconds() -> Option<u64> {
    let stat = ProcessStat::of(i32::try_from(std::process::id()).ok()?)?;
    Some(stat.cpu_nanoseconds + stat.children_cpu_nanoseconds)
}

fn oom_kills() -> String {
    if !is_counted(memory_limit().parse().ok()) {
        return "0".to_owned();
    }
    let text = cgroup("memory", "memory.oom_control", "memory.events");
    text.split(';').find_map(|line| line.strip_prefix("oom_kill ")).unwrap_or("0").to_owned()
}

/// Those of our bounded file systems that have no room left.
fn full(bounded: &[String]) -> String {
    let is_full = |path: &&String| {
        statvfs(path.as_str()).is_ok_and(|fs| {
            fs.f_blocks > 0 && (fs.f_bavail * fs.f_frsize < A_PAGE || fs.f_favail == 0)
        })
    };
    let full: Vec<_> = bounded.iter().filter(is_full).map(String::as_str).collect();
    if full.is_empty() { "none".into() } else { full.join(" ") }
}

/// A file system with less than this left refuses the next byte.
const A_PAGE: u64 = 4096;
