//! `sluice diff | apply | transcript | artifacts`: what a run left, and home.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use engine::evidence::{ArtifactLimits, Header, RunFolder, Stream, Transcript};
use engine::work_budget::WorkBudget;
use engine::workspace::{ChangeLimits, Marks, Overlaid, changes};
use expect_test::expect;
use jiff::Timestamp;
use policies::{FileGlob, RelativePath};

use crate::world::World;

/// A run in which the sandbox left `upper` (a path and its content each).
fn ran(world: &World, upper: &[(&str, &str)]) -> RunFolder {
    let folder = RunFolder::create(&world.state().join("runs"), "r1").unwrap();
    fs::create_dir(folder.upper()).unwrap();
    for (path, content) in upper {
        let path = folder.upper().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder
}

/// Compares, records and seals, as a run does when it ends.
fn end(world: &World, folder: &RunFolder) {
    let protect: BTreeSet<_> = [RelativePath::parse(".git").unwrap()].into();
    let overlaid = Overlaid {
        project: &world.project(),
        upper: &folder.upper(),
        marks: Marks::User,
        started: Timestamp::now(),
        protect: &protect,
        deny: &[FileGlob::parse("**/.env").unwrap()],
    };
    let budget = WorkBudget::unattended();
    let found = changes(&overlaid, &ChangeLimits::default(), &budget).unwrap();
    folder.write_changes(found, &budget).unwrap();
    folder.seal(&world.state()).unwrap();
}

#[test]
fn the_host_has_what_it_had_until_apply() {
    let world = World::new();
    world.write("a.txt", "one\ntwo\nthree\n");
    let folder = ran(
        &world,
        &[
            ("a.txt", "one\n2\u{1b}[2J\u{202e}\nthree\n"),
            (".github/workflows/ci.yml", "on: push\n"),
            ("new/run.sh", "true\n"),
        ],
    );
    let script = folder.upper().join("new/run.sh");
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
    end(&world, &folder);

    let diff = world.sluice(&["diff", "r1"]);
    assert_eq!(diff.code, 0, "{}", diff.stderr);
    expect![[r#"
        diff --git a/.github/workflows/ci.yml b/.github/workflows/ci.yml
        new file mode 100644
        --- /dev/null
        +++ b/.github/workflows/ci.yml
        @@ -0,0 +1 @@
        +on: push
        diff --git a/a.txt b/a.txt
        --- a/a.txt
        +++ b/a.txt
        @@ -1,3 +1,3 @@
         one
        -two
        +2\u{1b}[2J\u{202e}
         three
        diff --git a/new/run.sh b/new/run.sh
        new file mode 100755
        --- /dev/null
        +++ b/new/run.sh
        @@ -0,0 +1 @@
        +true
    "#]]
    .assert_eq(&diff.stdout);
    let stat = world.sluice(&["diff", "--stat", "r1"]);
    expect![[r#"
        added                  .github/
        added                  .github/workflows/
        added           +1 -0  .github/workflows/ci.yml  [runs in CI]
        changed         +1 -1  a.txt
        added                  new/
        added           +1 -0  new/run.sh  [executable]
    "#]]
    .assert_eq(&stat.stdout);
    let raw = world.sluice(&["diff", "--raw", "r1", "a.txt"]);
    assert!(raw.stdout.contains("+2\u{1b}[2J\u{202e}\n") && !raw.stdout.contains("ci.yml"));

    let dry = world.sluice(&["apply", "--dry-run", "r1"]);
    assert_eq!(dry.code, 0, "{}", dry.stderr);
    assert_eq!(world.read("a.txt"), "one\ntwo\nthree\n");

    let apply = world.sluice(&["apply", "r1"]);
    assert_eq!(apply.code, 0, "{}", apply.stderr);
    expect![[r#"
        added    .github
        added    .github/workflows
        added    .github/workflows/ci.yml  [runs in CI]
        changed  a.txt
        added    new
        added    new/run.sh  [executable]
    "#]]
    .assert_eq(&apply.stdout);
    assert_eq!(world.read("a.txt"), "one\n2\u{1b}[2J\u{202e}\nthree\n");
    let mode = world.project().join("new/run.sh").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
}

#[test]
fn a_conflict_stops_everything_and_partial_goes_on() {
    let world = World::new();
    world.write("a", "a");
    world.write("b", "b");
    let folder = ran(&world, &[("a", "sandbox"), ("b", "sandbox"), (".git/hooks/pre-commit", "x")]);
    end(&world, &folder);
    world.write("a", "host");

    let apply = world.sluice(&["apply", "r1"]);
    assert_eq!((apply.code, apply.stdout.as_str()), (1, ""));
    expect![[r#"
        refused  .git: the policy protects this path
        refused  .git/hooks: the policy protects this path
        refused  .git/hooks/pre-commit: the policy protects this path
        conflict a: the host has changed it since the run
        nothing was applied; --partial applies the rest
    "#]]
    .assert_eq(&apply.stderr);
    assert_eq!((world.read("a"), world.read("b")), ("host".to_owned(), "b".to_owned()));

    let apply = world.sluice(&["apply", "--partial", "r1"]);
    assert_eq!((apply.code, apply.stdout.as_str()), (1, "changed  b\n"));
    assert_eq!((world.read("a"), world.read("b")), ("host".to_owned(), "sandbox".to_owned()));
    assert!(!world.project().join(".git").exists());
}

#[test]
fn what_configures_us_comes_home_only_named_and_shown() {
    let world = World::new();
    let policy = "version: 1\nfs: {mounts: [{source: /root/.ssh, target: /ssh, mode: rw}]}\n";
    let folder = ran(&world, &[("sandbox.policy.yaml", policy), ("a", "sandbox")]);
    end(&world, &folder);

    let stat = world.sluice(&["diff", "--stat", "r1"]);
    assert!(stat.stdout.contains("configures sluice"), "{}", stat.stdout);
    for arguments in
        [&["apply", "r1"][..], &["apply", "--partial", "r1"], &["apply", "r1", "--accept", "a"]]
    {
        let apply = world.sluice(arguments);
        assert_eq!(apply.code, 1, "{}", apply.stderr);
        assert!(
            apply.stderr.contains("sandbox.policy.yaml: a tool on the host obeys it"),
            "{}",
            apply.stderr
        );
        assert!(apply.stderr.contains("--accept sandbox.policy.yaml"), "{}", apply.stderr);
        assert!(!world.project().join("sandbox.policy.yaml").exists());
    }
    let apply = world.sluice(&["apply", "r1", "--accept", "."]);
    assert_eq!(apply.code, 2, "{}", apply.stderr);
    let apply = world.sluice(&["apply", "r1", "--accept", "sandbox.policy.yaml"]);
    assert_eq!(apply.code, 0, "{}", apply.stderr);
    assert!(apply.stderr.contains("+fs: {mounts: [{source: /root/.ssh"), "{}", apply.stderr);
    assert_eq!(world.read("sandbox.policy.yaml"), policy);
}

#[test]
fn a_repository_by_content_does_not_come_home() {
    let world = World::new();
    world.write("x/HEAD", "ref: refs/heads/main\n");
    world.write("x/refs/heads/keep", "");
    let folder = ran(
        &world,
        &[("x/objects/keep", ""), ("x/config", "[core]\n\tfsmonitor = ./canary\n"), ("x/b", "b")],
    );
    end(&world, &folder);
    let stat = world.sluice(&["diff", "--stat", "r1"]);
    assert!(stat.stdout.contains("x/config  [git takes its directory"), "{}", stat.stdout);
    let apply = world.sluice(&["apply", "--partial", "r1"]);
    assert_eq!((apply.code, apply.stdout.as_str()), (1, "added    x/b\n"), "{}", apply.stderr);
    assert!(
        !world.project().join("x/config").exists() && !world.project().join("x/objects").exists()
    );
}

#[test]
fn a_broken_seal_stops_apply() {
    let world = World::new();
    world.write("a", "a");
    let folder = ran(&world, &[("a", "reviewed")]);
    end(&world, &folder);
    let changes = folder.path().join("changes.json");
    let text = fs::read_to_string(&changes).unwrap();
    fs::write(&changes, text.replace("\"deny\": [\n    \"**/.env\"\n  ]", "\"deny\": []")).unwrap();
    let apply = world.sluice(&["apply", "r1"]);
    assert_eq!(apply.code, 1);
    assert!(
        apply.stderr.contains("the evidence has changed since it was sealed"),
        "{}",
        apply.stderr
    );
    assert_eq!(world.read("a"), "a");
}

/// Programs that a repository, or a search path, could make somebody run.
fn canaries(world: &mut World, tree: &Path) {
    let bin = world.home().join("bin");
    fs::create_dir(&bin).unwrap();
    let canary = format!("#!/bin/sh\necho \"$0 $*\" >> {}/sang\n", world.home().display());
    for name in ["git", "less", "more", "pager", "diff", "patch", "sh", "cat", "tar", "delta"] {
        executable(&bin.join(name), &canary);
    }
    world.set("PATH", bin.to_str().unwrap());
    for name in ["PAGER", "GIT_PAGER", "EDITOR", "GIT_EXTERNAL_DIFF"] {
        world.set(name, bin.join("less").to_str().unwrap());
    }
    let config = "[core]\n fsmonitor = \"./canary\"\n pager = ./canary\n hooksPath = hooks\n\
                  [filter \"x\"]\n clean = ./canary\n smudge = ./canary\n process = ./canary\n required\n\
                  [diff \"x\"]\n textconv = ./canary\n command = ./canary\n external = ./canary\n\
                  [merge \"x\"]\n driver = ./canary\n";
    fs::create_dir_all(tree.join(".git/hooks")).unwrap();
    fs::write(tree.join(".git/config"), config).unwrap();
    fs::write(tree.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(tree.join(".gitattributes"), "* filter=x diff=x merge=x\n").unwrap();
    for hook in
        ["pre-commit", "post-checkout", "post-merge", "post-index-change", "fsmonitor-watchman"]
    {
        executable(&tree.join(".git/hooks").join(hook), &canary);
    }
    executable(&tree.join("canary"), &canary);
}

fn executable(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn no_canary_sings_when_a_run_is_reviewed_and_applied() {
    let mut world = World::new();
    world.write("a.txt", "one\n");
    let folder = ran(&world, &[("a.txt", "two\n"), ("dist/app", "app")]);
    let project = world.project();
    canaries(&mut world, &project);
    fs::create_dir(world.home().join("agent")).unwrap();
    // The same in what the agent wrote.
    let upper = folder.upper();
    fs::create_dir_all(upper.join(".git/hooks")).unwrap();
    for path in [".gitattributes", ".git/config", ".git/hooks/pre-commit"] {
        fs::copy(project.join(path), upper.join(path)).unwrap();
        let text = fs::read_to_string(upper.join(path)).unwrap();
        fs::write(upper.join(path), text + "# agent\n").unwrap();
    }
    let globs = [FileGlob::parse("dist/**").unwrap()];
    folder
        .collect_artifacts(
            &upper,
            &globs,
            &[],
            &ArtifactLimits::default(),
            &WorkBudget::unattended(),
        )
        .unwrap();
    let header = Header::new(&["true".to_owned()], 80, 24);
    let mut transcript = transcript_of(&folder, &header);
    transcript.output(Stream::Output, b"done\n").unwrap();
    transcript.exit(0).unwrap();
    end(&world, &folder);

    for arguments in [
        &["diff", "r1"][..],
        &["diff", "--stat", "r1"],
        &["diff", "--raw", "r1"],
        &["transcript", "r1"],
        &["transcript", "--play", "r1"],
        &["artifacts", "r1"],
        &["apply", "--dry-run", "r1"],
        &["apply", "--partial", "r1"],
    ] {
        let ran = world.sluice(arguments);
        assert!(ran.code <= 1, "{arguments:?}: {}", ran.stderr);
    }
    assert_eq!(world.read("a.txt"), "two\n");
    assert!(!world.read(".git/config").contains("agent"));
    let sang = fs::read_to_string(world.home().join("sang"));
    assert!(sang.is_err(), "something ran: {sang:?}");
    // And the canary can sing.
    let sung = std::process::Command::new(project.join("canary")).status().unwrap();
    assert!(sung.success() && world.home().join("sang").exists());
}

fn transcript_of(folder: &RunFolder, header: &Header) -> Transcript {
    let clock = Box::new(|| std::time::Duration::ZERO);
    Transcript::create(&folder.transcript(), header, 1 << 20, clock).unwrap()
}

#[test]
fn a_transcript_is_text_unless_asked_otherwise() {
    let world = World::new();
    let folder = ran(&world, &[]);
    let header = Header::new(&["agent".to_owned()], 80, 24);
    let mut transcript = transcript_of(&folder, &header);
    let hostile = b"\x1b[31mred\x1b[0m\x1b]52;c;ZXZpbA==\x07 \x1b[6nend";
    transcript.output(Stream::Output, hostile).unwrap();
    transcript.exit(0).unwrap();
    assert_eq!(world.sluice(&["transcript", "r1"]).stdout, "red end\n");
    let raw = world.sluice(&["transcript", "--raw", "r1"]).stdout;
    assert_eq!(raw.as_bytes(), hostile);
    let play = world.sluice(&["transcript", "--play", "r1"]).stdout;
    assert!(play.starts_with("\u{1b}[31mred\u{1b}[m end"), "{play:?}");
    let lines = world.sluice(&["transcript", "-o", "jsonl", "r1"]).stdout;
    assert!(lines.lines().last().unwrap().contains(r#""kind":"exit""#), "{lines}");
}

#[test]
fn artifacts_are_listed_and_copied_out_once() {
    let world = World::new();
    let folder = ran(&world, &[("dist/app", "program"), ("dist/x/y", "z")]);
    let globs = [FileGlob::parse("dist/**").unwrap()];
    folder
        .collect_artifacts(
            &folder.upper(),
            &globs,
            &[],
            &ArtifactLimits::default(),
            &WorkBudget::unattended(),
        )
        .unwrap();
    let listed = world.sluice(&["artifacts", "r1"]);
    assert_eq!(listed.stdout, "           7  dist/app\n           1  dist/x/y\n");
    assert_eq!(world.sluice(&["artifacts", "r1", "--to", "out"]).code, 0);
    assert_eq!(world.read("out/dist/x/y"), "z");
    let again = world.sluice(&["artifacts", "r1", "--to", "out"]);
    assert_eq!(again.code, 1);
    assert!(again.stderr.contains("cannot copy dist/app"), "{}", again.stderr);
}

#[test]
fn a_run_that_is_not_there_is_said_so() {
    let world = World::new();
    for verb in ["diff", "apply", "transcript", "artifacts"] {
        let ran = world.sluice(&[verb, "nope"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{verb}");
        assert!(ran.stderr.contains("there is no run `nope`"), "{}", ran.stderr);
    }
    let folder = ran(&world, &[]);
    drop(folder);
    let diff = world.sluice(&["diff", "r1"]);
    assert!(diff.stderr.contains("no changes are recorded"), "{}", diff.stderr);
}
