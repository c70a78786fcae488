//! Programs that know nothing of proxies reach what policy names, at its own port, and
//! nothing else; what they try besides is recorded.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::thread;

use serde_json::Value;
use tests::available::{is_installed, skip};
use tests::boxes::Person;
use tests::postgres::{Postgres, WHO_IT_IS};
use tests::{ChildDeadline as _, CommandDeadline as _, JoinDeadline as _, wait_for};

use crate::{people, programs};

/// Those whose sandboxes have nothing but doors, also without any privilege.
fn people_with_doors() -> Vec<Person> {
    let unprivileged = Person::unprivileged(programs());
    people().into_iter().chain(unprivileged).filter(|person| !person.has_network()).collect()
}

fn log(person: &Person) -> Vec<Value> {
    let text = fs::read_to_string(person.evidence().unwrap().join("audit.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A server that answers one connection with `words`; what it heard.
fn answering(words: &'static str) -> (u16, thread::JoinHandle<String>) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let serving = thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let mut heard = [0; 1024];
        let length = stream.read(&mut heard).unwrap();
        stream.write_all(words.as_bytes()).unwrap();
        String::from_utf8_lossy(&heard[..length]).into_owned()
    });
    (port, serving)
}

#[test]
fn two_databases_on_the_same_port_are_told_apart_by_their_addresses() {
    let (Some(one), Some(two)) = (Postgres::start("one"), Postgres::start("two")) else { return };
    for person in people_with_doors() {
        let policy = person.policy(
            "version: 1\nnet: {enabled: true, allow: [
               {host: one.test, port: 5432, protocol: tcp},
               {host: two.test, port: 5432, protocol: tcp}]}\n",
        );
        let pins = [one.port(), two.port()].map(|port| format!("127.0.0.1:{port}"));
        let pins = [format!("one.test={}", pins[0]), format!("two.test={}", pins[1])];
        let flags = ["--policy", &policy, "--pin", &pins[0], "--pin", &pins[1]];
        let script = format!(
            "for db in one two three; do
               PGCONNECT_TIMEOUT=5 psql -h $db.test -U postgres -Atc \"{WHO_IT_IS}\" 2>/dev/null ||
                 echo no $db
             done"
        );
        let ran = person.shell(&flags, &script);
        let place = format!("{:?}: {}", person.backend(), ran.stderr);
        assert_eq!(ran.stdout, "one\ntwo\nno three\n", "{place}");
        for name in ["one.test", "two.test"] {
            let recorded = |event: &Value| {
                event["server.address"] == name && event["server.port"] == 5432 && {
                    let verdict = event["sluice.verdict"].as_str();
                    verdict == Some("allow")
                }
            };
            assert!(log(&person).iter().any(recorded), "{name} {place}");
        }
    }
}

#[test]
fn a_port_that_a_rule_names_is_open_to_programs_that_know_no_proxy() {
    for person in people_with_doors() {
        let policy = person.policy(
            "version: 1\nnet: {enabled: true, allow: [
               {host: up.test, port: 8088, protocol: http}]}\n",
        );
        let (port, serving) =
            answering("HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\nupstream");
        let pin = format!("up.test=127.0.0.1:{port}");
        let ask = |host: &str| {
            format!(
                "printf 'GET /a HTTP/1.1\\r\\nHost: {host}:8088\\r\\nConnection: close\\r\\n\\r\\n' |
                   nc -w 5 {host} 8088 | grep -c upstream"
            )
        };
        let script = format!("{}; {}; true", ask("up.test"), ask("evil.test"));
        let ran = person.shell(&["--policy", &policy, "--pin", &pin], &script);
        assert_eq!(ran.stdout, "1\n0\n", "{:?}: {}", person.backend(), ran.stderr);
        assert!(serving.join_in_time().starts_with("GET /a HTTP/1.1\r\n"));
        assert!(ran.stderr.contains("refused evil.test (1, no_rule)"), "{}", ran.stderr);
    }
}

/// The kernel refuses such a connection by itself, at once; the gateway sees that it was
/// tried.
#[test]
fn a_port_without_a_door_is_refused_at_once_and_recorded() {
    let people = people_with_doors();
    for person in people.into_iter().filter(Person::sees_what_finds_no_door) {
        let policy = person.policy("version: 1\nnet: {enabled: true}\n");
        // The last is tried when nothing is left to wait for.
        let script = "nc -w 60 93.184.216.34 6379 </dev/null; nc -w 60 up.test 8443 </dev/null";
        let ran = person.shell(&["--policy", &policy], script);
        let refused = ran.stderr.matches("Connection refused").count();
        assert_eq!((ran.code, refused), (1, 2), "{}", ran.stderr);
        let events = log(&person);
        let refused: Vec<String> = events
            .iter()
            .filter(|event| event["sluice.reason"] == "no_door")
            .map(|event| format!("{}:{}", event["server.address"], event["server.port"]))
            .collect();
        assert_eq!(events[0]["sluice.unanswered"], "recorded");
        assert_eq!(refused, ["\"93.184.216.34\":6379", "\"198.18.0.1\":8443"], "{events:?}");
    }
}

/// Neither the engine nor the machine has anything of a sandbox's network.
#[test]
fn runs_leave_the_machines_networks_and_firewall_as_they_are() {
    let shown = |program: &str, words: &[&str]| {
        let shown = Command::new(program).args(words).output_in_time();
        // Counters of packets are not the runs' alone.
        let text = shown.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
        let lines = text.unwrap_or_default();
        lines.lines().filter(|it| !it.starts_with(['#', ':'])).map(str::to_owned).collect()
    };
    let network = || -> [Vec<String>; 4] {
        [
            shown("docker", &["network", "ls", "--no-trunc"]),
            shown("iptables-save", &[]),
            shown("ip", &["route", "show", "table", "all"]),
            shown("ip", &["-o", "link"]),
        ]
    };
    for person in people_with_doors() {
        let policy = person.policy("version: 1\nnet: {enabled: true}\n");
        // Other tests may make networks meanwhile; then it is looked at again. What a run
        // itself changed would be there each time.
        wait_for("a run that changes nothing", || {
            let before = network();
            let mut running = person.start_shell(&["--policy", &policy], "echo started; exec cat");
            running.printed("started");
            let during = network();
            drop(running.child.stdin.take());
            assert!(running.child.wait_in_time().unwrap().success());
            (during == before && network() == before).then_some(())
        });
    }
}

/// What a sandbox serves to itself is its own affair, also on every address of its own.
#[test]
fn a_sandbox_serves_itself_on_ports_without_a_door() {
    for person in people_with_doors() {
        let policy = person.policy("version: 1\nnet: {enabled: true}\n");
        let script = "(echo hello | nc -l -p 8000) &
                      until nc 127.0.0.1 8000 </dev/null 2>/dev/null; do sleep 0.1; done
                      nc -l -p 80 </dev/null >/dev/null 2>&1 || echo taken";
        let ran = person.shell(&["--policy", &policy], script);
        assert_eq!(ran.stdout, "hello\ntaken\n", "{:?}: {}", person.backend(), ran.stderr);
        let seen = log(&person).iter().any(|event| event["sluice.reason"] == "no_door");
        assert!(!seen, "what it says to itself is not recorded");
    }
}

/// Without leave to open its sockets, the way is a network, and a run says so.
#[test]
fn who_may_not_open_doors_has_a_network_and_is_told() {
    let Some(person) = Person::in_dockers_group(programs()) else { return };
    let policy = person.policy("version: 1\nnet: {enabled: true}\n");
    let ran = person.shell(&["--policy", &policy], "true");
    assert_eq!(ran.record["plan"]["network"]["attach"], "network", "{}", ran.stderr);
    let said = "the sandbox is attached to its gateway by a network: only root may enter";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    let policy = person.policy("version: 1\nnet: {enabled: true, attach: sockets}\n");
    let ran = person.shell(&["--policy", &policy], "echo it ran");
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("`sockets`"), "{}", ran.stderr);
}

/// The gateway takes as many as it can serve, the kernel keeps as many again, and the rest
/// wait; a neighbour notices nothing, and neither does who comes after.
#[test]
fn ten_thousand_connections_to_its_own_doors_harm_nobody_else() {
    let (Some(mut person), Some(neighbour)) =
        (Person::with_namespaces(programs()), Person::with_namespaces(programs()))
    else {
        return;
    };
    if !is_installed("python3") {
        skip("python3");
        return;
    }
    person.set("SLUICE_IMAGE", "host");
    let script = "python3 -uc '
import os, signal, socket, sys
children = []
for _ in range(20):
    ready, opened = os.pipe()
    child = os.fork()
    if child == 0:
        kept = []
        for _ in range(500):
            kept.append(socket.socket())
            kept[-1].setblocking(False)
            kept[-1].connect_ex((\"198.18.0.1\", 443))
        os.write(opened, b\"x\")
        signal.pause()
    os.read(ready, 1)
    children.append(child)
print(\"opened %d\" % (len(children) * 500))
sys.stdin.readline()
for child in children:
    os.kill(child, signal.SIGKILL)
asking = socket.create_connection((\"198.18.0.1\", 80))
asking.sendall(b\"GET / HTTP/1.1\\r\\nHost: x.test\\r\\n\\r\\n\")
print(asking.recv(12).decode())'";
    let policy = person.policy("version: 1\nnet: {enabled: true}\n");
    let mut running = person.start_shell(&["--policy", &policy], script);
    running.printed("opened 10000");
    let policy = neighbour.policy("version: 1\nnet: {enabled: true}\n");
    let asked = neighbour.shell(&["--policy", &policy], "wget -O - http://evil.test/ 2>&1; true");
    assert!(asked.stdout.contains("HTTP/1.1 403"), "{}{}", asked.stdout, asked.stderr);
    running.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let mut said = String::new();
    running.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "opened 10000\nHTTP/1.1 403\n");
    assert!(running.child.wait_in_time().unwrap().success());
}
