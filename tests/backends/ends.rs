//! Every way a command can end has its name, and the host is fine.

use crate::people;

#[test]
fn a_command_that_ignores_being_asked_still_ends_in_time() {
    for person in people() {
        let ran = person.shell(&["--timeout", "1s"], "trap '' TERM; while :; do :; done");
        assert_eq!((ran.code, ran.outcome()), (124, "timeout"), "{}", ran.stderr);
    }
}

#[test]
fn taking_more_memory_than_permitted_is_oom() {
    for person in people() {
        let ran = person.shell(&["--memory", "32MiB"], "tail /dev/zero");
        assert_eq!((ran.code, ran.outcome()), (137, "oom"), "{}", ran.stderr);
        let peak = ran.record["usage"]["memory_peak"].as_u64().unwrap();
        assert!(peak <= 32 << 20, "{peak}");
    }
}

#[test]
fn a_fork_bomb_is_refused_processes() {
    for person in people() {
        let bomb = "bomb() { bomb | bomb; }; bomb; exit 1";
        let ran = person.shell(&["--pids", "40", "--timeout", "60s"], bomb);
        assert_eq!(ran.outcome(), "pids", "{} {}", ran.record, ran.stderr);
    }
}

#[test]
fn filling_the_disk_fills_only_what_it_may_write_to() {
    for person in people() {
        let fill = "i=0; while cat /bin/busybox >/tmp/$i; do i=$((i+1)); done 2>/dev/null; exit 1";
        let ran = person.shell(&["--disk", "8MiB"], fill);
        assert_eq!((ran.code, ran.outcome()), (1, "disk"), "{}", ran.stderr);
        assert_eq!(ran.record["outcome"]["full"], "/tmp");
    }
}

#[test]
fn output_without_end_is_cut_off() {
    for person in people() {
        let ran = person.shell(&["--output-limit", "64KiB"], "yes");
        assert_eq!((ran.code, ran.outcome()), (137, "output"), "{}", ran.stderr);
        assert!(ran.stdout.len() <= 64 << 10, "{}", ran.stdout.len());
    }
}

#[test]
fn a_person_can_stop_it() {
    for person in people() {
        let mut running = person.start_shell(&[], "echo started; exec sleep 60");
        running.printed("started");
        running.signal("INT");
        let ended = running.child.wait().unwrap();
        assert_eq!(ended.code(), Some(130));
    }
}

#[test]
fn a_child_that_dies_for_memory_does_not_end_the_run() {
    for person in people() {
        let ran = person.shell(&["--memory", "32MiB"], "tail /dev/zero; echo went on");
        assert_eq!((ran.code, ran.outcome()), (0, "exited"), "{}", ran.stderr);
        assert_eq!(ran.record["usage"]["oom_kills"], 1);
    }
}
