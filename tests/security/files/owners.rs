//! Root's project in a sandbox where nobody is root.

use super::*;

/// Owner and group of a file on the host.
fn owner(path: &Path) -> (u32, u32) {
    let found = path.symlink_metadata().unwrap();
    (found.uid(), found.gid())
}

/// Somebody who is root, with a project of root's own.
fn root() -> Option<Person> {
    if !is_root() {
        skip("root");
        return None;
    }
    let person = person()?;
    let project = person.project();
    make(
        &project,
        &[("README.md", "one\n"), ("sub/gone", ""), ("sub/kept", ""), (".git/config", "")],
    );
    let shut = fs::Permissions::from_mode(0o600);
    fs::set_permissions(project.join("README.md"), shut).unwrap();
    Some(person)
}

/// What is mounted below the folders of runs.
fn mounted() -> String {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let ours = points.filter(|point| point.starts_with("/tmp/sluice-0/"));
    ours.map(|point| format!("{point}\n")).collect()
}

#[test]
fn roots_own_project_can_be_worked_on_and_stays_roots() {
    let Some(person) = root() else { return };
    let project = person.project();
    let script = "set -e; echo two >>README.md; echo new >new; mkdir dir; echo x >dir/x; \
                  rm sub/gone; stat -c %u:%g . README.md new .git | \
                  sed \"s/^$(id -u):$(id -g)$/ours/\"; cat README.md";
    let ran = person.sluice(&["run", "--", "sh", "-c", script]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.stdout, "ours\n".repeat(4) + "one\ntwo\n", "{}", ran.stderr);
    assert!(!ran.stderr.contains("belongs to root"), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(project.join("README.md")).unwrap(), "one\n");
    assert!(project.join("sub/gone").exists() && !project.join("new").exists());

    let applied = person.sluice(&["apply", ran.run()]);
    assert_eq!(applied.code, 0, "{}{}", applied.stdout, applied.stderr);
    assert_eq!(fs::read_to_string(project.join("README.md")).unwrap(), "one\ntwo\n");
    assert!(!project.join("sub/gone").exists());
    for path in ["README.md", "new", "dir", "dir/x", "sub"] {
        assert_eq!(owner(&project.join(path)), (0, 0), "{path}");
    }
    assert_eq!(project.join("README.md").metadata().unwrap().mode() & 0o777, 0o600);
}

#[test]
fn what_is_written_straight_to_roots_project_is_roots() {
    let Some(person) = root() else { return };
    let policy = any_mode(&person, "");
    let project = person.project();
    let script = "echo two >>README.md; mkdir dir; echo x >dir/x; ln -s x dir/link; \
                  echo evil >.git/config; stat -c %u README.md .git/config | \
                  sed \"s/^$(id -u)$/ours/\"";
    let ran = run(&person, &policy, "direct", script);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "ours\nours\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("Read-only file system"), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(project.join("README.md")).unwrap(), "one\ntwo\n");
    assert_eq!(fs::read_to_string(project.join(".git/config")).unwrap(), "");
    for path in ["README.md", "dir", "dir/x", "dir/link"] {
        assert_eq!(owner(&project.join(path)), (0, 0), "{path}");
    }
    let read = run(&person, &policy, "readonly", "cat README.md; echo x >>README.md");
    assert_eq!((read.code, read.stdout.as_str()), (1, "one\ntwo\n"), "{}", read.stderr);
}

#[test]
fn what_is_hidden_stays_hidden_under_another_owner() {
    let Some(person) = root() else { return };
    make(&person.project(), &[("a/.env", "hunter2\n"), ("a/b", "b\n")]);
    let policy = any_mode(&person, ", deny: ['**/.env']");
    for mode in MODES {
        let ran = run(&person, &policy, mode, "cat a/.env a/b; [ -O a ] && echo ours");
        assert_eq!(ran.stdout, "b\nours\n", "{mode}: {}", ran.stderr);
    }
}

#[test]
fn a_file_of_a_third_user_stays_that_users() {
    let Some(person) = root() else { return };
    let theirs = person.project().join("theirs");
    fs::write(&theirs, "t\n").unwrap();
    chown(&theirs, Some(1500), Some(1500)).unwrap();
    let ran =
        person.sluice(&["run", "--", "sh", "-c", "stat -c %u theirs; cat theirs; echo >>theirs"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, "1500\nt\n"), "{}", ran.stderr);
}

#[test]
fn the_way_the_project_is_shown_is_gone_with_the_run() {
    let Some(person) = root() else { return };
    let running = person.start(&["run", "--", "sh", "-c", "echo started; exec sleep 300"]);
    running.printed("started");
    let run = running.run();
    // Not even while it runs: the sandbox has its own.
    assert!(!mounted().contains(&run), "{}", mounted());
    running.signal("KILL");
    drop(running);
    let swept = person.sluice(&["sweep"]);
    assert_eq!(swept.code, 0, "{}", swept.stderr);
    assert!(person.project().join("README.md").exists());
}

#[test]
fn a_sweep_never_goes_through_what_a_killed_run_left_mounted() {
    let Some(person) = root() else { return };
    // As after a kill between the mount and the sandbox's start.
    let folder = Path::new("/tmp/sluice-0/20200101-000000-f11e5a");
    let at = folder.join("project");
    fs::create_dir_all(&at).unwrap();
    fs::set_permissions("/tmp/sluice-0", fs::Permissions::from_mode(0o700)).unwrap();
    rustix::mount::mount_bind(person.project(), &at).unwrap();
    assert!(mounted().contains("f11e5a"));
    let swept = person.sluice(&["sweep"]);
    let left = mounted();
    rustix::mount::unmount(&at, UnmountFlags::DETACH).ok();
    assert!(person.project().join("README.md").exists(), "the project was swept away");
    assert!(!left.contains("f11e5a"), "{left}");
    assert_eq!(swept.code, 0, "{}", swept.stderr);
    assert!(!folder.exists());
}
