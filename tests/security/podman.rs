//! Podman's own internal networks are open in three ways, and ours is not.
//!
//! The control is what people type: `podman network create --internal`. There
//! the bridge has an address, a name server on it that asks the world, and IPv6.
//! Without root the bridge is in a namespace that all of a user's networks share,
//! so the service that must not answer listens in there.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;

use tests::available::{is_installed, own_address, skip};
use tests::boxes::podman::{self, User};
use tests::boxes::{Person, Programs, wait_for};
use tests::{ChildDeadline as _, CommandDeadline as _};

const NETWORK: &str = "version: 1\nnet: {enabled: true}\n";

fn person() -> Option<Person> {
    Person::with_podman(Programs {
        sluice: env!("CARGO_BIN_EXE_sluice-under-test"),
        init: env!("CARGO_BIN_EXE_sluice-init-under-test"),
        probe: env!("CARGO_BIN_EXE_sluice-probe-under-test"),
        gateway: env!("CARGO_BIN_EXE_sluice-gateway-under-test"),
        launch: env!("CARGO_BIN_EXE_sluice-launch-under-test"),
    })
}

/// Something of the user's that is ended and removed with the test.
struct Kept<'u> {
    user: &'u User,
    service: Child,
    container: String,
    network: String,
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.user.podman(&["rm", "-f", "-t", "0", &self.container]);
        self.user.podman(&["network", "rm", "-f", &self.network]);
        drop(self.service.kill());
        drop(self.service.wait_in_time());
    }
}

/// A container on an internal network as people make it, and a service on every
/// address of the namespace that its bridge is in.
fn as_people_do(user: &User, port: u16) -> Kept<'_> {
    let name = format!("sluice-test-naive-{}", std::process::id());
    let serve = ["unshare", "--rootless-netns", "python3", "-m", "http.server", "--bind", "::"];
    let service = user
        .command("podman")
        .args(serve)
        .arg(port.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let kept = Kept { user, service, container: name.clone(), network: name.clone() };
    user.podman(&["network", "create", "--internal", &name]);
    let mut run = Vec::new();
    if Path::new("/sys/fs/cgroup/unified/cgroup.procs").exists() {
        run.extend(["--runtime", "runc"]);
    }
    run.extend(["run", "-d", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]);
    run.extend(["--network", &name, "--name", &name, podman::image().unwrap(), "sleep", "300"]);
    assert!(!user.podman(&run).is_empty(), "a plain container does not start");
    kept
}

/// The addresses of a network's bridge: the one that its subnet has for it, and
/// the one it has by itself.
fn bridge(user: &User, network: &str) -> (Ipv4Addr, String) {
    let ask = |what: &str| user.podman(&["network", "inspect", network, "--format", what]);
    let device = ask("{{.NetworkInterface}}");
    let subnet = ask("{{range .Subnets}}{{.Subnet.IP}}{{end}}");
    let first = u32::from(subnet.parse::<Ipv4Addr>().unwrap()) + 1;
    let show = ["unshare", "--rootless-netns", "ip", "-6", "-o", "addr", "show", "dev", &device];
    let own = wait_for("the bridge's own address", || {
        let shown = user.podman(&show);
        let own = shown.split_whitespace().find(|word| word.starts_with("fe80:"))?;
        Some(own.split('/').next()?.to_owned())
    });
    (first.into(), own)
}

/// Knocks at both addresses, and asks for a name.
fn knocking(v4: Ipv4Addr, v6: &str, port: u16, known: &str) -> String {
    format!(
        "nc -w 2 {v4} {port} </dev/null >/dev/null 2>&1 && echo open bridge
         nc -w 2 {v6}%eth0 {port} </dev/null >/dev/null 2>&1 && echo open link-local
         timeout 3 nslookup {known} {v4} 2>/dev/null | grep -q '^Name' && echo open names
         echo done\n"
    )
}

#[test]
fn what_is_open_on_an_internal_network_of_podmans_is_shut_on_ours() {
    let Some(person) = person() else { return };
    let person = person.attached_by("network");
    if !is_installed("python3") {
        skip("python3");
        return;
    }
    let user = podman::user().unwrap();
    let port = 20_000 + u16::try_from(std::process::id() % 20_000).unwrap();
    let kept = as_people_do(user, port);
    let (v4, v6) = bridge(user, &kept.network);
    let knock = knocking(v4, &v6, port, &kept.container);
    let all = wait_for("the service to answer", || {
        let said = user.podman(&["exec", &kept.container, "sh", "-c", &knock]);
        // An address of IPv6 takes a moment to be one.
        said.contains("open link-local").then_some(said)
    });
    assert_eq!(
        all.lines().collect::<Vec<_>>(),
        ["open bridge", "open link-local", "open names", "done"],
        "the control"
    );

    let policy = person.policy(NETWORK);
    let mut running = person.start_shell(&["--policy", &policy], "echo started; exec sh");
    running.printed("started");
    let (v4, v6) = bridge(user, &format!("sluice-{}", running.run()));
    let mut input = running.child.stdin.take().unwrap();
    input.write_all(knocking(v4, &v6, port, "gateway").as_bytes()).unwrap();
    drop(input);
    let mut said = String::new();
    running.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "started\ndone\n");
}

#[test]
fn without_root_too_no_service_of_the_host_answers() {
    let Some(person) = person() else { return };
    let service = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = service.local_addr().unwrap().port();
    // Whoever comes is let in and shown out, until the test has ended.
    thread::spawn(move || service.incoming().for_each(drop));
    let host = own_address().map_or_else(|| "192.0.2.2".to_owned(), |own| own.to_string());
    // Where slirp would be, and where Podman says that the host is.
    let doors = [host.as_str(), "10.0.2.2", "10.0.2.3", "host.containers.internal", "127.0.0.1"];
    let tries = doors.map(|door| {
        format!("nc -w 2 {door} {port} </dev/null >/dev/null 2>&1 && echo open {door}; ")
    });
    let policy = person.policy(NETWORK);
    let script = format!("{}grep -c containers.internal /etc/hosts", tries.concat());
    let ran = person.shell(&["--policy", &policy], &script);
    assert_eq!(ran.stdout, "0\n", "{}", ran.stderr);

    let user = podman::user().unwrap();
    let mut plain = Vec::new();
    if Path::new("/sys/fs/cgroup/unified/cgroup.procs").exists() {
        plain.extend(["--runtime", "runc"]);
    }
    plain.extend(["run", "--rm", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]);
    plain.extend([podman::image().unwrap(), "sh", "-c", &script]);
    let plain = user.podman(&plain);
    assert!(plain.contains(&format!("open {host}")), "the control: {plain}");
}

#[test]
fn a_podman_that_we_started_ends_with_us_however_we_end() {
    let Some(person) = person() else { return };
    let uid = podman::user().unwrap().uid;
    if Path::new(&format!("/run/user/{uid}/podman/podman.sock")).exists() {
        // Somebody serves it here already, and goes on.
        skip("podman that nobody serves");
        return;
    }
    let running = person.start_shell(&[], "echo started; exec sleep 300");
    running.printed("started");
    let ours = format!("podman-{}.sock", running.child.id());
    let serving = || {
        let all = std::process::Command::new("ps").args(["-eo", "args"]).output_in_time().unwrap();
        let all = String::from_utf8_lossy(&all.stdout).into_owned();
        all.lines().any(|line| line.contains(&ours) && line.contains("system service"))
    };
    assert!(serving(), "nobody else serves Podman here, so we do");
    running.signal("KILL");
    wait_for("our Podman to leave", || (!serving()).then_some(()));
    assert_eq!(person.sluice(&["sweep"]).code, 0);
}
