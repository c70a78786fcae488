//! What a command can reach from inside its sandbox: its gateway, and nothing.
//!
//! Each attempt has a control where that is cheap: the same from a plain
//! container succeeds, so that an attempt that fails for another reason is seen.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::process::Command;
use std::thread;

use tests::CommandDeadline as _;
use tests::boxes::{Person, Programs, docker, image, wait_for};

const NETWORK: &str = "version: 1\nnet: {enabled: true}\n";

pub(crate) const PROGRAMS: Programs = Programs {
    sluice: env!("CARGO_BIN_EXE_sluice-under-test"),
    init: env!("CARGO_BIN_EXE_sluice-init-under-test"),
    probe: env!("CARGO_BIN_EXE_sluice-probe-under-test"),
    gateway: env!("CARGO_BIN_EXE_sluice-gateway-under-test"),
    launch: env!("CARGO_BIN_EXE_sluice-launch-under-test"),
};

pub(crate) fn person() -> Option<Person> {
    Person::with_docker(PROGRAMS)
}

/// Somebody whose sandboxes have nothing but doors, and somebody whose sandboxes have a
/// network of their own: what a network made necessary must hold without one too.
fn people() -> Vec<Person> {
    let on_a_network = person().map(|person| person.attached_by("network"));
    person().into_iter().chain(on_a_network).collect()
}

/// Every IPv4 address of this machine but loopback.
fn own_addresses() -> Vec<Ipv4Addr> {
    let output = Command::new("ip").args(["-4", "-o", "addr"]).output_in_time().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let addresses = text.lines().filter_map(|line| {
        let address = line.split_whitespace().nth(3)?.split('/').next()?;
        address.parse::<Ipv4Addr>().ok()
    });
    addresses.filter(|address| !address.is_loopback()).collect()
}

/// Tries to connect to each; prints those that answer.
fn knocking(at: &[(String, u16)]) -> String {
    let tries = at.iter().map(|(host, port)| {
        format!("nc -w 2 {host} {port} </dev/null >/dev/null 2>&1 && echo open {host}:{port}; ")
    });
    format!("{}echo done", tries.collect::<String>())
}

#[test]
fn no_service_of_the_host_answers_on_any_of_its_addresses() {
    let people = people();
    if people.is_empty() {
        return;
    }
    for person in &people {
        let policy = person.policy(NETWORK);
        assert_eq!(person.shell(&["--policy", &policy], "true").code, 0, "makes every network");
    }
    let service = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = service.local_addr().unwrap().port();
    // Whoever comes is let in and shown out, until the test has ended.
    thread::spawn(move || service.incoming().for_each(drop));
    let doors: Vec<_> =
        own_addresses().into_iter().map(|address| (address.to_string(), port)).collect();
    assert!(!doors.is_empty());

    let plain = docker(&["run", "--rm", image().unwrap(), "sh", "-c", &knocking(&doors)]);
    assert!(plain.contains("open "), "a plain container reaches the host: {plain}");
    // Its own bridge's address too, which the sandbox knows from its route.
    let own = format!(
        "gw=$(ip route | sed -n 's/^default via \\([0-9.]*\\).*/\\1/p'); \
         [ -n \"$gw\" ] && nc -w 2 $gw {port} </dev/null >/dev/null 2>&1 && echo open $gw; {}",
        knocking(&doors)
    );
    for person in people {
        let policy = person.policy(NETWORK);
        let ran = person.shell(&["--policy", &policy], &own);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "done\n"), "{}", ran.stderr);
    }
}

#[test]
fn other_sandboxes_and_their_gateways_are_out_of_reach() {
    let (Some(person), Some(other)) = (person(), person()) else { return };
    let (person, other) = (person.attached_by("network"), other.attached_by("network"));
    let policy = person.policy(NETWORK);
    let script = "echo started; nc -l -p 8000 -e echo hello; sleep 60";
    let running = other.start_shell(&["--policy", &other.policy(NETWORK)], script);
    running.printed("started");
    let run = running.run();
    let address = |name: &str| {
        let network =
            format!("{{{{(index .NetworkSettings.Networks \"sluice-{run}\").IPAddress}}}}");
        docker(&["inspect", "--format", &network, name])
    };
    let sandbox = address(&format!("sluice-{run}"));
    let gateway = address(&format!("sluice-{run}-gateway"));
    assert!(sandbox.parse::<Ipv4Addr>().is_ok() && gateway.parse::<Ipv4Addr>().is_ok());

    let doors = [(sandbox, 8000), (gateway.clone(), 3128), (gateway, 80)];
    let ran = person.shell(&["--policy", &policy], &knocking(&doors));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "done\n"), "{}", ran.stderr);
    // Where every address is a door, it is one of this sandbox's own gateway, which refuses.
    let Some(person) = self::person().filter(Person::sees_what_finds_no_door) else { return };
    let policy = person.policy(NETWORK);
    let [(sandbox, _), (gateway, _), _] = &doors;
    let asking =
        format!("printf 'GET / HTTP/1.0\\r\\nHost: x.test\\r\\n\\r\\n' | nc -w 3 {gateway} 80");
    let script = format!("{}; {asking} | head -1", knocking(&doors[..1]));
    let ran = person.shell(&["--policy", &policy], &script);
    assert_eq!(ran.stdout, "done\nHTTP/1.1 403 Refused by policy (no_rule)\r\n", "{}", ran.stderr);
    for refused in [format!("{sandbox} (1, no_door)"), "x.test (1, no_rule)".to_owned()] {
        assert!(ran.stderr.contains(&refused), "{refused}: {}", ran.stderr);
    }
}

#[test]
fn metadata_services_and_the_engine_are_out_of_reach() {
    for person in people() {
        let policy = person.policy(NETWORK);
        let script = "ls /var/run/docker.sock /run/docker.sock /run/containerd 2>/dev/null
            for at in 169.254.169.254 100.100.100.200; do
                printf 'GET /latest/meta-data/ HTTP/1.0\\r\\nHost: %s\\r\\n\\r\\n' $at |
                    nc -w 3 $at 80 2>/dev/null | head -1
            done; echo done";
        let ran = person.shell(&["--policy", &policy], script);
        // Where every address is a door, an address without a name is refused and recorded.
        let refused = "HTTP/1.1 403 Refused by policy (no_rule)\r\nHTTP/1.1 403 Refused by policy (no_rule)\r\ndone\n";
        let said = if person.sees_what_finds_no_door() { refused } else { "done\n" };
        assert_eq!((ran.code, ran.stdout.as_str()), (0, said), "{}", ran.stderr);
        let recorded = ran.stderr.contains("100.100.100.200 (1, no_rule), 169.254.169.254 (1");
        assert_eq!(recorded, person.sees_what_finds_no_door(), "{}", ran.stderr);
    }
}

#[test]
fn no_name_leaves_and_every_name_is_the_gateway() {
    let people = people();
    if people.is_empty() {
        return;
    }
    // A name server on the host, which a plain container could ask.
    let server = UdpSocket::bind("0.0.0.0:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let port = server.local_addr().unwrap().port();
    let everywhere: String = own_addresses()
        .iter()
        .map(|host| {
            format!("timeout 1 tftp -g -r secret -l /tmp/x {host} {port} >/dev/null 2>&1; ")
        })
        .collect();
    docker(&["run", "--rm", image().unwrap(), "sh", "-c", &everywhere]);
    let mut heard = [0; 64];
    wait_for("the question of a plain container", || server.recv_from(&mut heard).ok());
    while server.recv_from(&mut heard).is_ok() {}

    let script = format!(
        "{everywhere} gateway=$(grep gateway.sluice /etc/hosts | cut -f1)
         nslookup leak.example 2>/dev/null | grep -c \"$gateway\"
         timeout 3 nslookup leak.example 192.0.2.53 2>/dev/null | grep ^Address | grep -v 192.0.2.53 | grep -v \"$gateway\" | grep -c .; true"
    );
    for person in people {
        let policy = person.policy(NETWORK);
        let ran = person.shell(&["--policy", &policy], &script);
        let counts: Vec<&str> = ran.stdout.lines().collect();
        assert!(matches!(counts[..], [known, "0"] if known != "0"), "{ran:?}");
        assert!(server.recv_from(&mut heard).is_err(), "a sandbox reached the host's name server");
    }
}

#[test]
fn without_a_network_there_is_none() {
    let Some(person) = person() else { return };
    let ran = person.shell(&[], "cat /proc/net/dev | tail -n +3 | cut -d: -f1; ip route | wc -l");
    assert_eq!(ran.stdout.split_whitespace().collect::<Vec<_>>(), ["lo", "0"], "{}", ran.stderr);
}

#[test]
fn what_escapes_are_made_of_fails() {
    let Some(person) = person() else { return };
    for attempt in [
        "unshare -U true",
        "unshare -n true",
        "mount -t tmpfs none /tmp",
        "chroot / true",
        "mknod /tmp/disk b 8 0",
        "echo 1 >/proc/sys/kernel/sysrq",
        "echo b >/proc/sysrq-trigger",
        "echo x >/sys/kernel/uevent_helper",
        "echo x >/etc/passwd",
        "touch /x",
        "echo x >/run/sluice/init",
        "cat /proc/kcore | head -c 1 | grep -q .",
        "cat /proc/1/environ",
        "kill -9 1; sleep 1; kill -0 1 && false",
    ] {
        let ran = person.shell(&[], &format!("({attempt}) >/dev/null 2>&1 && echo did it; true"));
        assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{attempt}: {}", ran.stderr);
    }
}
