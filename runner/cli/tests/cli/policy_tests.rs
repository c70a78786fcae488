//! `sluice policy test`, `schema` and `presets`.

use expect_test::expect;

use crate::world::World;

const POLICY: &str = "version: 1
net:
  enabled: true
  allow:
    - {name: docs, host: docs.python.org}
tests:
  - {request: GET https://docs.python.org/3/, expect: allow, rule: docs}
  - {request: GET https://example.com/, expect: deny}
";

#[test]
fn a_policy_that_keeps_its_promises_passes() {
    let world = World::with_policy(POLICY);
    expect![[r#"
        exit 0
        --- stdout
        ok sandbox.policy.yaml:7: GET https://docs.python.org/3/: allow: docs
        ok sandbox.policy.yaml:8: GET https://example.com/: deny: no rule matches
        2 passed, 0 failed
        --- stderr
    "#]]
    .assert_eq(&world.sluice(&["policy", "test"]).whole());
}

#[test]
fn a_broken_promise_fails_and_says_what_happened_instead() {
    let policy = format!(
        "{POLICY}  - {{request: POST https://docs.python.org/, expect: allow}}\n  - {{request: GET https://docs.python.org/, expect: allow, rule: other}}\n"
    );
    let world = World::with_policy(&policy);
    expect![[r#"
        exit 1
        --- stdout
        ok sandbox.policy.yaml:7: GET https://docs.python.org/3/: allow: docs
        ok sandbox.policy.yaml:8: GET https://example.com/: deny: no rule matches
        FAILED sandbox.policy.yaml:9: POST https://docs.python.org/: deny: no rule matches; expected allow
        FAILED sandbox.policy.yaml:10: GET https://docs.python.org/: allow: docs; expected allow: other
        2 passed, 2 failed
        --- stderr
    "#]].assert_eq(&world.sluice(&["policy", "test"]).whole());

    let ran = world.sluice(&["policy", "test", "-o", "jsonl"]);
    assert_eq!(ran.code, 1);
    let last: serde_json::Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&last["passed"], &last["expected_rule"]), (&false.into(), &"other".into()));
    assert_eq!(ran.stderr, "2 passed, 2 failed\n");
}

#[test]
fn no_tests_is_no_failure() {
    let world = World::with_policy("version: 1\n");
    let ran = world.sluice(&["policy", "test"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "0 passed, 0 failed\n"));
}

#[test]
fn the_schema_is_json_and_the_presets_are_valid() {
    let world = World::new();
    let schema = world.sluice(&["policy", "schema"]).json();
    assert!(schema["properties"]["net"].is_object());

    let listed = world.sluice(&["policy", "presets", "-o", "json"]).json();
    for preset in listed.as_array().unwrap() {
        let name = preset["name"].as_str().unwrap();
        let ran = world.sluice(&["policy", "presets", name]);
        world.write("preset.yaml", &ran.stdout);
        assert_eq!(world.sluice(&["policy", "test", "preset.yaml"]).code, 0, "{name}");
    }
    let ran = world.sluice(&["policy", "presets", "github-reed"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.starts_with("error: there is no preset `github-reed`; known are"),
        "{ran:?}"
    );
}
