//! `sluice policy check`.

use std::fs;
use std::path::{Path, PathBuf};

use expect_test::{expect, expect_file};

use crate::world::{Ran, World, program};

fn broken() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/broken")
}

/// The broken policies that are kept beside this file, by name.
fn broken_policies() -> Vec<String> {
    let names = fs::read_dir(broken()).unwrap().map(|it| it.unwrap().file_name());
    let mut names: Vec<String> = names
        .map(|name| name.into_string().unwrap())
        .filter(|name| name.ends_with(".policy.yaml"))
        .collect();
    names.sort();
    names
}

fn check(arguments: &[&str]) -> Ran {
    let home = tempfile::tempdir().unwrap();
    let mut command = program(&broken(), home.path());
    command.args(["policy", "check"]).args(arguments);
    Ran::of(command)
}

#[test]
fn every_broken_policy_is_refused_in_the_words_beside_it() {
    let names = broken_policies();
    assert!(names.len() >= 20, "{names:?}");
    for name in names {
        let ran = check(&[&name]);
        ran.assert_harmless();
        assert_eq!(ran.code, 2, "{name}");
        let expected = broken().join(name.replace(".policy.yaml", ".expected"));
        expect_file![expected].assert_eq(&ran.whole());
    }
}

#[test]
fn every_problem_has_a_line_a_column_and_words() {
    for name in broken_policies() {
        let problems = check(&[&name, "-o", "json"]).json();
        let problems = problems.as_array().unwrap();
        assert!(!problems.is_empty(), "{name}");
        for problem in problems {
            assert_eq!(problem["kind"], "problem", "{name}: {problem}");
            assert!(problem["line"].as_u64() > Some(0), "{name}: {problem}");
            assert!(problem["column"].as_u64() > Some(0), "{name}: {problem}");
            assert!(problem["message"].as_str().is_some_and(|it| it.len() > 10), "{problem}");
        }
    }
}

#[test]
fn many_problems_are_reported_at_once_and_over_several_files() {
    let ran = check(&["21-many-at-once.policy.yaml", "07-method-case.policy.yaml", "-o", "jsonl"]);
    assert_eq!(ran.code, 2);
    assert_eq!(ran.stdout.lines().count(), 20, "{}", ran.stdout);
}

#[test]
fn a_valid_policy_says_so_and_shows_its_notes() {
    let world = World::with_policy(
        "version: 1\nnet:\n  enabled: true\n  allow:\n    - docs.python.org\n    - {pip: [requests]}\n",
    );
    expect![[r#"
        exit 0
        --- stdout
        sandbox.policy.yaml: valid, 2 rules
        sandbox.policy.yaml:6: note: net.allow[1]: pip names no registry on this machine; write `registry: https://...` in the rule
        --- stderr
    "#]]
    .assert_eq(&world.sluice(&["policy", "check"]).whole());

    let notes = world.sluice(&["policy", "check", "-o", "json"]).json();
    assert_eq!((&notes[0]["kind"], &notes[0]["line"]), (&"note".into(), &6.into()));
}

#[test]
fn what_cannot_be_read_is_a_failure_and_not_an_invalid_policy() {
    let world = World::new();
    expect![[r#"
        exit 1
        --- stdout
        --- stderr
        error: there is no sandbox.policy.yaml here; `sluice policy init` writes one
    "#]]
    .assert_eq(&world.sluice(&["policy", "check"]).whole());
    expect![[r#"
        exit 1
        --- stdout
        --- stderr
        error: cannot read other.yaml: No such file or directory (os error 2)
    "#]]
    .assert_eq(&world.sluice(&["policy", "check", "other.yaml"]).whole());
    expect![[r#"
        exit 1
        --- stdout
        --- stderr
        error: cannot read .: it is not a regular file
    "#]]
    .assert_eq(&world.sluice(&["policy", "check", "."]).whole());

    // One missing file does not hide what is wrong with the next.
    world.write("wrong.yaml", "version: 9\n");
    let ran = world.sluice(&["policy", "check", "other.yaml", "wrong.yaml"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stdout.starts_with("wrong.yaml:1:10: version:"), "{}", ran.stdout);
}

#[test]
fn an_empty_file_and_a_huge_one_are_refused() {
    let world = World::with_policy("# nothing\n");
    let ran = world.sluice(&["policy", "check"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, "sandbox.policy.yaml: the file is empty\n"));
    world.write("huge.yaml", vec![b'#'; 5 * 1024 * 1024]);
    let ran = world.sluice(&["policy", "check", "huge.yaml"]);
    assert_eq!(ran.code, 1);
    assert_eq!(ran.stderr, "error: cannot read huge.yaml: it is larger than 4 MiB\n");
}

#[test]
fn a_files_name_cannot_talk_to_the_terminal() {
    let world = World::new();
    world.write("a\u{1b}[2K\nb.yaml", "version: 9\n");
    let ran = world.sluice(&["policy", "check", "a\u{1b}[2K\nb.yaml"]);
    ran.assert_harmless();
    assert!(ran.stdout.starts_with(r"a\u{1b}[2K\nb.yaml:1:10:"), "{}", ran.stdout);
}
