//! What goes in and comes out.

use tests::CommandDeadline as _;
use tests::boxes::BackendKind;

use crate::people;

#[test]
fn the_exit_code_and_the_streams_are_the_commands() {
    for person in people() {
        let ran = person.shell(&["--quiet"], "echo out; echo err >&2; exit 7");
        assert_eq!((ran.code, ran.stdout.as_str(), ran.outcome()), (7, "out\n", "exited"));
        assert!(ran.stderr.ends_with("err\n"), "{}", ran.stderr);
    }
}

#[test]
fn the_last_words_say_what_became_of_the_run() {
    for person in people() {
        let ran = person.shell(&[], "echo err >&2; exit 7");
        let last = ran.stderr.lines().last().unwrap_or_default();
        let expected = format!("sluice: run {} exited with code 7 after ", ran.run());
        assert!(last.starts_with(&expected) && last.contains("; no network"), "{}", ran.stderr);
    }
}

/// What a command prints is recorded by the first process, into a file that the host
/// opened: neither that nor the socket it is served on is the command's to touch.
#[test]
fn a_command_can_neither_read_forge_nor_cut_what_is_recorded_of_it() {
    let script = "echo before
        for it in /proc/1/fd/* /proc/self/fd/[3-9]; do
            (echo forged >>$it) 2>/dev/null; (: >$it) 2>/dev/null; (cat $it) 2>/dev/null
        done
        ls /proc/self/fd | wc -l
        echo after";
    for person in people() {
        let ran = person.shell(&["--quiet"], script);
        let printed: Vec<&str> = ran.stdout.lines().map(str::trim).collect();
        // Its three streams, and the directory that `ls` reads.
        assert_eq!(printed, ["before", "4", "after"], "{:?}: {}", person.backend(), ran.stderr);
        let transcript = person.evidence().unwrap().join("transcript.cast");
        let transcript = std::fs::read_to_string(transcript).unwrap();
        assert!(!transcript.contains("forged\\n\"]"), "{transcript}");
        assert!(transcript.contains("before") && transcript.contains("after"), "{transcript}");
    }
}

#[test]
fn input_is_passed_on_to_its_end() {
    for person in people() {
        let input = "line\n".repeat(20_000);
        let arguments = ["run", "--mode", "none", "--", "wc", "-l"];
        let ran = person.sluice_reading(&arguments, input.as_bytes());
        assert_eq!((ran.code, ran.stdout.trim()), (0, "20000"), "{}", ran.stderr);
    }
}

#[test]
fn what_cannot_be_started_has_the_codes_of_a_shell() {
    for person in people() {
        let missing = person.sluice(&["run", "--mode", "none", "--", "no-such-program"]);
        assert_eq!(missing.code, 127, "{}", missing.stderr);
        assert!(missing.stderr.contains("cannot start `no-such-program`"), "{}", missing.stderr);
        let unfit = person.sluice(&["run", "--mode", "none", "--", "/etc"]);
        assert_eq!(unfit.code, 126, "{}", unfit.stderr);
    }
}

#[test]
fn a_dry_run_makes_nothing() {
    for person in people() {
        let ran = person.shell(&["--dry-run", "-o", "json"], "echo out");
        let plan: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((ran.code, &plan["network"]), (0, &serde_json::Value::Null));
        assert_eq!(person.evidence(), None);
    }
}

#[test]
fn a_result_for_machines_is_not_mixed_with_what_the_command_prints() {
    for person in people() {
        let ran = person.shell(&["-o", "json"], "echo out; exit 3");
        let record: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((ran.code, &record["exit_code"]), (3, &3.into()));
        assert!(ran.stderr.ends_with("out\n"), "{}", ran.stderr);
    }
}

#[test]
fn what_was_printed_can_be_read_afterwards() {
    for person in people() {
        let run = person.shell(&[], "echo first; echo second >&2").run().to_owned();
        let logs = person.sluice(&["logs", &run]);
        // Two pipes: which of them is read first is nobody's promise.
        let mut lines: Vec<&str> = logs.stdout.lines().collect();
        lines.sort_unstable();
        assert_eq!((logs.code, lines), (0, vec!["first", "second"]), "{}", logs.stderr);
        let listed = person.sluice(&["ls"]);
        assert!(
            listed.stdout.contains(&run) && listed.stdout.contains("exited"),
            "{}",
            listed.stdout
        );
    }
}

#[test]
fn what_the_caller_ignores_is_heeded_inside() {
    // An engine starts its containers itself, and ignores nothing.
    for person in people().into_iter().filter(|person| person.backend() == BackendKind::Namespaces)
    {
        let script = "trap '' HUP INT QUIT TERM
                      sluice run --mode none -- grep SigIgn /proc/self/status";
        let output = person.typing(script).output_in_time().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let ignored = printed.trim().trim_start_matches("SigIgn:").trim();
        let ignored = u64::from_str_radix(ignored, 16).unwrap_or(u64::MAX);
        // The two after the usual ones are the C library's own, and out of reach.
        assert_eq!(ignored & 0x7fff_ffff, 0, "{output:?}");
    }
}
