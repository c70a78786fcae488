//! A command that ends while it is being ended: one answer on every backend.

use tests::ChildDeadline as _;
use tests::boxes::Person;

use crate::programs;

/// Somebody on each backend, with and without root.
fn people() -> Vec<Person> {
    crate::people().into_iter().chain(Person::unprivileged(programs())).collect()
}

/// Runs `script` in the project, with a limit of 20 MiB for what it writes there.
fn writing(person: &Person, script: &str) -> (i32, String, String) {
    let ran = person.sluice(&["run", "--disk", "20MiB", "--", "sh", "-c", script]);
    (ran.code, ran.outcome().to_owned(), format!("{} {}", ran.record["outcome"], ran.stderr))
}

#[test]
fn who_writes_too_much_and_ends_before_anybody_looks_is_not_said_to_have_succeeded() {
    for person in people() {
        person.own_project();
        let three = "for i in 1 2 3; do head -c 12000000 /dev/zero >f$i; done";
        // It ends before it is noticed, while it is, and after.
        for later in ["", "; usleep 60000", "; usleep 110000", "; usleep 160000", "; sleep 1"] {
            let (code, outcome, said) = writing(&person, &format!("{three}{later}; exit 0"));
            let backend = person.backend();
            assert_eq!((code, &*outcome), (137, "disk"), "{backend:?}, `{later}`: {said}");
        }
    }
}

#[test]
fn what_is_exactly_as_much_as_permitted_is_permitted() {
    for person in people() {
        person.own_project();
        let (code, outcome, said) = writing(&person, "head -c 20971520 /dev/zero >f; sleep 1");
        assert_eq!((code, &*outcome), (0, "exited"), "{:?}: {said}", person.backend());
    }
}

#[test]
fn who_prints_too_much_and_ends_with_zero_is_over_its_limit() {
    for person in people() {
        for bytes in [65537, 90_000] {
            let script = format!("head -c {bytes} /dev/zero; exit 0");
            let ran = person.shell(&["--output-limit", "64KiB"], &script);
            assert_eq!((ran.code, ran.outcome()), (137, "output"), "{}", ran.stderr);
        }
    }
}

#[test]
fn a_crowd_that_was_refused_is_named_although_the_command_ends_with_zero() {
    // Without root and engine nobody counts, and this is over in fifteen milliseconds.
    for person in crate::people() {
        // A shell that cannot fork ends there and then.
        let crowd = "trap 'exit 0' EXIT; for i in $(seq 60); do sleep 5 & done";
        let ran = person.shell(&["--pids", "40", "--timeout", "60s"], crowd);
        assert_eq!((ran.code, ran.outcome()), (0, "pids"), "{} {}", ran.record, ran.stderr);
    }
}

/// A signal that comes as the command ends: it was stopped, or it ended by itself,
/// and the exit code says the same as the record. There is no third answer.
#[test]
fn who_is_told_to_stop_while_it_ends_was_stopped_or_ended_by_itself() {
    for person in people() {
        for after in ["0", "20000", "60000", "120000", "200000"] {
            let word = format!("ends-after-{after}");
            let script = format!("echo {word}; usleep {after}; exit 0");
            let mut running = person.start_shell(&[], &script);
            running.printed(&word);
            for signal in ["TERM", "TERM", "TERM"] {
                running.signal(signal);
            }
            let code = running.child.wait_in_time().unwrap().code();
            let record = std::fs::read(person.evidence().unwrap().join("run.json")).unwrap();
            let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
            let kind = record["outcome"]["kind"].as_str().unwrap_or("none");
            let answer = (code, kind);
            let known = [(Some(0), "exited"), (Some(143), "cancelled")];
            assert!(known.contains(&answer), "{:?} {after}: {answer:?} {record}", person.backend());
        }
    }
}
