//! What a run does to a project stays apart until a person applies it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};

use tests::boxes::Person;

use crate::people;

/// A project of a user who is not root.
fn project(person: &Person) {
    let project = person.project();
    for (name, text) in [("a.txt", "one\n"), ("secret.env", "hunter2\n"), (".git/config", "x\n")] {
        fs::create_dir_all(project.join(name).parent().unwrap()).unwrap();
        fs::write(project.join(name), text).unwrap();
    }
    let root = fs::metadata("/proc/self").unwrap();
    if std::os::unix::fs::MetadataExt::uid(&root) == 0 {
        let (uid, gid) = person.owner();
        for path in ["", "a.txt", "secret.env", ".git", ".git/config"] {
            chown(project.join(path), Some(uid), Some(gid)).unwrap();
        }
        // The way there: what is in a home of root's is for root alone.
        let home = project.parent().unwrap().to_owned();
        fs::set_permissions(home, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn the_host_is_untouched_until_changes_are_applied() {
    for person in people() {
        project(&person);
        let script = "echo two >>a.txt; echo new >b.txt; echo y >.git/config; ls; cat a.txt";
        let ran = person.sluice(&["run", "--", "sh", "-c", script]);
        assert_eq!(ran.stdout, "a.txt\nb.txt\none\ntwo\n", "{}", ran.stderr);
        assert!(ran.stderr.contains("Read-only file system"), "{}", ran.stderr);
        let a = person.project().join("a.txt");
        assert_eq!(fs::read_to_string(&a).unwrap(), "one\n");
        assert!(!person.project().join("b.txt").exists());

        let diff = person.sluice(&["diff", ran.run()]);
        assert!(diff.stdout.contains("+two"), "{}{}", diff.stdout, diff.stderr);
        let applied = person.sluice(&["apply", ran.run()]);
        assert_eq!(applied.code, 0, "{}{}", applied.stdout, applied.stderr);
        assert_eq!(fs::read_to_string(&a).unwrap(), "one\ntwo\n");
        assert_eq!(fs::read_to_string(person.project().join("b.txt")).unwrap(), "new\n");
    }
}

#[test]
fn what_the_policy_hides_cannot_be_read() {
    for person in people() {
        project(&person);
        for mode in ["overlay", "readonly"] {
            let policy =
                person.policy("version: 1\nfs: {workspace: overlay, deny: ['**/*.env']}\n");
            let arguments =
                ["run", "--policy", &policy, "--mode", mode, "--", "cat", "secret.env", "a.txt"];
            let ran = person.sluice(&arguments);
            assert_eq!((ran.code, ran.stdout.as_str()), (1, "one\n"), "{mode}: {}", ran.stderr);
        }
    }
}
