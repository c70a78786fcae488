//! Golden settings, and what is said about broken ones.

use std::path::Path;

use expect_test::{Expect, expect, expect_file};

use super::*;

const GOLDEN: &str = include_str!("../../testdata/gateway.yaml");
const LEAST: &str =
    "run: r\npolicy: p.yaml\nlisten: {proxy: 127.0.0.1:1}\ncontrol: c.sock\naudit: a\n";

fn read_text(text: &str) -> Result<Config, Problems> {
    read(&Source::new("gateway.yaml", text), Path::new("/etc/sluice"))
}

#[track_caller]
fn says(text: &str, expected: Expect) {
    let problems = read_text(text).expect_err("the settings are broken");
    expected.assert_eq(&format!("{problems}\n"));
}

#[test]
fn the_golden_file_means_what_it_says() {
    let config = read_text(GOLDEN).unwrap_or_else(|problems| panic!("{problems}"));
    expect_file!["../../testdata/gateway.golden.txt"].assert_eq(&format!("{config:#?}\n"));
}

#[test]
fn the_least_that_can_be_written_is_enough() {
    let config = read_text(LEAST).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(config.policy, Path::new("/etc/sluice/p.yaml"));
    assert_eq!(config.ca, Ca::Memory { lifetime: certs::Lifetime::default() });
    assert_eq!(config.limits, Bounds::default());
    assert_eq!(config.topology, Topology::Host);
    assert!(!config.observe);
}

#[test]
fn every_problem_is_reported_at_once_with_its_place() {
    let broken = include_str!("../../testdata/broken.yaml");
    let problems = read_text(broken).expect_err("the settings are broken");
    expect_file!["../../testdata/broken.txt"].assert_eq(&format!("{problems}\n"));
}

#[test]
fn nothing_is_assumed_where_a_setting_is_missing() {
    says(
        "ca: memory\n",
        expect![[r#"
            gateway.yaml: `run` is missing
            gateway.yaml: `policy` is missing
            gateway.yaml: `listen` is missing
            gateway.yaml: `control` is missing
            gateway.yaml: `audit` is missing
        "#]],
    );
}

#[test]
fn a_misspelt_setting_is_an_error_not_a_default() {
    says(
        &format!("{LEAST}limit: {{connections: 1}}\n"),
        expect![[r#"
        gateway.yaml:6:1: limit: there is no field `limit`; did you mean `limits`?
          6 | limit: {connections: 1}
            | ^^^^^
    "#]],
    );
}

#[test]
fn a_gateway_that_listens_nowhere_is_refused() {
    says(
        &LEAST.replace("{proxy: 127.0.0.1:1}", "{}"),
        expect![[r#"
        gateway.yaml:3:9: listen: nothing would listen; name at least one of `proxy`, `socks`, `http`, `https`, `dns`, `ports`, `tcp`
          3 | listen: {}
            |         ^
    "#]],
    );
}

#[test]
fn names_need_an_address_to_be_answered_with() {
    says(
        &LEAST.replace("{proxy: 127.0.0.1:1}", "{dns: '0.0.0.0:53'}"),
        expect![[r#"
        gateway.yaml:3:9: listen.dns: `0.0.0.0:53` does not say which IPv4 address names are answered with; listen on one address, or write `dns: {answer: ADDRESS}`
          3 | listen: {dns: '0.0.0.0:53'}
            |         ^
    "#]],
    );
    let told = LEAST.replace("{proxy: 127.0.0.1:1}", "{dns: ['0.0.0.0:53', '[::]:53']}");
    let config = read_text(&format!("{told}dns: {{answer: 10.0.0.2}}\n"));
    assert_eq!(config.map(|config| config.dns.answer), Ok(Some(Ipv4Addr::new(10, 0, 0, 2))));
}

#[test]
fn a_door_needs_a_port_and_packets_a_socket_that_was_handed_over() {
    says(
        "run: r
policy: p.yaml
listen:
  ports: [{port: 0, at: 'fd:a'}, {port: 8443}]
  tcp: [{host: 10.0.0.1, port: 5432, at: 'fd:b'}, {host: db.test, port: 5432, at: 'fd:c', name: x}]
  unanswered: 127.0.0.1:9
dns: {hosts: {'*.db.test': 198.19.0.1, db.test: 0.0.0.0}}
control: c.sock
audit: a
",
        expect![[r#"
            gateway.yaml:4:18: listen.ports[0].port: it must be at least 1
              4 |   ports: [{port: 0, at: 'fd:a'}, {port: 8443}]
                |                  ^
            gateway.yaml:4:34: listen.ports[1]: `at` is missing
              4 |   ports: [{port: 0, at: 'fd:a'}, {port: 8443}]
                |                                  ^
            gateway.yaml:5:16: listen.tcp[0].host: `10.0.0.1` is not a host name: it is an IP address
              5 |   tcp: [{host: 10.0.0.1, port: 5432, at: 'fd:b'}, {host: db.test, port: 5432, at: 'fd:c', name: x}]
                |                ^^^^^^^^
            gateway.yaml:5:91: listen.tcp[1].name: there is no field `name`; known here: `host`, `port`, `at`
              5 |   tcp: [{host: 10.0.0.1, port: 5432, at: 'fd:b'}, {host: db.test, port: 5432, at: 'fd:c', name: x}]
                |                                                                                           ^^^^
            gateway.yaml:6:15: listen.unanswered: `127.0.0.1:9` is no raw socket; hand one over, and write `fd:NAME`
              6 |   unanswered: 127.0.0.1:9
                |               ^^^^^^^^^^^
            gateway.yaml:7:15: dns.hosts.*.db.test: `*.db.test` is not a host name: `*` cannot stand in one; use letters, digits, `-`, `_` and `.`
              7 | dns: {hosts: {'*.db.test': 198.19.0.1, db.test: 0.0.0.0}}
                |               ^^^^^^^^^^^
            gateway.yaml:7:49: dns.hosts.db.test: `0.0.0.0` cannot be the answer to a name; write the gateway's own IPv4 address, such as `10.89.0.2`
              7 | dns: {hosts: {'*.db.test': 198.19.0.1, db.test: 0.0.0.0}}
                |                                                 ^^^^^^^
        "#]],
    );
}

#[test]
fn no_name_can_be_pinned_to_a_metadata_address() {
    says(
        &format!("{LEAST}upstream: {{hosts: {{a.test: 169.254.169.254:80}}}}\n"),
        expect![[r#"
        gateway.yaml:6:28: upstream.hosts.a.test: `169.254.169.254` is a metadata address, and no name can be pinned to one
          6 | upstream: {hosts: {a.test: 169.254.169.254:80}}
            |                            ^^^^^^^^^^^^^^^^^^
    "#]],
    );
}

#[test]
fn a_password_is_read_and_never_written_or_shown() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    std::fs::write(dir.path().join("pw"), "hunter2\n").expect("a file can be written");
    let text = format!(
        "{LEAST}upstream: {{proxy: {{address: 'proxy.test:3128', user: alice, password: {{file: pw}}}}}}\n"
    );
    let source = Source::new("gateway.yaml", text.as_str());
    let config = read(&source, dir.path()).unwrap_or_else(|problems| panic!("{problems}"));
    assert!(config.upstream.proxy.as_ref().is_some_and(|proxy| proxy.credentials.is_some()));
    assert!(!format!("{config:?}").contains("hunter2"));

    says(
        &text,
        expect![[r#"
        gateway.yaml:6:71: upstream.proxy.password: /etc/sluice/pw: No such file or directory (os error 2)
          6 | upstream: {proxy: {address: 'proxy.test:3128', user: alice, password: {file: pw}}}
            |                                                                       ^
    "#]],
    );
    says(
        &format!("{LEAST}upstream: {{proxy: 'http://alice:hunter2@proxy.test:3128'}}\n"),
        expect![[r#"
            gateway.yaml:6:19: upstream.proxy: `alice:hunter2@proxy.test:3128` is not a destination: a user name cannot stand in it; leave out what is before the `@`; write the proxy as `proxy.example:3128`, without credentials
              6 | upstream: {proxy: 'http://alice:hunter2@proxy.test:3128'}
                |                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn listening_on_a_network_is_standing_between_two() {
    let on_a_network = LEAST.replace("127.0.0.1:1", "10.0.0.2:3128");
    assert_eq!(read_text(&on_a_network).map(|config| config.topology), Ok(Topology::DualHomed));
    let inherited = LEAST.replace("127.0.0.1:1", "fd:3");
    assert_eq!(read_text(&inherited).map(|config| config.topology), Ok(Topology::Host));
    let told = format!("{on_a_network}topology: host\n");
    assert_eq!(read_text(&told).map(|config| config.topology), Ok(Topology::Host));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let err = load(Path::new("/nonexistent/gateway.yaml")).expect_err("there is no such file");
    assert_eq!(err.to_string(), "cannot read /nonexistent/gateway.yaml");
}
