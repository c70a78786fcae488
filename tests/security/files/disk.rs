//! Writing without end ends, by name, and the host keeps its space.

use tests::CommandDeadline as _;

use super::*;

/// A person whose project the sandbox's user may write to.
fn writer() -> Option<Person> {
    let person = person()?;
    make(&person.project(), &[("a", "a\n")]);
    Some(person)
}

/// What the run left on the host's disk.
fn left(person: &Person) -> u64 {
    let run = person.evidence().unwrap().file_name().unwrap().to_owned();
    let state = person.project().parent().unwrap().join("state/sluice");
    let upper = state.join("scratch").join(run).join("upper");
    let du = Command::new("du").args(["-s", "-B1"]).arg(&upper).output_in_time().unwrap();
    let text = String::from_utf8_lossy(&du.stdout).into_owned();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// Far less than the attack would take if nobody ended it.
const ROOM: u64 = 2 << 30;

fn attack(person: &Person, flags: &[&str], script: &str) -> Ran {
    let mut arguments = vec!["run", "--timeout", "60s"];
    arguments.extend(flags);
    arguments.extend(["--", "sh", "-c", script]);
    person.sluice(&arguments)
}

#[test]
fn many_files_together_are_too_much_although_each_is_small() {
    let Some(person) = writer() else { return };
    let script = "i=0; while :; do i=$((i+1)); head -c 65536 /dev/zero >f$i; done";
    let ran = attack(&person, &["--disk", "16MiB"], script);
    assert_eq!((ran.code, ran.outcome()), (137, "disk"), "{}", ran.stderr);
    assert_eq!(ran.record["outcome"]["full"], "/workspace");
    assert!(left(&person) < ROOM, "{}", left(&person));
}

#[test]
fn files_just_below_the_largest_one_permitted_are_counted_together() {
    let Some(person) = writer() else { return };
    let script = "i=0; while :; do i=$((i+1)); head -c 16000000 /dev/zero >f$i; done";
    let ran = attack(&person, &["--disk", "16MiB"], script);
    assert_eq!((ran.code, ran.outcome()), (137, "disk"), "{}", ran.stderr);
    assert!(left(&person) < ROOM, "{}", left(&person));
}

#[test]
fn names_without_end_are_too_much_although_they_hold_nothing() {
    let Some(person) = writer() else { return };
    let script = "i=0; while :; do i=$((i+1)); : >$i; done";
    let ran = attack(&person, &["--disk", "8MiB"], script);
    assert_eq!((ran.code, ran.outcome()), (137, "disk"), "{}", ran.stderr);
    assert_eq!(ran.record["outcome"]["full"], "/workspace (number of files)");
}

#[test]
fn what_is_written_straight_to_the_project_is_counted_and_what_was_there_is_not() {
    let Some(person) = writer() else { return };
    if !is_root() {
        return skip("root");
    }
    let policy = any_mode(&person, "");
    fs::write(person.project().join("large"), vec![1; 20 << 20]).unwrap();
    let flags = ["--policy", &policy, "--mode", "direct", "--disk", "16MiB"];
    let small = attack(&person, &flags, "head -c 4000000 /dev/zero >new; sleep 3");
    assert_eq!((small.code, small.outcome()), (0, "exited"), "{}", small.stderr);
    let script = "i=0; while :; do i=$((i+1)); head -c 1000000 /dev/zero >f$i; done";
    let ran = attack(&person, &flags, script);
    assert_eq!((ran.code, ran.outcome()), (137, "disk"), "{}", ran.stderr);
}

#[test]
fn a_run_within_its_limit_is_left_alone() {
    let Some(person) = writer() else { return };
    let script = "for i in 1 2 3 4 5 6; do head -c 2000000 /dev/zero >f$i; sleep 1; done";
    let ran = attack(&person, &["--disk", "16MiB"], script);
    assert_eq!((ran.code, ran.outcome()), (0, "exited"), "{}", ran.stderr);
}

/// A file that was removed has no name to be found by. The disk has an end all
/// the same, and it is not reached.
#[test]
fn files_without_names_do_not_fill_the_hosts_disk() {
    let Some(person) = writer() else { return };
    if !is_root() {
        return skip("root");
    }
    let state = person.project().parent().unwrap().join("state");
    fs::create_dir(&state).unwrap();
    let size = c"size=256m";
    rustix::mount::mount("tmpfs", &state, "tmpfs", MountFlags::empty(), Some(size)).unwrap();
    let script = "i=0; while [ $i -lt 30 ]; do i=$((i+1)); \
                  (exec 3>f$i; rm f$i; head -c 10000000 /dev/zero >&3; sleep 50) & done; wait";
    let ran = attack(&person, &["--disk", "16MiB"], script);
    let full = ran.record["outcome"]["full"].clone();
    rustix::mount::unmount(&state, UnmountFlags::DETACH).unwrap();
    assert_eq!((ran.code, ran.outcome()), (137, "disk"), "{}", ran.stderr);
    assert_eq!(full, "the disk under /workspace");
}

#[test]
fn every_other_place_has_an_end_and_a_name() {
    let Some(person) = writer() else { return };
    for place in ["/dev/shm", "/home/agent", "/tmp"] {
        let fill = format!("i=0; while cat /bin/busybox >{place}/$i; do i=$((i+1)); done; exit 1");
        let ran = attack(&person, &["--disk", "8MiB", "--memory", "256MiB"], &fill);
        assert_eq!((ran.code, ran.outcome()), (1, "disk"), "{place}: {}", ran.stderr);
        assert_eq!(ran.record["outcome"]["full"], place);
        // What has no names of its own to give counts as memory.
        if place == "/dev/shm" {
            continue;
        }
        let names = format!("i=0; while : >{place}/$i; do i=$((i+1)); done; exit 1");
        let ran = attack(&person, &["--disk", "8MiB", "--memory", "256MiB"], &names);
        assert_eq!(ran.outcome(), "disk", "{place}: {}", ran.stderr);
    }
    let root = "for d in / /bin /etc /usr /var /home; do echo x >$d/x && echo wrote $d; done; true";
    let ran = attack(&person, &[], root);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
}
