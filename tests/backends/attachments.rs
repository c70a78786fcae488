//! The same promises however a sandbox is attached to its gateway: by sockets that were
//! opened in it, by a relay, or by a network. The whole suites for each are in the long tests.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::thread;

use serde_json::Value;
use tests::JoinDeadline as _;
use tests::boxes::Person;

use crate::{answering_once, programs};

/// Somebody on each engine, attached in each way that is not chosen by itself. Whoever may
/// not open sockets in a container may have a relay as well.
fn people() -> Vec<(Person, &'static str)> {
    let makers = [Person::with_docker, Person::with_podman, Person::in_dockers_group];
    let each = |way: &'static str| {
        let people = makers.into_iter().filter_map(|make| make(programs()));
        people.map(move |person| (person.attached_by(way), way))
    };
    ["relay", "network"].into_iter().flat_map(each).collect()
}

#[test]
fn what_is_allowed_is_reached_and_the_rest_is_refused_and_recorded() {
    for (person, way) in people() {
        let host = person.host();
        let policy = person.policy(
            "version: 1\nnet: {enabled: true, allow: [{host: up.test, protocol: http, port: 80}]}\n",
        );
        let (port, serving) = answering_once("x".repeat(LARGE));
        let pin = format!("up.test={host}:{port}");
        let script = "unset http_proxy; wget -q -O - http://up.test/a | wc -c
                      wget -O - http://evil.test/b 2>&1 | grep -o 'HTTP/1.1 403'
                      nc -w 5 93.184.216.34 443 </dev/null && echo open
                      nc -w 5 1.1.1.1 53 </dev/null && echo open
                      grep -c : /proc/net/dev";
        let ran = person.shell(&["--policy", &policy, "--pin", &pin], script);
        let devices = if way == "network" { 2 } else { 1 };
        let said = format!("{LARGE}\nHTTP/1.1 403\n{devices}\n");
        assert_eq!(ran.stdout, said, "{way} {:?}: {}", person.backend(), ran.stderr);
        assert!(serving.join_in_time().starts_with("GET /a HTTP/1.1\r\n"));
        assert_eq!(ran.record["plan"]["network"]["attach"], way);

        let log = fs::read_to_string(person.evidence().unwrap().join("audit.jsonl")).unwrap();
        for path in ["/a", "/b"] {
            assert!(log.contains(&format!(r#""url.path":"{path}""#)), "{path}: {log}");
        }
        // Nobody sees there what finds no listener, and the record says so.
        let first: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
        assert_eq!(first["sluice.unanswered"], "not_seen", "{way}");
        assert_eq!(person.left_of(ran.run()), "", "{way}");
    }
}

const LARGE: usize = 1 << 20;

#[test]
fn a_relayed_sandbox_reaches_what_rules_name_by_port_and_by_address() {
    for (person, _) in people().into_iter().filter(|(_, way)| *way == "relay") {
        let policy = person.policy(
            "version: 1\nnet: {enabled: true, allow: [
               {host: one.test, port: 5432, protocol: tcp},
               {host: two.test, port: 5432, protocol: tcp}]}\n",
        );
        let servers = ["one", "two"].map(|name| {
            let server = TcpListener::bind("127.0.0.1:0").unwrap();
            let pin = format!("{name}.test={}", server.local_addr().unwrap());
            let serving = thread::spawn(move || {
                let (mut stream, _) = server.accept().unwrap();
                stream.write_all(format!("I am {name}\n").as_bytes()).unwrap();
            });
            (pin, serving)
        });
        let [(one, _), (two, _)] = &servers;
        let flags = ["--policy", &policy, "--pin", one, "--pin", two];
        let script = "for at in one two three; do
                        nc -w 5 $at.test 5432 </dev/null || echo nobody is $at
                      done; nc -l -p 443 </dev/null 2>/dev/null || echo taken";
        let ran = person.shell(&flags, script);
        let said = "I am one\nI am two\nnobody is three\ntaken\n";
        assert_eq!(ran.stdout, said, "{:?}: {}", person.backend(), ran.stderr);
        servers.into_iter().for_each(|(_, serving)| serving.join_in_time());
    }
}

/// A sandbox without its gateway has no network, and a session is served by a relay that
/// needs nobody who started it.
#[test]
fn a_relay_serves_a_session_until_its_gateway_is_gone() {
    for (person, _) in people().into_iter().filter(|(_, way)| *way == "relay") {
        let policy = person.policy("version: 1\nnet: {enabled: true}\n");
        let words = ["session", "start", "-o", "json", "--name", "s", "--policy", &policy];
        let started = person.sluice(&words);
        assert_eq!(started.code, 0, "{}", started.stderr);
        let started: Value = serde_json::from_str(&started.stdout).unwrap();
        let run = started["run"].as_str().unwrap();
        let script =
            "printf 'GET /x HTTP/1.1\\r\\nHost: a.test\\r\\n\\r\\n' | nc -w 5 a.test 80 | head -1";
        let exec = ["session", "exec", "s", "--", "sh", "-c", script];
        let refused = "HTTP/1.1 403 Refused by policy (no_rule)\r\n";
        assert_eq!(person.sluice(&exec).stdout, refused);
        assert_eq!(person.sluice(&exec).stdout, refused);
        person.kill_gateway(run);
        assert_eq!(person.sluice(&exec).stdout, "", "a dead gateway means no network");
        assert_eq!(person.sluice(&["session", "stop", "s"]).code, 0);
        assert_eq!(person.left_of(run), "");
    }
}
