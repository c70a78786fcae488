//! Every way a command can end has its name, and the host is fine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tests::boxes::Person;
use tests::{ChildDeadline as _, CommandDeadline as _};

use crate::{people, programs};

/// Those on whose backend memory can be limited. The others are told that it
/// cannot, and nothing runs.
fn people_with_limits() -> Vec<Person> {
    let (with, without): (Vec<_>, Vec<_>) = people().into_iter().partition(Person::limits_memory);
    for person in without {
        for flag in [["--memory", "32MiB"], ["--cpus", "0.5"]] {
            let ran = person.shell(&flag, "echo the command ran");
            assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
            assert!(ran.stderr.contains("cannot limit"), "{}", ran.stderr);
            assert_eq!(person.evidence(), None, "nothing was begun");
        }
    }
    with
}

#[test]
fn a_command_that_ignores_being_asked_still_ends_in_time() {
    for person in people() {
        let ran = person.shell(&["--timeout", "1s"], "trap '' TERM; while :; do :; done");
        assert_eq!((ran.code, ran.outcome()), (124, "timeout"), "{}", ran.stderr);
    }
}

#[test]
fn without_room_for_its_log_a_run_ends_at_once_and_says_where() {
    let people = [Person::with_docker(programs()), Person::with_namespaces(programs())];
    for person in people.into_iter().flatten() {
        let full = FullDisk::at(&person.project().with_file_name("state"));
        let began = Instant::now();
        let ran = person.shell(&["--allow", "a.test"], "echo the command ran");
        assert_eq!((ran.code, ran.stdout.as_str()), (125, ""), "{}", ran.stderr);
        assert!(ran.stderr.contains("No space left on device"), "{}", ran.stderr);
        assert!(ran.stderr.contains(full.0.to_str().unwrap()), "{}", ran.stderr);
        // It was half a minute once.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}

/// A disk of its own without any room, until it is dropped.
struct FullDisk(PathBuf);

impl FullDisk {
    fn at(place: &Path) -> Self {
        fs::create_dir(place).unwrap();
        let mount = ["-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs"];
        let mounted = Command::new("mount").args(mount).arg(place).status_in_time().unwrap();
        assert!(mounted.success());
        let disk = Self(place.to_owned());
        fs::write(place.join("all-of-it"), [0; 128 << 10]).unwrap_err();
        disk
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").args(["-l"]).arg(&self.0).status_in_time();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

#[test]
fn taking_more_memory_than_permitted_is_oom() {
    for person in people_with_limits() {
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
        assert!(ran.stderr.contains("can't fork"), "{}", ran.stderr);
        // One that is over in a moment is seen only where the kernel counts.
        if person.limits_memory() {
            assert_eq!(ran.outcome(), "pids", "{} {}", ran.record, ran.stderr);
        }
    }
}

#[test]
fn a_crowd_that_stays_is_seen_on_every_backend() {
    for person in people() {
        let crowd = "for i in $(seq 60); do sleep 5 & done; exit 1";
        let ran = person.shell(&["--pids", "40", "--timeout", "60s"], crowd);
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
        let ended = running.child.wait_in_time().unwrap();
        assert_eq!(ended.code(), Some(130));
    }
}

#[test]
fn a_child_that_dies_for_memory_does_not_end_the_run() {
    for person in people_with_limits() {
        let ran = person.shell(&["--memory", "32MiB"], "tail /dev/zero; echo went on");
        assert_eq!((ran.code, ran.outcome()), (0, "exited"), "{}", ran.stderr);
        assert_eq!(ran.record["usage"]["oom_kills"], 1);
    }
}

#[test]
fn what_it_took_is_in_the_record() {
    for person in people() {
        let policy = person.policy("version: 1\nnet: {enabled: true}\n");
        let ran = person.shell(&["--policy", &policy], "wget -q http://evil.test/ | cat; true");
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let usage = &ran.record["usage"];
        // Where there are no control groups of its own, there is no peak.
        for (peak, least) in [("pids_peak", 2), ("memory_peak", 1)] {
            assert!(usage[peak].as_u64().is_none_or(|found| found >= least), "{usage}");
        }
        assert_eq!(usage["network"]["refused"], 1, "{usage}");
        let phases = ran.record["phases"].as_array().unwrap();
        assert!(phases.iter().any(|phase| phase["name"] == "command"), "{phases:?}");
    }
}

#[test]
fn a_refused_request_fails_the_run_only_where_that_was_asked_for() {
    for person in people() {
        let policy = person.policy("version: 1\nnet: {enabled: true}\n");
        let ask = "wget -q http://evil.test/; true";
        let usual = person.shell(&["--policy", &policy], ask);
        assert_eq!((usual.code, usual.outcome()), (0, "exited"), "{}", usual.stderr);
        let strict = person.shell(&["--policy", &policy, "--fail-on-denied"], ask);
        assert_eq!((strict.code, strict.outcome()), (3, "denied"), "{}", strict.stderr);
        let nothing = person.shell(&["--policy", &policy, "--fail-on-denied"], "true");
        assert_eq!((nothing.code, nothing.outcome()), (0, "exited"), "{}", nothing.stderr);
    }
}

#[test]
fn an_image_can_be_named_by_what_it_is() {
    for person in people() {
        let record = person.shell(&[], "true").record;
        // A backend without images has none to name.
        let Some(id) = record["used"]["image_id"].as_str() else { continue };
        let ran = person.shell(&["--image", id], "echo here");
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "here\n"), "{}", ran.stderr);
        assert_eq!(ran.record["used"]["image_id"], id);
        let wrong = id.replace(|c: char| c.is_ascii_digit(), "0");
        let none = person.shell(&["--image", &wrong], "echo here");
        assert_eq!((none.code, none.stdout.as_str()), (125, ""), "{}", none.stderr);
    }
}

/// The gateway is asked for its counts at the sandbox's last word and not before,
/// also when the command leaves others behind who go on asking.
#[test]
fn what_is_counted_is_what_was_recorded_to_the_last_request() {
    for person in people() {
        let policy = person.policy("version: 1\nnet: {enabled: true}\n");
        let asking = "(while :; do wget -q http://evil.test/; done) >/dev/null 2>&1 &";
        let ran = person.shell(&["--policy", &policy], &format!("{} sleep 1", asking.repeat(12)));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let log = std::fs::read_to_string(person.evidence().unwrap().join("audit.jsonl")).unwrap();
        let recorded = log.lines().filter(|line| line.contains(r#""kind":"request""#)).count();
        assert!(recorded > 2, "{log}");
        assert_eq!(ran.record["usage"]["network"]["requests"], recorded, "{}", ran.record["usage"]);
    }
}
