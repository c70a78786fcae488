//! `sluice policy lint`: it finds each smell.

use expect_test::expect;

use crate::world::World;

#[test]
fn each_smell_is_found() {
    let world = World::with_policy(
        r#"version: 1
net:
  enabled: true
  allow:
    - {name: all-of-it, host: api.example.com}
    - {name: shadowed, host: api.example.com, methods: [GET], paths: ["/v1/**"]}
    - {name: hidden, host: paste.example.net}
    - {name: buckets, host: "*.s3.amazonaws.com"}
    - {name: writes, host: "*.example.org", methods: [GET, POST]}
    - {name: raw, host: db.example.com, port: 5432, protocol: tcp}
    - {name: nowhere, pip: [requests]}
  deny:
    - paste.example.net
  passthrough:
    - {name: blind, host: "*.pinned.example"}
secrets:
  LOST: {hosts: [other.example.com], header: x-api-key}
"#,
    );
    let ran = world.sluice(&["policy", "lint"]);
    expect![[r#"
        exit 1
        --- stdout
        sandbox.policy.yaml:6: shadowed: shadowed: adds nothing to `all-of-it`, which matches all that it does
          instead: remove it, or make the other one narrower
        sandbox.policy.yaml:7: unreachable: hidden: never decides: `net.deny[0]` answers deny first
          instead: remove one of the two
        sandbox.policy.yaml:8: shared-suffix: buckets: anyone can get a name below `s3.amazonaws.com`, an attacker too
          instead: name your own hosts one by one
        sandbox.policy.yaml:9: wildcard-write: writes: writes to any path of any host below `example.org` pass
          instead: name the hosts, or the paths, that take the writes
        sandbox.policy.yaml:10: tcp: raw: bytes are relayed unseen: only who is contacted is judged and recorded
          instead: keep it only for protocols that are not HTTP
        sandbox.policy.yaml:15: wildcard-passthrough: blind: TLS to every name below `pinned.example` is not opened: names and bodies can carry data out unseen
          instead: name one host, or allow it without passthrough
        sandbox.policy.yaml: unused-secret: secret `LOST` is bound to no host that a rule lets requests reach
          instead: add `secret: LOST` to the rule for its host, or remove it
        sandbox.policy.yaml:11: no-registry: nowhere: the rule matches nothing
          instead: pip names no registry on this machine; write `registry: https://...` in the rule
        --- stderr
        8 findings
    "#]].assert_eq(&ran.whole());

    let found = world.sluice(&["policy", "lint", "-o", "json"]).json();
    let codes: Vec<&str> =
        found.as_array().unwrap().iter().map(|it| it["code"].as_str().unwrap()).collect();
    expect!["shadowed unreachable shared-suffix wildcard-write tcp wildcard-passthrough unused-secret no-registry"].assert_eq(&codes.join(" "));
}

#[test]
fn a_policy_without_a_smell_passes() {
    let world = World::with_policy(
        "version: 1\nextends: [github-read, no-exfiltration]\nnet: {enabled: true, allow: [docs.python.org]}\n",
    );
    let ran = world.sluice(&["policy", "lint"]);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, "", "0 findings\n"));
}

#[test]
fn an_invalid_policy_is_not_linted() {
    let world = World::with_policy("version: 1\nnett: {}\n");
    let ran = world.sluice(&["policy", "lint"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("did you mean `net`?"), "{}", ran.stderr);
}
