//! The attack program where it must succeed, and what people see of it.
//!
//! `sluice selftest` is what people run; [`crate::selftest`] has it on each
//! backend. Here are its controls, two containers that are not sandboxes: one as
//! the engine makes them, and one as people make them who want something to work.
//! What fails in a sandbox and succeeds there failed for the right reason.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::process::Command;
use std::thread;

use serde_json::Value;
use tests::boxes::{BackendKind, Person, docker, image};

use crate::programs;

const NETWORK: &str = "version: 1\nnet: {enabled: true}\n";

/// Runs attacks in a container that is no sandbox; results by name.
fn in_a_container(flags: &[&str], attacks: &[&str]) -> BTreeMap<String, String> {
    let program = format!("{}:/run/sluice/probe:ro", programs().probe);
    let mut words = vec!["run", "--rm", "-v", &program];
    words.extend(flags);
    words.extend([image().unwrap(), "/run/sluice/probe", "attack"]);
    words.extend(attacks);
    let said = docker(&words);
    let lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    lines.map(|row| (text(&row["name"]), text(&row["result"]))).collect()
}

#[track_caller]
fn assert_broken(found: &BTreeMap<String, String>, names: &[&str]) {
    let held: Vec<_> = names
        .iter()
        .filter(|name| found.get(**name).map(String::as_str) != Some("BROKEN"))
        .map(|name| (*name, found.get(*name)))
        .collect();
    assert!(held.is_empty(), "these do not notice: {held:?}");
}

const LOCAL: &[&str] = &["--network", "none"];
const THE_BOX: &[&str] = &[
    "--token",
    "nothing-says-this",
    "--only",
    "H1",
    "--only",
    "H2",
    "--only",
    "H3",
    "--only",
    "H4",
    "--only",
    "route-changes",
    "--only",
    "raw-sockets",
    "--only",
    "af-packet",
];

/// H1, H2, H3: in a container as the engine makes them, root and all.
#[test]
fn a_plain_container_does_not_hold() {
    if Person::with_docker(programs()).is_none() {
        return;
    }
    let found = in_a_container(LOCAL, THE_BOX);
    assert_broken(
        &found,
        &[
            "af-packet",
            "af-vsock",
            "chroot",
            "init-secrets",
            "io-uring",
            "mknod-disk",
            "mknod-memory",
            "netlink",
            "outside-writes",
            "own-programs",
            "privileges",
            "ptrace-init",
            "raw-sockets",
            "setuid-root",
        ],
    );
}

/// H1, H2, H3: in a container as people make them who want something to work.
#[test]
fn a_weak_container_falls_to_nearly_everything() {
    if Person::with_docker(programs()).is_none() {
        return;
    }
    let mut flags = vec![
        "--security-opt",
        "seccomp=unconfined",
        "--security-opt",
        "systempaths=unconfined",
        "--device",
        "/dev/fuse",
        "-v",
        "/var/run/docker.sock:/var/run/docker.sock",
        "-e",
        "SSH_AUTH_SOCK=/agent",
    ];
    flags.extend(LOCAL);
    for capability in [
        "SYS_ADMIN",
        "SYS_PTRACE",
        "NET_ADMIN",
        "SYS_BOOT",
        "SYS_TIME",
        "SYSLOG",
        "DAC_READ_SEARCH",
        "SYS_PACCT",
    ] {
        flags.extend(["--cap-add", capability]);
    }
    let found = in_a_container(&flags, THE_BOX);
    assert_broken(
        &found,
        &[
            "acct",
            "add-key",
            "any-socket",
            "bpf",
            "clone-user",
            "clone-user-net",
            "clone3-user",
            "engine-sockets",
            "fanotify",
            "fsopen",
            "kcmp-init",
            "kernel-log",
            "keyctl",
            "mount-bind",
            "mount-proc",
            "mount-tmpfs",
            "move-mount",
            "open-by-handle",
            "open-tree",
            "perf-event",
            "pidfd-getfd-init",
            "pivot-root",
            "prlimit-init",
            "ptrace-init",
            "read-init",
            "reboot",
            "request-key",
            "route-changes",
            "set-time",
            "setns",
            "swapon",
            "umount",
            "unshare-cgroup",
            "unshare-ipc",
            "unshare-mount",
            "unshare-net",
            "unshare-pid",
            "unshare-time",
            "unshare-user",
            "unshare-uts",
            "userfaultfd",
            "variables",
        ],
    );
}

/// D8, D10: a plain container reaches what listens on the host.
#[test]
fn a_plain_container_reaches_the_host() {
    if Person::with_docker(programs()).is_none() {
        return;
    }
    let service = TcpListener::bind("0.0.0.0:0").unwrap();
    let tcp = service.local_addr().unwrap().port();
    let datagrams = UdpSocket::bind("0.0.0.0:0").unwrap();
    let udp = datagrams.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut visitor in service.incoming().flatten() {
            let mut asked = [0; 1024];
            drop(visitor.read(&mut asked));
            drop(visitor.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nthe-token\n"));
        }
    });
    thread::spawn(move || {
        let mut asked = [0; 2048];
        while let Ok((_, from)) = datagrams.recv_from(&mut asked) {
            drop(datagrams.send_to(b"the-token", from));
        }
    });
    let Some(host) = tests::own_address() else { return };
    let (tcp, udp) = (format!("{host}:{tcp}"), format!("{host}:{udp}"));
    let found = in_a_container(
        &[],
        &[
            "--token",
            "the-token",
            "--host",
            &tcp,
            "--host-udp",
            &udp,
            "--only",
            "host-services",
            "--only",
            "udp",
            "--only",
            "icmp",
        ],
    );
    assert_broken(&found, &["host-services", "udp", "icmp"]);
}

/// D13: a sandbox whose gateway is gone has no network.
#[test]
fn without_its_gateway_a_sandbox_reaches_nothing() {
    let Some(person) = Person::with_docker(programs()) else { return };
    let policy = person.policy(NETWORK);
    // A run would end with it; a session goes on without a runner.
    let started =
        person.sluice(&["session", "start", "--probe", "--mode", "none", "--policy", &policy]);
    assert_eq!(started.code, 0, "{}", started.stderr);
    let name = started.stdout.trim();
    let run = person.evidence().unwrap();
    person.kill_gateway(run.file_name().unwrap().to_str().unwrap());
    // A relay's doors stay, with nobody behind them.
    let asks = "printf 'GET http://x.test/ HTTP/1.0\\r\\n\\r\\n' | nc -w 1 gateway.sluice 3128 2>/dev/null";
    let script = format!(
        "while {asks} | grep -q HTTP; do sleep 1; done; \
         /run/sluice/probe attack --only D8 --only D11 --only D7"
    );
    let attacked = person.sluice(&["session", "exec", name, "--", "sh", "-c", &script]);
    person.sluice(&["session", "stop", name]);
    assert_eq!(attacked.code, 0, "{}", attacked.stderr);
    let printed = attacked.stdout;
    assert!(printed.contains("raw-address"), "{printed}");
    assert!(!printed.contains("BROKEN"), "{printed}");
    let refused = printed.split_whitespace().any(|word| word == "403");
    assert!(!refused, "nobody is there to refuse: {printed}");
}

/// The attack program is for sandboxes: on a machine it does nothing.
#[test]
fn the_attack_program_does_nothing_outside_a_sandbox() {
    let ran = Command::new(programs().probe).arg("attack").output().unwrap();
    assert_eq!((ran.status.code(), ran.stdout.as_slice()), (Some(2), b"".as_slice()));
}

/// The whole of it, as a newcomer sees it.
#[test]
fn the_demonstration_goes_as_it_says_on_every_backend() {
    for person in Person::everywhere(programs()) {
        let ran = person.sluice(&["demo"]);
        let place = person.backend();
        assert_eq!(ran.code, 0, "{place:?}: {}{}", ran.stdout, ran.stderr);
        assert!(!ran.stdout.contains("NOT SO"), "{place:?}: {}", ran.stdout);
        assert!(ran.stdout.contains("The agent was here."), "{place:?}: {}", ran.stdout);
    }
}

#[test]
fn the_doctor_finds_every_backend_that_is_here_healthy() {
    for person in Person::everywhere(programs()) {
        let ran = person.sluice(&["doctor", "-o", "json"]);
        let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
        let place = person.backend();
        assert_eq!(
            (ran.code, &report["healthy"]),
            (0, &Value::from(true)),
            "{place:?}: {report:#}"
        );
        let [examined] = report["backends"].as_array().unwrap().as_slice() else {
            panic!("{place:?}: one backend was asked for: {report:#}")
        };
        let tools = examined["inside"]["tools"].as_array().unwrap();
        assert!(tools.len() >= 2, "{place:?}: {report:#}");
        assert!(tools.iter().all(|row| row["works"] == true), "{place:?}: {tools:#?}");
        if place == BackendKind::Docker {
            assert_eq!(examined["backend"], "docker");
        }
    }
}
