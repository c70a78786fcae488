use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use expect_test::expect;
use proptest::prelude::*;

use super::super::listed::listed;
use super::super::testing::{Mounted, opened};
use super::*;
use crate::skip::skip;

/// The patch of what `act` does to what `fill` makes.
fn patched(
    fill: impl FnOnce(&Path),
    act: impl FnOnce(&Path),
) -> Option<(Mounted, Changes, Vec<u8>)> {
    let mounted = Mounted::new(&["**/.env"], fill)?;
    act(&mounted.merged());
    let mut changes = mounted.changes().unwrap();
    let mut patch = Vec::new();
    let (upper, lower) = (opened(mounted.upper()), opened(mounted.project()));
    write(
        &mut changes,
        &upper,
        &lower,
        &PatchLimits::default(),
        &WorkBudget::unattended(),
        &mut patch,
    )
    .unwrap();
    Some((mounted, changes, patch))
}

fn fill(root: &Path) {
    let many: String = (1..=20).map(|line| format!("line {line}\n")).collect();
    fs::write(root.join("many"), many).unwrap();
    fs::write(root.join("gone"), "last words").unwrap();
    fs::write(root.join("run.sh"), "true\n").unwrap();
    fs::write(root.join("bin"), [0, 1, 2]).unwrap();
    fs::write(root.join("was"), "a file\n").unwrap();
}

fn act(root: &Path) {
    let many = fs::read_to_string(root.join("many")).unwrap();
    fs::write(root.join("many"), many.replace("line 3\n", "line three\n").replace("line 20\n", ""))
        .unwrap();
    fs::remove_file(root.join("gone")).unwrap();
    fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(root.join("empty"), "").unwrap();
    fs::write(root.join("new\nname \u{e4}"), "x\n").unwrap();
    fs::write(root.join("with space"), "y\n").unwrap();
    fs::remove_file(root.join("was")).unwrap();
    symlink("many", root.join("was")).unwrap();
}

#[test]
fn a_patch_reads_like_gits() {
    let Some((_mounted, changes, patch)) = patched(fill, |root| {
        act(root);
        fs::write(root.join("bin"), [0, 3]).unwrap();
        fs::write(root.join(".env"), "TOKEN=hidden\n").unwrap();
    }) else {
        return;
    };
    expect![[r#"
        diff --git a/.env b/.env
        new file mode 100644
        Binary files /dev/null and b/.env differ
        diff --git a/bin b/bin
        Binary files a/bin and b/bin differ
        diff --git a/empty b/empty
        new file mode 100644
        diff --git a/gone b/gone
        deleted file mode 100644
        --- a/gone
        +++ /dev/null
        @@ -1 +0,0 @@
        -last words
        \ No newline at end of file
        diff --git a/many b/many
        --- a/many
        +++ b/many
        @@ -1,6 +1,6 @@
         line 1
         line 2
        -line 3
        +line three
         line 4
         line 5
         line 6
        @@ -17,4 +17,3 @@
         line 17
         line 18
         line 19
        -line 20
        diff --git "a/new\012name \303\244" "b/new\012name \303\244"
        new file mode 100644
        --- /dev/null
        +++ "b/new\012name \303\244"
        @@ -0,0 +1 @@
        +x
        diff --git a/run.sh b/run.sh
        old mode 100644
        new mode 100755
        diff --git a/was b/was
        deleted file mode 100644
        --- a/was
        +++ /dev/null
        @@ -1 +0,0 @@
        -a file
        diff --git a/was b/was
        new file mode 120000
        --- /dev/null
        +++ b/was
        @@ -0,0 +1 @@
        +many
        \ No newline at end of file
        diff --git a/with space b/with space
        new file mode 100644
        --- /dev/null
        +++ b/with space	
        @@ -0,0 +1 @@
        +y
    "#]]
    .assert_eq(&String::from_utf8(patch.clone()).unwrap());

    // Each change knows its own part.
    for change in &changes.changes {
        let Section { offset, length, .. } = change.patch.unwrap();
        let (from, to) = (offset as usize, (offset + length) as usize);
        assert!(patch[from..to].starts_with(b"diff --git "), "{:?}", change.path);
    }
    let many = changes.changes.iter().find(|change| change.path.as_bytes() == b"many").unwrap();
    assert_eq!(many.patch.unwrap().lines, Some((1, 2)));
}

/// Git runs here on a fresh directory of ours, never on an agent's tree.
fn git_apply(onto: &Path, patch: &[u8]) -> Option<bool> {
    let file = onto.with_extension("patch");
    fs::write(&file, patch).unwrap();
    let git = Command::new("git")
        .args(["apply", "--allow-empty", "-p1"])
        .arg(&file)
        .current_dir(onto)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("GIT_CEILING_DIRECTORIES", onto)
        .output();
    match git {
        Ok(output) => {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
            Some(output.status.success())
        }
        Err(_) => {
            skip("git");
            None
        }
    }
}

#[test]
fn git_applies_it_and_gets_the_same_tree() {
    let Some((mounted, _, patch)) = patched(fill, act) else { return };
    let home = tempfile::tempdir().unwrap();
    let copy = home.path().join("copy");
    fs::create_dir(&copy).unwrap();
    fill(&copy);
    if let Some(applied) = git_apply(&copy, &patch) {
        assert!(applied);
        assert_eq!(listed(&copy), listed(&mounted.merged()));
    }
}

#[test]
fn a_large_file_is_noted_not_read() {
    let Some(mounted) = Mounted::new(&[], |_| {}) else { return };
    fs::write(mounted.merged().join("large"), "x\n".repeat(100)).unwrap();
    let mut changes = mounted.changes().unwrap();
    let mut patch = Vec::new();
    let limits = PatchLimits { file: 10, ..PatchLimits::default() };
    write(
        &mut changes,
        &opened(mounted.upper()),
        &opened(mounted.project()),
        &limits,
        &WorkBudget::unattended(),
        &mut patch,
    )
    .unwrap();
    assert!(patch.ends_with(b"Binary files /dev/null and b/large differ\n"));
}

/// Puts the hunks of a patch back together, to check them without git.
fn rebuilt(old: &[&[u8]], patch: &[u8]) -> Vec<u8> {
    let mut new = Vec::new();
    let mut at = 0;
    let mut left = patch.split_inclusive(|byte| *byte == b'\n').peekable();
    while let Some(line) = left.next() {
        let ends_here = left.peek().is_some_and(|next| next.starts_with(b"\\ No newline"));
        let body = if ends_here { &line[1..line.len() - 1] } else { &line[1..] };
        match line[0] {
            b'@' => {
                let text = std::str::from_utf8(line).unwrap();
                let range = text.split(' ').nth(1).unwrap().trim_start_matches('-');
                let mut numbers = range.split(',').map(|number| number.parse::<usize>().unwrap());
                let start = numbers.next().unwrap();
                let start = if numbers.next() == Some(0) { start } else { start - 1 };
                old[at..start].iter().for_each(|line| new.extend_from_slice(line));
                at = start;
            }
            b' ' => {
                assert_eq!(old[at], body);
                new.extend_from_slice(body);
                at += 1;
            }
            b'-' => {
                assert_eq!(old[at], body);
                at += 1;
            }
            b'+' => new.extend_from_slice(body),
            b'\\' => {}
            other => panic!("{other}"),
        }
    }
    old[at..].iter().for_each(|line| new.extend_from_slice(line));
    new
}

proptest! {
    #[test]
    fn hunks_turn_the_old_into_the_new(old in "[ab\n]{0,60}", new in "[ab\n]{0,60}") {
        let mut out = Vec::new();
        let (old, new) = (old.as_bytes(), new.as_bytes());
        hunks(&lines(old), &lines(new), Duration::from_secs(1), &mut out);
        prop_assert_eq!(rebuilt(&lines(old), &out), new);
    }

    #[test]
    fn no_name_can_forge_a_line(bytes in prop::collection::vec(any::<u8>(), 1..20)) {
        if let Ok(path) = TreePath::parse(&bytes) {
            prop_assert!(name(b"a/", &path).iter().all(|byte| (0x20..0x7f).contains(byte)));
        }
    }
}

#[test]
fn a_patch_that_is_stopped_lists_what_it_left_out() {
    let Some(mounted) = Mounted::new(&[], fill) else { return };
    act(&mounted.merged());
    let mut changes = mounted.changes().unwrap();
    let stop = crate::work_budget::StopToken::default();
    let budget = WorkBudget::attended(stop.clone());
    stop.because_of(15);
    let (upper, lower) = (opened(mounted.upper()), opened(mounted.project()));
    let mut patch = Vec::new();
    write(&mut changes, &upper, &lower, &PatchLimits::default(), &budget, &mut patch).unwrap();
    assert!(patch.is_empty() && changes.changes.iter().all(|change| change.patch.is_none()));
    let count = changes.changes.len();
    let words = format!("the patch was stopped by signal 15; {count} changes are only listed");
    assert_eq!(changes.incomplete, [words]);
}
