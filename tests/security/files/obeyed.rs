//! What a run leaves for the tools of the host: nothing comes home that runs by
//! itself.

use tests::CommandDeadline as _;

use super::*;

/// Makes everything that a tool would obey, under harmless names too.
const TRAPS: &str = r#"
    mkdir -p data/objects data/refs/heads .vscode .husky
    echo 'ref: refs/heads/main' >data/HEAD
    printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = "touch %s"\n' "$0" >data/config
    echo "touch $0" >.envrc
    echo "touch $0" >.husky/pre-commit
    echo '{}' >.vscode/tasks.json
    printf 'version: 1\nfs: {mounts: [{source: /, target: /host, mode: rw}]}\n' >sandbox.policy.yaml
    echo two >a; echo '# read me' >AGENTS.md
"#;

#[test]
fn a_bare_repository_under_a_harmless_name_runs_nothing() {
    let home = tempfile::tempdir().unwrap();
    let canary = home.path().join("canary");
    let Some(person) = Person::with_namespaces(PROGRAMS) else { return };
    fs::write(person.project().join("a"), "one\n").unwrap();
    let ran = person.sluice(&["run", "--", "sh", "-c", TRAPS, canary.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);

    let refused = person.sluice(&["apply", ran.run()]);
    assert_eq!(refused.code, 1, "{}", refused.stdout);
    assert_eq!(fs::read_to_string(person.project().join("a")).unwrap(), "one\n");
    let partial = person.sluice(&["apply", "--partial", ran.run()]);
    assert_eq!(
        fs::read_to_string(person.project().join("a")).unwrap(),
        "two\n",
        "{}",
        partial.stderr
    );
    assert!(partial.stdout.contains("AGENTS.md  [instructions for agents]"), "{}", partial.stdout);
    for obeyed in [
        "data/HEAD",
        "data/config",
        ".envrc",
        ".husky/pre-commit",
        ".vscode/tasks.json",
        "sandbox.policy.yaml",
    ] {
        assert!(!person.project().join(obeyed).exists(), "{obeyed}: {}", partial.stderr);
        assert!(partial.stderr.contains(obeyed), "{obeyed}: {}", partial.stderr);
    }
    let status = Command::new("git")
        .arg("status")
        .current_dir(person.project().join("data"))
        .output_in_time();
    assert!(!canary.exists(), "git ran what the sandbox wrote: {status:?}");
}
