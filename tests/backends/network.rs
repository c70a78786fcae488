//! The only way out is the gateway, and what it does is written down.

use serde_json::Value;
use tests::JoinDeadline as _;
use tests::authority::Authority;
use tests::available::{is_installed, skip};
use tests::boxes::Person;

use crate::{answering_once, people, programs};

#[test]
fn an_allowed_name_is_reached_and_another_refused_and_both_are_recorded() {
    for person in people() {
        let host = person.host();
        let policy = person.policy(
            "version: 1\nnet: {enabled: true, allow: [{host: up.test, protocol: http, port: 80}]}\n",
        );
        let (port, serving) = answering_once("upstream".to_owned());

        let pin = format!("up.test={host}:{port}");
        let script = "wget -q -O - http://up.test/a; wget -O - http://evil.test/b; \
                      unset http_proxy; wget -q -O - http://evil.test/c; true";
        let ran = person.shell(&["--policy", &policy, "--pin", &pin], script);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "upstream"), "{}", ran.stderr);
        assert!(ran.stderr.contains("HTTP/1.1 403 "), "{}", ran.stderr);
        assert!(serving.join_in_time().starts_with("GET /a HTTP/1.1\r\n"));

        let log = std::fs::read_to_string(person.evidence().unwrap().join("audit.jsonl")).unwrap();
        for path in ["/a", "/b", "/c"] {
            assert!(log.contains(&format!(r#""url.path":"{path}""#)), "{path}: {log}");
        }
    }
}

/// Who reads the log alone knows where names were sent and who was believed.
#[test]
fn pins_and_authorities_are_in_the_first_line_of_the_log_and_said_at_the_end() {
    for person in people() {
        let policy = person.policy("version: 1\nnet: {enabled: true}\n");
        let file = person.project().with_file_name("authority.pem");
        std::fs::write(&file, Authority::new().pem()).unwrap();
        person.give(&file);
        let (file, pin) = (file.to_str().unwrap(), "up.test=93.184.215.14:8443");
        let ran = person.shell(&["--policy", &policy, "--pin", pin, "--trust", file], "true");
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let log = std::fs::read_to_string(person.evidence().unwrap().join("audit.jsonl")).unwrap();
        let first: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
        assert_eq!(first["kind"], "log_started", "{first}");
        assert_eq!(first["sluice.upstream.pins"], serde_json::json!([pin]), "{first}");
        let digest = ran.record["plan"]["trusted"][0]["sha256"].as_str().unwrap();
        let roots = first["sluice.upstream.roots"].as_array().unwrap();
        let is_named = |root: &Value| root.as_str().unwrap().ends_with(&format!("={digest}"));
        assert!(roots.iter().any(is_named), "{digest}: {first}");
        for said in [format!("was pinned: {pin}"), format!("usual authorities: {file}")] {
            assert!(ran.stderr.contains(&said), "{said}: {}", ran.stderr);
        }
    }
}

#[test]
fn the_gateways_certificate_is_where_tools_look_for_it() {
    for person in people() {
        let policy = person.policy("version: 1\nnet: {enabled: true}\n");
        let script = "cat $NODE_EXTRA_CA_CERTS | head -1
                      grep -c BEGIN $SSL_CERT_FILE >/dev/null && cmp $SSL_CERT_FILE $CURL_CA_BUNDLE
                      cmp $SSL_CERT_FILE /etc/ssl/certs/ca-certificates.crt && echo same";
        let ran = person.shell(&["--policy", &policy], script);
        assert_eq!(ran.stdout, "-----BEGIN CERTIFICATE-----\nsame\n", "{}", ran.stderr);
    }
}

/// Many programs ask only for addresses of kinds that the machine has itself.
#[test]
fn names_resolve_for_who_asks_for_what_the_machine_can_reach() {
    let people = [Person::with_namespaces(programs()), Person::unprivileged(programs())];
    for mut person in people.into_iter().flatten() {
        if !is_installed("python3") {
            skip("python3");
            return;
        }
        person.set("SLUICE_IMAGE", "host");
        let policy = person.policy("version: 1\nnet: {enabled: true, allow: [up.test]}\n");
        let script = "python3 -c 'import socket
for family in socket.AF_INET, socket.AF_UNSPEC:
    found = socket.getaddrinfo(\"up.test\", 443, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
    print(len(found), found[0][0] == socket.AF_INET)'";
        let ran = person.shell(&["--policy", &policy], script);
        assert_eq!(ran.stdout, "1 True\n1 True\n", "{}", ran.stderr);
        let walls = "cat /proc/net/dev | grep -c : ; grep -c . /proc/net/if_inet6";
        let ran = person.shell(&["--policy", &policy], walls);
        assert_eq!(ran.stdout, "1\n0\n", "one device, and nothing of IPv6: {}", ran.stderr);
    }
}
