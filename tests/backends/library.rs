//! The engine as a library: its examples do what they say, without `sluice`.

use std::process::Command;

use tests::deadline::CommandDeadline as _;

use crate::programs;

fn example(program: &str) -> String {
    let programs = programs();
    let output = Command::new(program)
        .env("SLUICE_INIT_PROGRAM", programs.init)
        .env("SLUICE_GATEWAY_PROGRAM", programs.gateway)
        .env("SLUICE_LAUNCH_PROGRAM", programs.launch)
        .output_in_time()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn two_runs_go_on_at_once_in_one_process_and_one_is_cancelled() {
    let printed = example(env!("CARGO_BIN_EXE_two-at-once-under-test"));
    assert_eq!(
        printed,
        "Exited { code: 0 } printed \"quick\\n\"\n\
         Cancelled { signal: 15 } printed \"slow\\n\"\n"
    );
}

#[test]
fn a_run_whose_starter_was_killed_is_attached_to_whole_and_sealed() {
    let printed = example(env!("CARGO_BIN_EXE_detached-under-test"));
    let mut lines = printed.lines();
    assert_eq!(lines.next(), Some("the starter is dead"), "{printed}");
    for number in 1..=5 {
        let line = lines.next().unwrap_or_default();
        assert!(line.ends_with(&format!("ms  {number}")), "{printed}");
    }
    assert_eq!(lines.next(), Some("Some(Exited { code: 7 }), exit code 7"), "{printed}");
    assert_eq!(lines.next(), Some("sealed and verified: true"), "{printed}");
    // The transcript: its header, five pieces, the exit.
    let events: Vec<&str> = lines.skip(1).filter_map(|line| line.split('"').nth(3)).collect();
    assert_eq!(events, ["1\\n", "2\\n", "3\\n", "4\\n", "5\\n", "7"], "{printed}");
}
