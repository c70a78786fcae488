//! `sluice policy explain`, for each kind of rule.

use expect_test::{Expect, expect};

use crate::world::{Ran, World};

const POLICY: &str = r#"version: 1
extends: [no-exfiltration]
net:
  enabled: true
  allow:
    - docs.python.org
    - {name: widgets-api, host: api.example.com, methods: [GET], paths: ["/repos/acme/**"]}
    - {name: models, host: api.llm.example, methods: [POST], paths: [/v1/messages], secret: LLM_KEY}
    - {name: origin, git: git.example.com/acme/widgets, access: push, refs: ["refs/heads/agent/*"]}
    - {name: wheels, pip: [requests], registry: "https://py.registry.example/simple"}
    - {name: modules, npm: [left-pad], registry: "https://js.registry.example/"}
    - {name: database, host: db.internal.example, port: 5432, protocol: tcp, addresses: [10.0.0.0/8]}
    - {name: socket, host: ws.example.com, websocket: true}
    - {name: plain, host: plain.example.com, protocol: http, port: 8080}
    - {name: by-query, host: q.example.com, query: {format: json}}
    - {name: by-header, host: h.example.com, headers: {accept: "text/*"}}
  ask:
    - {name: writes, host: api.example.com, methods: [POST]}
  deny:
    - {name: no-admin, host: api.example.com, paths: ["/admin/**"], reason: admins only}
  passthrough:
    - {name: pinned, host: pinned.example.com}
secrets:
  LLM_KEY: {hosts: [api.llm.example], header: x-api-key}
"#;

#[track_caller]
fn explain(arguments: &[&str]) -> Ran {
    let world = World::with_policy(POLICY);
    let mut all = vec!["policy", "explain", "sandbox.policy.yaml"];
    all.extend(arguments);
    world.sluice(&all)
}

/// Verdict and rule for each request, one line each.
#[track_caller]
fn check(requests: &[&[&str]], expected: Expect) {
    let mut answers = String::new();
    for request in requests {
        let mut arguments = request.to_vec();
        arguments.extend(["-o", "json"]);
        let answer = explain(&arguments).json();
        let rule = answer["rule"]["id"].as_str().unwrap_or("-");
        let verdict = answer["verdict"].as_str().unwrap();
        let code = answer["code"].as_str().unwrap();
        answers.push_str(&format!("{verdict:5} {rule:30} {code:12} {}\n", request.join(" ")));
    }
    expected.assert_eq(&answers);
}

#[test]
fn each_kind_of_rule_is_answered_for() {
    check(
        &[
            &["GET", "https://docs.python.org/3/"],
            &["POST", "https://docs.python.org/3/"],
            &["GET", "https://api.example.com/repos/acme/widgets"],
            &["GET", "https://api.example.com/admin/users"],
            &["POST", "https://api.example.com/repos/acme/widgets"],
            &["POST", "https://api.llm.example/v1/messages"],
            &["GET", "https://git.example.com/acme/widgets/info/refs?service=git-upload-pack"],
            &["POST", "https://git.example.com/acme/widgets.git/git-receive-pack"],
            &["GET", "https://git.example.com/acme/other/info/refs?service=git-upload-pack"],
            &["GET", "https://py.registry.example/simple/requests/"],
            &["GET", "https://py.registry.example/simple/evil/"],
            &["GET", "https://js.registry.example/left-pad"],
            &["PUT", "https://js.registry.example/left-pad"],
            &["GET", "https://db.internal.example:5432/"],
            &["GET", "wss://ws.example.com/feed"],
            &["GET", "https://ws.example.com/feed", "--websocket"],
            &["GET", "https://ws.example.com/feed"],
            &["GET", "http://plain.example.com:8080/"],
            &["GET", "https://plain.example.com/"],
            &["GET", "https://q.example.com/?format=json"],
            &["GET", "https://q.example.com/?format=json&format=xml"],
            &["GET", "https://h.example.com/", "--header", "Accept: text/html"],
            &["GET", "https://h.example.com/"],
            &["GET", "https://pinned.example.com/"],
            &["GET", "https://pastebin.com/raw/x"],
            &["GET", "https://nobody.example/"],
        ],
        expect![[r#"
            allow net.allow[0]                   allowed      GET https://docs.python.org/3/
            deny  -                              no_rule      POST https://docs.python.org/3/
            allow widgets-api                    allowed      GET https://api.example.com/repos/acme/widgets
            deny  no-admin                       denied       GET https://api.example.com/admin/users
            ask   writes                         not_approved POST https://api.example.com/repos/acme/widgets
            deny  models                         secret_unavailable POST https://api.llm.example/v1/messages
            allow origin                         allowed      GET https://git.example.com/acme/widgets/info/refs?service=git-upload-pack
            deny  origin                         body_not_checkable POST https://git.example.com/acme/widgets.git/git-receive-pack
            deny  -                              no_rule      GET https://git.example.com/acme/other/info/refs?service=git-upload-pack
            allow wheels                         allowed      GET https://py.registry.example/simple/requests/
            deny  -                              no_rule      GET https://py.registry.example/simple/evil/
            allow modules                        allowed      GET https://js.registry.example/left-pad
            deny  -                              no_rule      PUT https://js.registry.example/left-pad
            allow database                       allowed      GET https://db.internal.example:5432/
            allow socket                         allowed      GET wss://ws.example.com/feed
            allow socket                         allowed      GET https://ws.example.com/feed --websocket
            deny  -                              no_rule      GET https://ws.example.com/feed
            allow plain                          allowed      GET http://plain.example.com:8080/
            deny  -                              no_rule      GET https://plain.example.com/
            allow by-query                       allowed      GET https://q.example.com/?format=json
            deny  -                              no_rule      GET https://q.example.com/?format=json&format=xml
            allow by-header                      allowed      GET https://h.example.com/ --header Accept: text/html
            deny  -                              no_rule      GET https://h.example.com/
            allow pinned                         allowed      GET https://pinned.example.com/
            deny  no-exfiltration:net.deny[0]    denied       GET https://pastebin.com/raw/x
            deny  -                              no_rule      GET https://nobody.example/
        "#]],
    );
}

#[test]
fn a_near_miss_and_the_smallest_rule_are_shown() {
    expect![[r#"
        exit 0
        --- stdout
        deny  PUT https://api.example.com/repos/acme/widgets
          because  no rule matches, and what no rule allows is denied
          near     widgets-api (sandbox.policy.yaml:7) but for the method: GET api.example.com /repos/acme/**
          to allow it, under net.allow:
            - {host: api.example.com, methods: [PUT], paths: [/repos/acme/widgets]}
        --- stderr
    "#]]
        .assert_eq(&explain(&["PUT", "https://api.example.com/repos/acme/widgets"]).whole());
}

#[test]
fn the_smallest_rule_is_valid_and_does_allow_it() {
    let requests: [&[&str]; 4] = [
        &["DELETE", "https://nobody.example:8443/a%20b/*?x=1"],
        &["GET", "http://nobody.example/"],
        &["GET", "wss://nobody.example/feed"],
        &["POST", "https://sub.nobody.example/v1/{id}/~me"],
    ];
    for request in requests {
        let mut arguments = request.to_vec();
        arguments.extend(["-o", "json"]);
        let entry = explain(&arguments).json()["would_allow"].as_str().unwrap().to_owned();
        let world = World::with_policy(&format!(
            "version: 1\nnet:\n  enabled: true\n  allow:\n    - {entry}\n"
        ));
        let mut arguments = vec!["policy", "explain", "sandbox.policy.yaml", "--exit-code"];
        arguments.extend(request);
        let ran = world.sluice(&arguments);
        assert_eq!(ran.code, 0, "{entry}\n{ran:?}");
    }
}

#[test]
fn a_deny_says_why_and_that_no_entry_helps() {
    expect![[r#"
        exit 0
        --- stdout
        deny  GET https://api.example.com/admin/x
          rule     no-admin (sandbox.policy.yaml:20)
          because  `no-admin` (sandbox.policy.yaml line 20) matches: api.example.com /admin/**; admins only
          near     widgets-api (sandbox.policy.yaml:7) but for the path: GET api.example.com /repos/acme/**
          but      a deny beats every allow: `no-admin` (sandbox.policy.yaml line 20) would have to go
          and then, under net.allow:
            - {host: api.example.com, methods: [GET], paths: [/admin/x]}
        --- stderr
    "#]].assert_eq(&explain(&["GET", "https://api.example.com/admin/x"]).whole());
}

#[test]
fn an_allow_that_loses_to_a_deny_is_shown_as_one() {
    let world = World::with_policy(
        "version: 1
net:
  enabled: true
  allow: [api.example.com]
  deny: [{name: no-admin, host: api.example.com, paths: ['/admin/**']}]
",
    );
    let request =
        ["policy", "explain", "sandbox.policy.yaml", "GET", "https://api.example.com/admin/x"];
    expect![[r#"
        exit 0
        --- stdout
        deny  GET https://api.example.com/admin/x
          rule     no-admin (sandbox.policy.yaml:5)
          because  `no-admin` (sandbox.policy.yaml line 5) matches: api.example.com /admin/**
          matches  net.allow[0] (sandbox.policy.yaml:4), but `no-admin` denies: api.example.com
          but      a deny beats every allow: `no-admin` (sandbox.policy.yaml line 5) would have to go
          and then, under net.allow:
            - {host: api.example.com, methods: [GET], paths: [/admin/x]}
        --- stderr
    "#]]
    .assert_eq(&world.sluice(&request).whole());
}

#[test]
fn each_reading_of_a_path_is_shown_with_its_answer() {
    expect![[r#"
        exit 0
        --- stdout
        deny  GET https://api.example.com/admin%2Fusers
          rule     no-admin (sandbox.policy.yaml:20)
          because  `no-admin` (sandbox.policy.yaml line 20) matches what some servers take the path for, `/admin/users`: api.example.com /admin/**; admins only
          read as  /admin%2Fusers deny: no rule matches
          read as  /admin/users deny: no-admin
          near     widgets-api (sandbox.policy.yaml:7) but for the path: GET api.example.com /repos/acme/**
          but      a deny beats every allow: `no-admin` (sandbox.policy.yaml line 20) would have to go
          and then, under net.allow:
            - {host: api.example.com, methods: [GET], paths: ["/admin%2Fusers"]}
        --- stderr
    "#]].assert_eq(&explain(&["GET", "https://api.example.com/admin%2Fusers"]).whole());
    let answer = explain(&["GET", "https://docs.python.org/a;b", "-o", "json"]).json();
    assert_eq!(answer["readings"][1]["path"], "/a");
    assert_eq!(answer["readings"][1]["rule"], "net.allow[0]");
}

#[test]
fn what_is_not_opened_is_not_judged() {
    expect![[r#"
        exit 0
        --- stdout
        allow  GET https://pinned.example.com/x
          rule     pinned (sandbox.policy.yaml:22)
          because  the connection is relayed unopened, so its requests are not judged
        --- stderr
    "#]]
    .assert_eq(&explain(&["GET", "https://pinned.example.com/x"]).whole());
}

#[test]
fn denial_is_an_exit_code_only_when_asked_for() {
    assert_eq!(explain(&["GET", "https://nobody.example/"]).code, 0);
    assert_eq!(explain(&["GET", "https://nobody.example/", "--exit-code"]).code, 3);
    assert_eq!(explain(&["POST", "https://api.example.com/x", "--exit-code"]).code, 3);
    assert_eq!(explain(&["GET", "https://docs.python.org/", "--exit-code"]).code, 0);
}

#[test]
fn what_is_no_request_is_wrong_usage() {
    for wrong in [
        ["get", "https://docs.python.org/"],
        ["GET", "docs.python.org"],
        ["GET", "ftp://docs.python.org/"],
    ] {
        let ran = explain(&wrong);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stdout.is_empty() && ran.stderr.starts_with("error: `"), "{ran:?}");
    }
    let ran = explain(&["GET", "https://docs.python.org/", "--header", "no-colon"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("write a name and a value"), "{}", ran.stderr);
}

#[test]
fn an_invalid_policy_is_told_on_stderr() {
    let world = World::with_policy("version: 9\n");
    let ran = world.sluice(&["policy", "explain", "sandbox.policy.yaml", "GET", "https://a.b/"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.starts_with("sandbox.policy.yaml:1:10: version:"), "{}", ran.stderr);
}

#[test]
fn what_the_gateway_cannot_do_yet_is_not_explained_as_allowed() {
    let world = World::new();
    world.write("p.yaml", "version: 1\nextends: [llm-anthropic]\n");
    let asked = ["policy", "explain", "p.yaml", "POST", "https://api.anthropic.com/v1/messages"];
    let ran = world.sluice(&[&asked[..], &["-o", "json", "--exit-code"]].concat());
    let answer = ran.json();
    assert_eq!(ran.code, 3, "{}", ran.stdout);
    assert_eq!(
        (&answer["verdict"], &answer["code"]),
        (&"deny".into(), &"secret_unavailable".into())
    );
    assert!(answer["but"].as_str().unwrap().contains("secrets are not put into requests yet"));

    let linted = world.sluice(&["policy", "lint", "p.yaml"]);
    let found = linted.stdout.clone() + &linted.stderr;
    assert!(found.contains("not-in-force: anthropic-messages"), "{found}");
}
