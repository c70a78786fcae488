//! What people's tools obey cannot be written, and nothing of it runs here.

use tests::CommandDeadline as _;

use super::*;

/// A project with every kind of repository, and a trap in each.
fn project(canary: &Path) -> Option<Person> {
    let person = person()?;
    let project = person.project();
    let trap = format!("touch {}", canary.display());
    let config = format!(
        "[core]\n\tfsmonitor = {trap}\n\thooksPath = hooks\n\tpager = {trap}\n\tsshCommand = {trap}\n\
         [diff \"x\"]\n\ttextconv = {trap}\n\tcommand = {trap}\n\
         [filter \"x\"]\n\tclean = {trap}\n\tsmudge = {trap}\n[alias]\n\tstatus = !{trap}\n"
    );
    let hook = format!("#!/bin/sh\n{trap}\n");
    make(
        &project,
        &[
            (".git/HEAD", "ref: refs/heads/main\n"),
            (".git/config", &config),
            (".git/hooks/post-checkout", &hook),
            (".git/hooks/pre-commit", &hook),
            (".git/modules/sub/config", &config),
            (".gitattributes", "* filter=x diff=x\n"),
            ("sub/.git", "gitdir: ../.git/modules/sub\n"),
            ("tree/.git", "gitdir: /elsewhere/.git/worktrees/tree\n"),
            ("vendor/lib/.git/config", &config),
            ("vendor/odd/.GIT/config", &config),
            ("wt/.git", "gitdir: ../.bare/worktrees/wt\n"),
            (".bare/worktrees/wt/commondir", "../..\n"),
            (".bare/config", &config),
            (".bare/hooks/pre-commit", &hook),
            ("scripts/test", "#!/bin/sh\ntrue\n"),
            ("a", "one\n"),
        ],
    );
    Some(person)
}

/// Every way to write to what is protected; says which succeeded.
const WAYS: &str = "
    try() { \"$@\" 2>/dev/null && echo \"did $*\"; }
    put() { (echo evil >$1) 2>/dev/null && echo \"wrote $1\"; }
    for f in .git/config .git/hooks/pre-commit .git/hooks/new .git/modules/sub/config sub/.git tree/.git \
             vendor/lib/.git/config vendor/lib/.git/hooks.new wt/.git .bare/config .bare/hooks/pre-commit .bare/new vendor/odd/.GIT/config scripts/test scripts/new \
             /proc/self/root/workspace/.git/config /proc/1/cwd/.git/config; do put $f; done
    for d in .git sub/.git tree/.git .bare vendor/lib/.git vendor/odd/.GIT scripts; do
        try mv $d aside; try rm -r $d; try chmod 777 $d; try touch $d; try ln -sfn /tmp $d; try mv aside $d
    done
    try ln .git/config linked; try mkdir .git/new; try mv .git/hooks .git/h; try truncate -s 0 .git/config
    put a; echo done";

#[test]
fn what_tools_obey_is_read_only_in_every_mode() {
    let home = tempfile::tempdir().unwrap();
    let canary = home.path().join("canary");
    let Some(person) = project(&canary) else { return };
    let policy = any_mode(&person, "");
    let before = tree(&person.project());
    for mode in ["overlay", "readonly", "direct"] {
        let ran = run(&person, &policy, mode, WAYS);
        let expected = if mode == "readonly" { "done\n" } else { "wrote a\ndone\n" };
        assert_eq!(ran.stdout, expected, "{mode}: {}", ran.stderr);
        assert!(!canary.exists(), "{mode}: something ran");
    }
    fs::write(person.project().join("a"), "one\n").unwrap();
    assert_eq!(tree(&person.project()), before);
}

#[test]
fn nothing_on_the_host_runs_what_a_tree_configures() {
    let home = tempfile::tempdir().unwrap();
    let canary = home.path().join("canary");
    let Some(person) = project(&canary) else { return };
    let trap = format!("touch {}", canary.display());
    // A repository of its own making, and files that the traps are for.
    let script = format!(
        "echo two >>a; mkdir -p new/.git/hooks; printf '[core]\\n\\tfsmonitor = {trap}\\n' >new/.git/config; \
         printf '#!/bin/sh\\n{trap}\\n' >new/.git/hooks/post-checkout; chmod +x new/.git/hooks/*; \
         echo '* filter=x diff=x' >new/.gitattributes; echo b >new/b; echo done"
    );
    let ran = person.sluice(&["run", "--", "sh", "-c", &script]);
    assert_eq!(ran.stdout, "done\n", "{}", ran.stderr);
    let diff = person.sluice(&["diff", ran.run()]);
    assert!(diff.stdout.contains("+two"), "{}{}", diff.stdout, diff.stderr);
    let refused = person.sluice(&["apply", ran.run()]);
    assert_eq!(refused.code, 1, "a repository does not come home: {}", refused.stdout);
    let partial = person.sluice(&["apply", "--partial", ran.run()]);
    assert!(person.project().join("new/b").exists(), "{}{}", partial.stdout, partial.stderr);
    assert!(!person.project().join("new/.git").exists());
    for verb in [&["ls"][..], &["artifacts", ran.run()], &["logs", ran.run()]] {
        person.sluice(verb);
    }
    assert!(!canary.exists(), "something ran");
}

#[test]
fn a_run_cannot_write_the_policy_of_the_next_one() {
    let Some(person) = person() else { return };
    let policy = person.project().join("sandbox.policy.yaml");
    let text = "version: 1\nfs: {workspace: direct}\n";
    fs::write(&policy, text).unwrap();
    fs::write(person.project().join("a"), "").unwrap();
    let script = "for f in sandbox.policy.yaml a; do (echo '# evil' >>$f) && echo wrote $f; done; \
                  mv a sandbox.policy.yaml; rm -f sandbox.policy.yaml; echo done";
    for mode in ["direct", "overlay"] {
        let ran = run(&person, policy.to_str().unwrap(), mode, script);
        assert_eq!(ran.stdout, "wrote a\ndone\n", "{mode}: {}", ran.stderr);
        assert_eq!(fs::read_to_string(&policy).unwrap(), text, "{mode}");
    }
}

/// Every file of a tree with its content.
fn tree(root: &Path) -> Vec<String> {
    let script = "find . -type f -printf '%p %m %u ' -exec cksum {} \\; | sort";
    let output =
        Command::new("sh").args(["-c", script]).current_dir(root).output_in_time().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}
