use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Once;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::super::TreePath;
use super::super::listed::listed;
use super::super::testing::{Mounted, opened};
use super::*;

fn fill(root: &Path) {
    fs::create_dir_all(root.join("dir/sub")).unwrap();
    for path in ["a", "b", "dir/one", "dir/sub/two", "run.sh"] {
        fs::write(root.join(path), path).unwrap();
    }
}

/// Applies all that may be, and tells what was refused.
fn applied(mounted: &Mounted) -> String {
    let changes = mounted.changes().unwrap();
    let (project, upper) = (opened(mounted.project()), opened(mounted.upper()));
    let checked = check(&changes, &[], &[], &project).unwrap();
    let mut told: String = checked
        .refused
        .iter()
        .map(|refused| format!("{}: {}\n", refused.path, refused.why))
        .collect();
    let done = write(&checked, &project, &upper);
    if let Some((path, err)) = done.stopped {
        told.push_str(&format!("stopped at {path}: {err}\n"));
    }
    told
}

#[track_caller]
fn check_that(
    sandbox: impl FnOnce(&Path),
    host: impl FnOnce(&Path),
    expected: Expect,
) -> Option<Mounted> {
    let mounted = Mounted::new(&["**/.env"], fill)?;
    sandbox(&mounted.merged());
    let changes = mounted.changes().unwrap();
    host(mounted.project());
    let (project, upper) = (opened(mounted.project()), opened(mounted.upper()));
    let checked = check(&changes, &[], &[], &project).unwrap();
    let told: String = checked
        .refused
        .iter()
        .map(|refused| format!("{}: {}\n", refused.path, refused.why))
        .collect();
    expected.assert_eq(&told);
    let done = write(&checked, &project, &upper);
    assert!(done.stopped.is_none(), "{:?}", done.stopped);
    Some(mounted)
}

#[test]
fn the_host_gets_what_the_sandbox_saw() {
    let Some(mounted) = Mounted::new(&[], fill) else { return };
    let merged = mounted.merged();
    fs::write(merged.join("a"), "changed").unwrap();
    fs::remove_dir_all(merged.join("dir")).unwrap();
    fs::create_dir_all(merged.join("new/deep")).unwrap();
    fs::write(merged.join("new/deep/f"), "f").unwrap();
    fs::set_permissions(merged.join("new"), fs::Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(merged.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("new/deep", merged.join("link")).unwrap();
    fs::remove_file(merged.join("b")).unwrap();
    fs::create_dir(merged.join("b")).unwrap();
    fs::write(merged.join("b/in"), "in").unwrap();
    let wanted = listed(&merged);
    assert_eq!(applied(&mounted), "");
    assert_eq!(listed(mounted.project()), wanted);
    // Once is enough.
    assert_eq!(applied(&mounted), "");
    assert_eq!(listed(mounted.project()), wanted);
}

#[test]
fn what_the_host_has_gone_on_with_is_left_alone() {
    let Some(mounted) = check_that(
        |sandbox| {
            fs::write(sandbox.join("a"), "sandbox").unwrap();
            fs::write(sandbox.join("b"), "sandbox").unwrap();
            fs::write(sandbox.join("new"), "sandbox").unwrap();
            fs::write(sandbox.join("same"), "same").unwrap();
            fs::write(sandbox.join("dir/more"), "sandbox").unwrap();
            fs::remove_dir_all(sandbox.join("dir/sub")).unwrap();
        },
        |host| {
            fs::write(host.join("a"), "host").unwrap();
            fs::remove_file(host.join("b")).unwrap();
            fs::write(host.join("new"), "host").unwrap();
            fs::write(host.join("same"), "same").unwrap();
            fs::write(host.join("dir/sub/three"), "host").unwrap();
        },
        expect![[r#"
            a: the host has changed it since the run
            b: the host has removed it
            dir/sub: the directory holds files that the run did not remove
            new: the host has something else there now
        "#]],
    ) else {
        return;
    };
    let read = |path: &str| fs::read_to_string(mounted.project().join(path)).unwrap();
    assert_eq!(
        (read("a"), read("new"), read("dir/more")),
        ("host".into(), "host".into(), "sandbox".into())
    );
    assert!(mounted.project().join("dir/sub/three").exists());
}

#[test]
fn a_rewritten_file_with_the_old_words_is_no_conflict() {
    check_that(
        |sandbox| fs::write(sandbox.join("a"), "sandbox").unwrap(),
        |host| {
            fs::remove_file(host.join("a")).unwrap();
            fs::write(host.join("a"), "a").unwrap();
        },
        expect![[""]],
    );
}

#[test]
fn what_the_policy_keeps_is_never_applied() {
    let Some(mounted) = check_that(
        |sandbox| {
            for path in [".git/hooks", "x/.GIT", "scripts"] {
                fs::create_dir_all(sandbox.join(path)).unwrap();
            }
            for path in [".git/hooks/pre-commit", "x/.GIT/config", "scripts/test", ".env"] {
                fs::write(sandbox.join(path), "evil").unwrap();
            }
            rustix::fs::mkfifoat(opened(sandbox), "pipe", rustix::fs::Mode::RUSR).unwrap();
            symlink("/etc/passwd", sandbox.join("out")).unwrap();
            symlink("../../up", sandbox.join("dir/out")).unwrap();
            fs::write(sandbox.join("suid"), "").unwrap();
            fs::set_permissions(sandbox.join("suid"), fs::Permissions::from_mode(0o4755)).unwrap();
        },
        |_| {},
        expect![[r#"
            .env: it is hidden from the sandbox
            .git: the policy protects this path
            .git/hooks: the policy protects this path
            .git/hooks/pre-commit: the policy protects this path
            dir/out: the link leads out of the project
            out: the link leads out of the project
            pipe: it is a pipe, a socket or a device
            scripts: the policy protects this path
            scripts/test: the policy protects this path
            x/.GIT: the policy protects this path
            x/.GIT/config: the policy protects this path
        "#]],
    ) else {
        return;
    };
    let mode = mounted.project().join("suid").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[test]
fn what_holds_a_protected_path_may_come_but_not_go() {
    let Some(mounted) = Mounted::new(&[], fill) else { return };
    let mut changes = mounted.changes().unwrap();
    fs::create_dir(mounted.merged().join("tools")).unwrap();
    fs::write(mounted.merged().join("tools/other"), "x").unwrap();
    fs::remove_dir_all(mounted.merged().join("dir")).unwrap();
    changes.changes = mounted.changes().unwrap().changes;
    changes.protect = ["tools/build", "dir/sub"]
        .iter()
        .map(|path| policies::RelativePath::parse(path).unwrap())
        .collect();
    let checked = check(&changes, &[], &[], &opened(mounted.project())).unwrap();
    let told: String = checked
        .refused
        .iter()
        .map(|refused| format!("{}: {}\n", refused.path, refused.why))
        .collect();
    expect![[r#"
        dir: the policy protects this path
        dir/sub: the policy protects this path
        dir/sub/two: the policy protects this path
    "#]]
    .assert_eq(&told);
}

#[test]
fn what_tools_obey_unasked_does_not_come_home_by_itself() {
    let Some(mounted) = check_that(
        |sandbox| {
            for path in ["tree/objects", "tree/refs", "part", ".husky", ".vscode", "other"] {
                fs::create_dir_all(sandbox.join(path)).unwrap();
            }
            for path in [
                "tree/HEAD",
                "tree/config",
                "tree/notes",
                ".envrc",
                "dir/.ENVRC",
                "sandbox.policy.yaml",
                ".husky/pre-commit",
                ".vscode/tasks.json",
                ".mcp.json",
                "CLAUDE.md",
                "other/settings.json",
            ] {
                fs::write(sandbox.join(path), "evil").unwrap();
            }
            symlink("other", sandbox.join(".claude")).unwrap();
        },
        |_| {},
        expect![[r#"
            .claude: a tool on the host obeys it without being asked
            .envrc: a tool on the host obeys it without being asked
            .husky/pre-commit: a tool on the host obeys it without being asked
            .mcp.json: a tool on the host obeys it without being asked
            .vscode/tasks.json: a tool on the host obeys it without being asked
            dir/.ENVRC: a tool on the host obeys it without being asked
            sandbox.policy.yaml: a tool on the host obeys it without being asked
            tree/HEAD: git would take its directory for a repository and obey it
            tree/config: git would take its directory for a repository and obey it
            tree/objects: git would take its directory for a repository and obey it
            tree/refs: git would take its directory for a repository and obey it
        "#]],
    ) else {
        return;
    };
    let there = |path: &str| mounted.project().join(path).symlink_metadata().is_ok();
    assert!(there("CLAUDE.md") && there("tree/notes") && there("other/settings.json"));
    assert!(!there(".envrc") && !there("tree/HEAD") && !there(".claude"));
}

#[test]
fn a_person_may_accept_by_name_what_tools_obey() {
    let Some(mounted) = Mounted::new(&[], fill) else { return };
    fs::write(mounted.merged().join(".envrc"), "a").unwrap();
    fs::write(mounted.merged().join("dir/.envrc"), "b").unwrap();
    fs::create_dir_all(mounted.merged().join(".git")).unwrap();
    fs::write(mounted.merged().join(".git/config"), "c").unwrap();
    let changes = mounted.changes().unwrap();
    let project = opened(mounted.project());
    let refused = |accepted: &[&str]| -> Vec<String> {
        let accepted: Vec<_> =
            accepted.iter().map(|path| TreePath::parse(path.as_bytes()).unwrap()).collect();
        let checked = check(&changes, &[], &accepted, &project).unwrap();
        checked.refused.iter().map(|refused| refused.path.to_string()).collect()
    };
    assert_eq!(refused(&[]), [".envrc", ".git", ".git/config", "dir/.envrc"]);
    assert_eq!(refused(&[".envrc"]), [".git", ".git/config", "dir/.envrc"]);
    // What is protected stays so.
    assert_eq!(refused(&[".envrc", "dir", ".git"]), [".git", ".git/config"]);
}

#[test]
fn a_link_that_took_a_directorys_place_is_not_written_through() {
    let outside = tempfile::tempdir().unwrap();
    let mounted = check_that(
        |sandbox| {
            fs::write(sandbox.join("dir/new"), "x").unwrap();
            fs::remove_file(sandbox.join("dir/one")).unwrap();
        },
        |host| {
            fs::write(outside.path().join("one"), "precious").unwrap();
            fs::remove_dir_all(host.join("dir")).unwrap();
            symlink(outside.path(), host.join("dir")).unwrap();
        },
        expect![[r#"
            dir/new: its directory is gone, or is a link now
        "#]],
    );
    if mounted.is_some() {
        assert!(!outside.path().join("new").exists());
        assert!(outside.path().join("one").exists());
    }
}

#[test]
fn what_changed_after_the_record_is_not_applied() {
    let Some(mounted) = Mounted::new(&[], fill) else { return };
    fs::write(mounted.merged().join("a"), "reviewed").unwrap();
    let changes = mounted.changes().unwrap();
    fs::write(mounted.upper().join("a"), "swapped!").unwrap();
    let (project, upper) = (opened(mounted.project()), opened(mounted.upper()));
    let checked = check(&changes, &[], &[], &project).unwrap();
    let done = write(&checked, &project, &upper);
    let (path, err) = done.stopped.unwrap();
    assert_eq!(path.to_string(), "a");
    assert!(matches!(err, ApplyError::Tampered), "{err}");
    assert_eq!(fs::read(mounted.project().join("a")).unwrap(), b"a");
    // And no draft is left behind.
    assert_eq!(listed(mounted.project()).len(), 7);
}

#[test]
fn only_what_was_asked_for_is_applied() {
    let Some(mounted) = Mounted::new(&[], fill) else { return };
    fs::write(mounted.merged().join("a"), "1").unwrap();
    fs::write(mounted.merged().join("dir/one"), "2").unwrap();
    let changes = mounted.changes().unwrap();
    let (project, upper) = (opened(mounted.project()), opened(mounted.upper()));
    let paths = [TreePath::parse(b"dir").unwrap()];
    let done = write(&check(&changes, &paths, &[], &project).unwrap(), &project, &upper);
    assert_eq!(done.applied, [TreePath::parse(b"dir/one").unwrap()]);
    assert_eq!(fs::read(mounted.project().join("a")).unwrap(), b"a");
}

/// What a sandbox may do to its tree.
#[derive(Clone, Debug)]
enum Deed {
    Link(String, String),
    Mkdir(String),
    Mode(String, u32),
    Remove(String),
    Rename(String, String),
    Write(String, Vec<u8>),
}

fn deed() -> impl Strategy<Value = Deed> {
    let path = || "[ab](/[ab]){0,2}";
    prop_oneof![
        (path(), "[ab]").prop_map(|(path, target)| Deed::Link(path, target)),
        path().prop_map(Deed::Mkdir),
        (path(), prop::sample::select(vec![0o644, 0o755, 0o600, 0o700]))
            .prop_map(|(path, mode)| Deed::Mode(path, mode)),
        path().prop_map(Deed::Remove),
        (path(), path()).prop_map(|(from, to)| Deed::Rename(from, to)),
        (path(), prop::collection::vec(any::<u8>(), 0..4))
            .prop_map(|(path, bytes)| Deed::Write(path, bytes)),
    ]
}

/// Does what can be done; the rest fails, as it would in a sandbox.
fn act(root: &Path, deeds: &[Deed]) {
    for deed in deeds {
        match deed {
            Deed::Link(path, target) => drop(symlink(target, root.join(path))),
            Deed::Mkdir(path) => drop(fs::create_dir_all(root.join(path))),
            Deed::Mode(path, mode) => {
                let path = root.join(path);
                let Ok(metadata) = path.symlink_metadata() else { continue };
                // Without being root nobody could compare a directory that is shut.
                let mode = if metadata.is_dir() { mode | 0o700 } else { *mode };
                if !metadata.is_symlink() {
                    drop(fs::set_permissions(path, fs::Permissions::from_mode(mode)));
                }
            }
            Deed::Remove(path) => {
                let path = root.join(path);
                drop(fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path)));
            }
            Deed::Rename(from, to) => drop(fs::rename(root.join(from), root.join(to))),
            Deed::Write(path, bytes) => drop(fs::write(root.join(path), bytes)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// What the sandbox saw at the end is what the host has after `apply`.
    #[test]
    fn applying_the_changes_gives_the_merged_tree(
        host in prop::collection::vec(deed(), 0..12),
        sandbox in prop::collection::vec(deed(), 0..12),
    ) {
        static SKIPPED: Once = Once::new();
        let fill = |root: &Path| act(root, &host);
        let Some(mounted) = Mounted::new_or_skip_once(fill, &SKIPPED) else { return Ok(()) };
        act(&mounted.merged(), &sandbox);
        let wanted = listed(&mounted.merged());
        prop_assert_eq!(applied(&mounted), "");
        prop_assert_eq!(listed(mounted.project()), wanted);
    }
}
