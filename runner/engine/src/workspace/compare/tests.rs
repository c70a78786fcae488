use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use audit::Digest;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use rustix::fs::{FileType, Mode, XattrFlags};

use super::super::changes::Stamp;
use super::super::listed::listed;
use super::super::testing::{Mounted, opened, told};
use super::*;
use crate::work_budget::StopToken;

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn fill(root: &Path) {
    for path in ["a.txt", "dir/one", "dir/two", "dir/sub/three", "swap/in", "run.sh"] {
        write(root, path, path);
    }
    symlink("a.txt", root.join("link")).unwrap();
}

/// The only function here that knows the API.
#[track_caller]
fn check(deny: &[&str], act: impl FnOnce(&Path), expected: Expect) {
    let Some(mounted) = Mounted::new(deny, fill) else { return };
    let before = listed(mounted.project());
    act(&mounted.merged());
    let changes = mounted.changes().unwrap();
    expected.assert_eq(&told(&changes));
    assert_eq!(listed(mounted.project()), before, "the host's tree was touched");
    let json = serde_json::to_string(&changes).unwrap();
    let read: Changes = serde_json::from_str(&json).unwrap();
    assert_eq!(read.changes, changes.changes);
}

#[test]
fn every_kind_of_change_is_told_apart() {
    check(
        &[],
        |root| {
            write(root, "a.txt", "other");
            write(root, "new/deep/file", "x");
            fs::remove_file(root.join("dir/one")).unwrap();
            fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
            fs::remove_file(root.join("link")).unwrap();
            symlink("/etc/passwd", root.join("link")).unwrap();
        },
        expect![[r#"
            changed a.txt file 644 5
            deleted dir/one
            changed link -> /etc/passwd [link out of the project]
            added new directory 755
            added new/deep directory 755
            added new/deep/file file 644 1
            mode run.sh file 755 6 [executable]
        "#]],
    );
}

#[test]
fn a_removed_and_remade_directory_hides_what_was_in_it() {
    check(
        &[],
        |root| {
            fs::remove_dir_all(root.join("dir")).unwrap();
            write(root, "dir/two", "dir/two");
            write(root, "dir/sub/four", "4");
        },
        expect![[r#"
            deleted dir/one
            added dir/sub/four file 644 1
            deleted dir/sub/three
        "#]],
    );
}

#[test]
fn a_file_for_a_directory_and_a_directory_for_a_file() {
    check(
        &[],
        |root| {
            fs::remove_dir_all(root.join("swap")).unwrap();
            fs::write(root.join("swap"), "file now").unwrap();
            fs::remove_file(root.join("a.txt")).unwrap();
            write(root, "a.txt/inside", "x");
        },
        expect![[r#"
            changed a.txt directory 755
            added a.txt/inside file 644 1
            changed swap file 644 8
            deleted swap/in
        "#]],
    );
}

#[test]
fn what_was_only_touched_is_not_a_change() {
    check(
        &[],
        |root| {
            fs::OpenOptions::new().append(true).open(root.join("a.txt")).unwrap();
            write(root, "dir/two", "dir/two");
            fs::rename(root.join("run.sh"), root.join("ran.sh")).unwrap();
        },
        expect![[r#"
            added ran.sh file 644 6
            deleted run.sh
        "#]],
    );
}

#[test]
fn hostile_names_and_odd_files_are_only_told() {
    check(
        &[],
        |root| {
            fs::write(root.join("new\nline\u{1b}[2J"), "").unwrap();
            fs::write(
                root.join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(
                    b"\xff\xfe",
                )),
                "",
            )
            .unwrap();
            let dir = Directory::open(root).unwrap();
            rustix::fs::mkfifoat(&dir, "pipe", Mode::RUSR).unwrap();
            std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
            rustix::fs::mknodat(
                &dir,
                "disk",
                FileType::BlockDevice,
                Mode::RUSR,
                rustix::fs::makedev(7, 0),
            )
            .unwrap();
            fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o4755)).unwrap();
        },
        expect![[r#"
            added disk block device [not a file]
            added new\nline\u{1b}[2J file 644 0
            added pipe pipe [not a file]
            mode run.sh file 4755 6 [executable] [runs with its owner's rights]
            added socket socket [not a file]
            added \xff\xfe file 644 0
        "#]],
    );
}

#[test]
fn what_is_denied_is_not_seen_not_read_and_not_deleted() {
    let Some(mounted) = Mounted::new(&["**/.env*"], |root| {
        fill(root);
        write(root, "dir/.env", "SECRET=1");
        write(root, ".env", "SECRET=2");
    }) else {
        return;
    };
    let merged = mounted.merged();
    // By path, by a link, and by listing.
    assert!(fs::read(merged.join("dir/.env")).is_err());
    symlink("dir/.env", merged.join("way")).unwrap();
    assert!(fs::read(merged.join("way")).is_err());
    assert!(!listed(&merged).contains_key(Path::new(".env")));
    fs::remove_dir_all(merged.join("dir")).unwrap();
    fs::write(merged.join(".env"), "mine").unwrap();
    let changes = mounted.changes().unwrap();
    expect![[r#"
        added .env file 644 4 unread: hidden [denied by policy] [environment and credentials]
        deleted dir
        deleted dir/one
        deleted dir/sub
        deleted dir/sub/three
        deleted dir/two
        added way -> dir/.env
    "#]]
    .assert_eq(&told(&changes));
}

#[test]
fn a_hidden_files_directory_looks_as_it_did() {
    let Some(mounted) = Mounted::new(&["**/.env"], |root| {
        write(root, "dir/.env", "SECRET=1");
        fs::set_permissions(root.join("dir"), fs::Permissions::from_mode(0o751)).unwrap();
        fs::set_permissions(root, fs::Permissions::from_mode(0o750)).unwrap();
    }) else {
        return;
    };
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&mounted.merged()), 0o750);
    assert_eq!(mode(&mounted.merged().join("dir")), 0o751);
    fs::write(mounted.merged().join("dir/x"), "").unwrap();
    expect![[r#"
        added dir/x file 644 0
    "#]]
    .assert_eq(&told(&mounted.changes().unwrap()));
}

#[test]
fn what_the_host_changed_meanwhile_is_marked() {
    let Some(mounted) = Mounted::new(&[], fill) else { return };
    fs::write(mounted.merged().join("a.txt"), "sandbox").unwrap();
    // The clock of file times may lag by a tick: write until it is past the start.
    while Stamp::from(&Directory::open(mounted.project()).unwrap().look(b"a.txt").unwrap().unwrap())
        .ctime
        <= mounted.started.into()
    {
        fs::write(mounted.project().join("a.txt"), "host").unwrap();
    }
    expect![[r#"
        changed a.txt file 644 7 moved
    "#]]
    .assert_eq(&told(&mounted.changes().unwrap()));
}

#[test]
fn marks_of_the_other_namespace_say_nothing() {
    let Some(mounted) = Mounted::new(&[], fill) else { return };
    write(&mounted.merged(), "dir/evil", "");
    // What a sandbox could plant if the mount kept its marks under `trusted`.
    for (path, mark) in
        [("dir", "trusted.overlay.opaque"), ("dir/evil", "trusted.overlay.whiteout")]
    {
        let path = mounted.upper().join(path);
        rustix::fs::setxattr(&path, mark, b"y", XattrFlags::empty()).unwrap();
    }
    // And the kernel keeps our own out of reach.
    let planted = rustix::fs::setxattr(
        mounted.merged().join("dir"),
        "user.overlay.opaque",
        b"y",
        XattrFlags::empty(),
    );
    let escaped = rustix::fs::getxattr(
        mounted.upper().join("dir"),
        "user.overlay.opaque",
        &mut [0_u8; 8][..],
    );
    assert!(planted.is_err() || escaped.is_err(), "{planted:?} {escaped:?}");
    expect![[r#"
        added dir/evil file 644 0
    "#]]
    .assert_eq(&told(&mounted.changes().unwrap()));
}

#[test]
fn marked_whiteouts_and_redirects_are_understood_or_refused() {
    let Some(mounted) = Mounted::new(&[], fill) else { return };
    let upper = mounted.upper();
    write(upper, "dir/one", "");
    let set = |path: &str, mark: &str, value: &[u8]| {
        rustix::fs::setxattr(upper.join(path), mark, value, XattrFlags::empty()).unwrap();
    };
    set("dir", "user.overlay.opaque", b"x");
    set("dir/one", "user.overlay.whiteout", b"");
    expect![[r#"
        deleted dir/one
    "#]]
    .assert_eq(&told(&mounted.changes().unwrap()));

    set("dir", "user.overlay.redirect", b"/elsewhere");
    let err = mounted.changes().unwrap_err();
    assert_eq!(
        err.to_string(),
        "dir was only half copied into the upper layer (`redirect`): mount the overlay with `redirect_dir=off,metacopy=off`"
    );
}

#[test]
fn too_many_changes_are_counted_out_loud() {
    let Some(mounted) = Mounted::new(&[], fill) else { return };
    for name in 0..20 {
        fs::write(mounted.merged().join(format!("n{name:02}")), "").unwrap();
    }
    let limits = ChangeLimits { entries: 2, ..ChangeLimits::default() };
    expect![[r#"
        incomplete: more than 2 changes; the rest was left out
    "#]]
    .assert_eq(
        told(&mounted.changes_within(&limits, &WorkBudget::unattended()).unwrap())
            .split_once("incomplete")
            .map(|(_, rest)| format!("incomplete{rest}"))
            .unwrap_or_default()
            .as_str(),
    );
    let found = mounted.changes_within(&limits, &WorkBudget::unattended()).unwrap();
    assert!(found.changes.len() <= 2);
}

#[test]
fn a_tree_deeper_than_a_path_can_name_ends_the_walk_not_the_runner() {
    let Some(mounted) = Mounted::new(&[], fill) else { return };
    let mut here = Directory::open(&mounted.merged()).unwrap();
    let name = "d".repeat(100);
    for _ in 0..300 {
        rustix::fs::mkdirat(&here, &*name, Mode::RWXU).unwrap();
        here = here.child(name.as_bytes()).unwrap();
    }
    drop(here);
    let changes = mounted.changes().unwrap();
    assert_eq!(changes.incomplete, ["directories deeper than 200 were left out"]);
    // Too deep for the temporary directory to remove by itself.
    files::removal::remove_all(&opened(mounted.upper()), name.as_bytes()).unwrap();
}

#[test]
fn a_file_of_holes_is_not_read_and_leaves_the_others_their_hashes() {
    let Some(mounted) = Mounted::new(&[], fill) else { return };
    let large = fs::File::create(mounted.merged().join("a-hole")).unwrap();
    large.set_len(1 << 40).unwrap();
    fs::write(mounted.merged().join("b-real"), "content").unwrap();
    let small = fs::File::create(mounted.merged().join("c-hole")).unwrap();
    small.set_len(100).unwrap();
    let changes = mounted.changes().unwrap();
    let of = |name: &str| {
        let found = changes.changes.iter().find(|change| change.path.to_string() == name);
        match &found.unwrap().after {
            Some(Node::File { sha256, unhashed, .. }) => (*sha256, *unhashed),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(of("a-hole"), (None, Some(Unhashed::TooLarge)));
    assert_eq!(of("b-real"), (Some(Digest::of(b"content")), None));
    // A hole that is hashed is hashed as what it reads as.
    assert_eq!(of("c-hole"), (Some(Digest::of(&[0; 100])), None));
}

/// Whoever uses up what is hashed must not make a change disappear by it.
#[test]
fn a_file_that_was_not_hashed_is_never_taken_for_unchanged() {
    let Some(mounted) = Mounted::new(&[], |root| {
        fs::write(root.join("program"), "good").unwrap();
    }) else {
        return;
    };
    fs::write(mounted.merged().join("program"), "evil").unwrap();
    let limits = ChangeLimits { hashed: 0, ..ChangeLimits::default() };
    let changes = mounted.changes_within(&limits, &WorkBudget::unattended()).unwrap();
    expect![[r#"
        changed program file 644 4 unread: not hashed: too large
    "#]]
    .assert_eq(&told(&changes));
}

#[test]
fn comparing_that_is_stopped_or_out_of_time_says_so() {
    let Some(mounted) = Mounted::new(&[], |_| ()) else { return };
    fs::write(mounted.merged().join("new"), "x").unwrap();
    let budget = WorkBudget::unattended();
    budget.begin("changes", std::time::Duration::ZERO);
    let changes = mounted.changes_within(&ChangeLimits::default(), &budget).unwrap();
    assert_eq!(changes.incomplete, ["comparing was not done within 0 s; the rest was left out"]);

    let stop = StopToken::default();
    let budget = WorkBudget::attended(stop.clone());
    stop.because_of(15);
    let changes = mounted.changes_within(&ChangeLimits::default(), &budget).unwrap();
    assert_eq!(changes.incomplete, ["comparing was stopped by signal 15; the rest was left out"]);
}

/// What a hostile sandbox may leave.
#[derive(Clone, Debug)]
enum Odd {
    Directory,
    Fifo,
    File(Vec<u8>),
    Link(Vec<u8>),
    Whiteout,
}

fn odd() -> impl Strategy<Value = (Vec<u8>, Odd)> {
    let name = prop::collection::vec(
        any::<u8>().prop_filter("no separator", |b| *b != 0 && *b != b'/'),
        1..6,
    )
    .prop_filter("no dots", |name| name != b"." && name != b"..");
    let path = prop::collection::vec(name, 1..4).prop_map(|parts| parts.join(&b'/'));
    let what = prop_oneof![
        Just(Odd::Directory),
        Just(Odd::Fifo),
        prop::collection::vec(any::<u8>(), 0..9).prop_map(Odd::File),
        "[a./]{1,8}".prop_map(|target| Odd::Link(target.into_bytes())),
        Just(Odd::Whiteout),
    ];
    (path, what)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// No mount needed: the layers are plain directories to us.
    #[test]
    fn no_tree_makes_the_walk_panic_block_or_leave(
        upper in prop::collection::vec(odd(), 0..12),
        lower in prop::collection::vec(odd(), 0..12),
    ) {
        let home = tempfile::tempdir().unwrap();
        for (layer, odds) in [("upper", &upper), ("lower", &lower)] {
            let root = home.path().join(layer);
            fs::create_dir(&root).unwrap();
            for (path, what) in odds {
                let path = root.join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path));
                // Some will not fit on top of each other.
                drop(fs::create_dir_all(path.parent().unwrap()));
                let here = rustix::fs::CWD;
                match what {
                    Odd::Directory => drop(fs::create_dir(&path)),
                    Odd::Fifo => drop(rustix::fs::mkfifoat(here, &path, Mode::RUSR)),
                    Odd::File(bytes) => drop(fs::File::create_new(&path).map(|mut file| file.write_all(bytes))),
                    Odd::Link(target) => drop(symlink(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(target), &path)),
                    Odd::Whiteout => drop(rustix::fs::mknodat(here, &path, FileType::CharacterDevice, Mode::empty(), 0)),
                }
            }
        }
        let (upper, project) = (home.path().join("upper"), home.path().join("lower"));
        let overlaid = Overlaid {
            project: &project, upper: &upper, marks: Marks::User,
            started: Timestamp::now(), protect: &BTreeSet::new(), deny: &[],
        };
        let budget = WorkBudget::unattended();
        let found = changes(&overlaid, &ChangeLimits::default(), &budget).unwrap();
        for change in &found.changes {
            prop_assert!(change.before.is_some() || change.after.is_some());
            prop_assert!(!change.path.to_string().chars().any(char::is_control));
        }
        let json = serde_json::to_string(&found).unwrap();
        prop_assert_eq!(serde_json::from_str::<Changes>(&json).unwrap().changes, found.changes);
    }
}
