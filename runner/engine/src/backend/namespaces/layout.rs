//! What stands in a sandbox's root.
//!
//! The programs are the host's, read-only: `/usr` and what leads there, and the
//! few files of `/etc` without which they do not run. Whose machine it is cannot
//! be read from them. With an unpacked image all of that is the image's.
//! Everything else is made new, and what the run was given is put on top.

use std::fs;
use std::path::{Path, PathBuf};

use protocol::launcher::{MountEntry, ProcessLimits, SandboxSpec};

use super::HOST;
use super::groups::Groups;
use crate::backend::engine::container_env;
use crate::backend::local::LocalFiles;
use crate::backend::mount_entries::{devices, optional, tmpfs};
use crate::backend::{Network, SandboxContent, WorkspaceMount};
use crate::plan::{Plan, TmpfsPlan};

/// The order for the sandbox of `plan`.
pub(super) fn order(
    plan: &Plan,
    inside: &SandboxContent,
    local: &LocalFiles,
    network: Option<&Network>,
    groups: &Groups,
) -> SandboxSpec {
    let image = (plan.image != HOST).then(|| PathBuf::from(&plan.image));
    let mut places = Vec::new();
    if image.is_none() {
        places.extend(host_programs(plan.network.is_some()));
        places.extend(users(plan));
    }
    places.extend(names(plan, network));
    places.push(MountEntry::Proc { at: "/proc".to_owned() });
    places.extend(own_devices(plan));
    places.extend(groups.view());
    places.extend(given(plan, inside, local));
    // Over what is mounted by now.
    places.extend(container_env::MASKED.map(|at| MountEntry::Cover { at: at.to_owned() }));
    places.extend(HIDDEN.map(|at| MountEntry::Cover { at: at.to_owned() }));
    places.extend(container_env::READ_ONLY.map(|at| MountEntry::ReadOnly { at: at.to_owned() }));

    let limits = &plan.limits;
    let processes = u64::from(limits.pids);
    SandboxSpec {
        image,
        places,
        limits: ProcessLimits {
            open_files: limits.open_files,
            file_size: limits.file_bytes(),
            // A group counts what it refuses, so it is to be the one that does.
            processes: if groups.count_processes() { processes + MARGIN } else { processes },
            // Twice as much: the stacks of threads count whole, used or not.
            data: groups.watched_memory(limits).map(|most| most.saturating_mul(2)),
        },
        watched_memory: groups.watched_memory(limits),
        writable: writable(plan),
        hostname: "sandbox".to_owned(),
        directory: plan.directory.clone(),
        program: container_env::INIT.to_owned(),
        arguments: container_env::init_args(plan),
        environment: environment(plan),
    }
}

/// Where our first process is, and its socket.
const OURS: &str = "/run/sluice";

/// The host's programs, and what they do not run without.
fn host_programs(network: bool) -> Vec<MountEntry> {
    let mut places = vec![bind("/usr", "/usr")];
    for name in ["/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin"] {
        match fs::read_link(name) {
            Ok(to) => {
                let to = to.display().to_string();
                places.push(MountEntry::Link { at: name.to_owned(), to });
            }
            // On a system that keeps them apart.
            Err(_) => places.push(optional(name)),
        }
    }
    // Where systems that keep nothing in `/usr` keep everything.
    places.push(optional("/nix/store"));
    places.push(optional("/gnu/store"));
    places.extend(SETTINGS.split_whitespace().map(|name| optional(&format!("/etc/{name}"))));
    if !network {
        // With a network there is one authority, and it is the gateway's.
        places.extend(["/etc/ssl/certs", "/etc/pki/ca-trust", "/etc/pki/tls"].map(optional));
    }
    places
}

fn users(plan: &Plan) -> [MountEntry; 3] {
    let (uid, gid) = (plan.user.uid, plan.user.gid);
    let file = |at: &str, text: String| MountEntry::File { at: at.to_owned(), text };
    [
        file(
            "/etc/passwd",
            format!(
                "root:x:0:0:root:/:/usr/sbin/nologin\nagent:x:{uid}:{gid}:agent:/home/agent:/bin/sh\n\
                 nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
            ),
        ),
        file("/etc/group", format!("root:x:0:\nagent:x:{gid}:\nnogroup:x:65534:\n")),
        file(
            "/etc/nsswitch.conf",
            "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n".to_owned(),
        ),
    ]
}

/// Every name is asked of the gateway, and there is nobody else to ask.
fn names(plan: &Plan, network: Option<&Network>) -> [MountEntry; 3] {
    let mut hosts = "127.0.0.1\tlocalhost sandbox\n".to_owned();
    let mut resolver = String::new();
    if let (Some(made), Some(planned)) = (network, &plan.network) {
        hosts.push_str(&format!("{}\t{}\n", made.gateway, planned.gateway));
        resolver = format!("nameserver {}\nsearch .\n", made.gateway);
    }
    [
        ("/etc/hosts", hosts),
        ("/etc/resolv.conf", resolver),
        ("/etc/hostname", "sandbox\n".to_owned()),
    ]
    .map(|(at, text)| MountEntry::File { at: at.to_owned(), text })
}

fn own_devices(plan: &Plan) -> Vec<MountEntry> {
    let mut places = devices(&["full", "null", "random", "tty", "urandom", "zero"]);
    places.push(MountEntry::Terminals { at: "/dev/pts".to_owned() });
    let shared = container_env::SHARED_MEMORY.min(plan.limits.memory / 4);
    places.push(tmpfs("/dev/shm", shared, inodes(shared), 0o1777, false));
    let links = [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/ptmx", "pts/ptmx"),
        ("/dev/stderr", "/proc/self/fd/2"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
    ];
    places.extend(links.map(|(at, to)| MountEntry::Link { at: at.to_owned(), to: to.to_owned() }));
    places
}

/// What the plan gives this run, the deeper the later: a mount hides what was
/// below it.
fn given(plan: &Plan, inside: &SandboxContent, local: &LocalFiles) -> Vec<MountEntry> {
    let mut given: Vec<(String, MountEntry)> = Vec::new();
    for TmpfsPlan { target, bytes, executable } in &plan.tmpfs {
        let place = tmpfs(target, *bytes, inodes(*bytes), 0o1777, *executable);
        given.push((target.to_string(), place));
    }
    if let WorkspaceMount::Overlay { options } = &inside.workspace {
        let at = plan.workspace.target.to_string();
        given.push((at.clone(), MountEntry::Overlay { at, options: options.clone() }));
    }
    // The rest of `/run` is the command's, and a folder of its own in place of
    // ours would have programs of its own in place of ours. So ours is closed as
    // soon as it has something to mount on.
    let probe = inside.probe.as_ref().map(|_| container_env::PROBE);
    for at in [container_env::INIT, container_env::SOCKET].into_iter().chain(probe) {
        let empty = MountEntry::File { at: at.to_owned(), text: String::new() };
        given.push((at.to_owned(), empty));
    }
    given.push((container_env::INIT.to_owned(), MountEntry::ReadOnly { at: OURS.to_owned() }));
    for container_env::Bind { source, target, read_only } in
        container_env::binds(plan, inside, local)
    {
        let at = target.clone();
        let place = MountEntry::Bind { at, source, read_only, device: false, optional: false };
        given.push((target, place));
    }
    // Stable: what covers the same place stays on top.
    given.sort_by_key(|(at, _)| Path::new(at).components().count());
    given.into_iter().map(|(_, place)| place).collect()
}

fn writable(plan: &Plan) -> Vec<String> {
    let mut places = vec!["/dev/shm".to_owned()];
    places.extend(plan.tmpfs.iter().map(|place| place.target.to_string()));
    places.extend(plan.workspace.source.as_ref().map(|_| plan.workspace.target.to_string()));
    let mounts = plan.mounts.iter().filter(|mount| !mount.read_only);
    places.extend(mounts.map(|mount| mount.target.clone()));
    places
}

fn environment(plan: &Plan) -> Vec<(String, String)> {
    let mut set = plan.environment.clone();
    if !set.iter().any(|(name, _)| name == "PATH") {
        set.push(("PATH".to_owned(), PATH.to_owned()));
    }
    set
}

fn bind(at: &str, source: &str) -> MountEntry {
    MountEntry::Bind {
        at: at.to_owned(),
        source: source.into(),
        read_only: true,
        device: false,
        optional: false,
    }
}

/// Files cost memory that no size counts.
fn inodes(bytes: u64) -> u64 {
    (bytes / 4096).max(1024)
}

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const MARGIN: u64 = 32;

/// What an engine's sandbox does not see either, because its user may not.
const HIDDEN: [&str; 4] = ["/proc/kallsyms", "/proc/kmsg", "/proc/kpagecount", "/proc/kpageflags"];

/// Of `/etc`: how programs are found and how they behave, nothing about people.
const SETTINGS: &str = "
    alternatives bash.bashrc bash_completion.d crypto-policies debian_version fonts gai.conf
    inputrc java-11-openjdk java-17-openjdk java-21-openjdk ld.so.cache ld.so.conf ld.so.conf.d
    locale.alias locale.conf localtime magic mime.types os-release perl profile profile.d
    protocols python3 python3.11 python3.12 python3.13 redhat-release services
    ssl/openssl.cnf terminfo timezone vim xattr.conf
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::{planned, request};

    fn ordered(policy: &str) -> (Plan, SandboxSpec) {
        let plan = Plan { image: HOST.to_owned(), ..planned(policy, &request()) };
        let inside = SandboxContent {
            init: "/p/init".into(),
            workspace: WorkspaceMount::Overlay { options: "o".to_owned() },
            protected: vec![("/w/.git".into(), "/workspace/.git".to_owned())],
            ..SandboxContent::default()
        };
        let local = LocalFiles::of(&plan.run, Path::new("/p"));
        let order = order(&plan, &inside, &local, None, &Groups::default());
        (plan, order)
    }

    fn at(place: &MountEntry) -> &str {
        match place {
            MountEntry::Bind { at, .. }
            | MountEntry::Cover { at }
            | MountEntry::Directory { at }
            | MountEntry::File { at, .. }
            | MountEntry::Groups { at, .. }
            | MountEntry::Link { at, .. }
            | MountEntry::Overlay { at, .. }
            | MountEntry::Proc { at }
            | MountEntry::ReadOnly { at }
            | MountEntry::Terminals { at }
            | MountEntry::Tmpfs { at, .. } => at,
        }
    }

    #[test]
    fn nothing_of_the_host_can_be_written_but_devices_and_what_was_given() {
        let (_, order) = ordered("version: 1\n");
        for place in &order.places {
            if let MountEntry::Bind { at, read_only: false, .. } = place {
                assert!(at.starts_with("/dev/") || at == container_env::SOCKET, "{at}");
            }
        }
    }

    #[test]
    fn nothing_of_peoples_is_inside() {
        let (_, order) = ordered("version: 1\n");
        for place in &order.places {
            if let MountEntry::Bind { source, .. } = place {
                let source = source.to_str().unwrap();
                for theirs in ["/home", "/root", "/run", "/var", "/etc/passwd", "/etc/shadow"] {
                    assert!(!source.starts_with(theirs), "{source}");
                }
                assert!(source != "/etc" && source != "/etc/ssl" && source != "/", "{source}");
            }
        }
    }

    #[test]
    fn what_lies_deeper_is_mounted_later() {
        let (_, order) = ordered("version: 1\n");
        let order: Vec<&str> = order.places.iter().map(at).collect();
        let index = |path: &str| order.iter().position(|at| *at == path).unwrap();
        assert!(index("/workspace") < index("/workspace/.git"));
        assert!(index("/run") < index(container_env::INIT));
        assert!(index("/proc") < index("/proc/sys"));
        assert!(index("/dev") < index("/dev/shm"));
    }

    #[test]
    fn with_a_network_the_hosts_authorities_are_not_inside() {
        for (policy, inside) in
            [("version: 1\n", true), ("version: 1\nnet: {enabled: true}\n", false)]
        {
            let (_, order) = ordered(policy);
            assert_eq!(order.places.iter().any(|place| at(place) == "/etc/ssl/certs"), inside);
        }
    }

    #[test]
    fn processes_are_bounded_also_where_no_group_counts_them() {
        let (plan, order) = ordered("version: 1\nproc: {pids: 40}\n");
        assert_eq!((plan.limits.pids, order.limits.processes), (40, 40));
    }
}
