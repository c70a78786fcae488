//! The first process of a sandbox, with real commands in namespaces of their own.
//!
//! There are no walls here but the numbers of processes: what is tried is what the
//! first process does, also when a command of the same sandbox works against it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod doors;
mod sandbox;
#[path = "../../../../tests/src/skip.rs"]
mod skip;

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use inside::passing::{frame, send_all};
use inside::process_tree::ProcessStat;
use protocol::init::{CommandEnd, CommandSpec, InitRequest};

use sandbox::{
    Begun, LONG, Sandbox, TEST_DEADLINE, against_starters, last, printed, shell, slow_to_start,
    with_terminal,
};

#[test]
fn a_command_that_is_stopped_before_it_starts_holds_up_nobody() {
    for spec in [shell("echo hi"), with_terminal(shell("echo hi"))] {
        let Some(sandbox) = Sandbox::start(LONG) else { return };
        let attacker = sandbox.run(against_starters("kill -STOP ${p#/proc/}; echo caught; exit"));
        attacker.wait_for("ready");
        // One that is too quick for it starts, and the next is tried.
        let mut tries = (0..50).map(|_| sandbox.begin(slow_to_start(spec.clone())));
        let _stopped = tries.find(|started| started.or_other("hi", &attacker, "caught"));
        attacker.wait_for("caught");
        sandbox.hello();
        // Its end is noticed, and another command starts and ends.
        assert_eq!(last(attacker.told), Some(CommandEnd::Exited(0)));
        assert_eq!(last(sandbox.run(shell("exit 3")).told), Some(CommandEnd::Exited(3)));
        assert_eq!(sandbox.end().1, Some(CommandEnd::Exited(0)));
    }
}

#[test]
fn nobody_holds_on_to_what_says_that_a_terminal_was_taken() {
    let Some(sandbox) = Sandbox::start(LONG) else { return };
    // Where it is while the command is looked for.
    let hold = "sleep 0.02; exec 2>/dev/null; exec 9>$p/fd/3; exec sleep 600";
    let attacker = sandbox.run(against_starters(hold));
    attacker.wait_for("ready");
    let command = sandbox.run(with_terminal(slow_to_start(shell("echo hi; exit 5"))));
    assert_eq!(last(command.told), Some(CommandEnd::Exited(5)));
}

/// Prints something when it is asked to end, and goes on.
const STUBBORN: &str = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done";

#[test]
fn the_last_words_of_a_command_that_had_to_be_killed_are_on_record() {
    let Some(sandbox) = Sandbox::start(LONG) else { return };
    let commands: Vec<Begun> = (0..8).map(|_| sandbox.run(shell(STUBBORN))).collect();
    commands.iter().for_each(|command| command.wait_for("ready"));
    let (_home, _) = sandbox.end();
    for command in commands {
        let killed = Some(CommandEnd::Signaled(9));
        let (text, end) = printed(&command.spool);
        assert!(text.contains("asked") && end == killed, "{text} {end:?}");
        assert_eq!(last(command.told), killed);
    }
}

#[test]
fn so_are_those_of_a_sandbox_whose_time_is_over() {
    let Some(mut sandbox) = Sandbox::start(Duration::from_secs(8)) else { return };
    let command = sandbox.run(shell(STUBBORN));
    assert_eq!(sandbox.unshare.wait().unwrap().code(), Some(124));
    let (text, end) = printed(&command.spool);
    assert!(text.contains("asked") && end == Some(CommandEnd::Signaled(9)), "{text} {end:?}");
}

#[test]
fn what_a_full_disk_took_of_a_frame_does_not_hide_how_the_command_ended() {
    // To the first process, a file that may not grow is a disk that is full.
    let Some(sandbox) = Sandbox::start_under(&["prlimit", "--fsize=1000"], LONG) else { return };
    let more = sandbox.home.path().join("more");
    let wait = format!("while [ ! -e {} ]; do sleep 0.01; done", more.display());
    let script = format!("echo one; {wait}; head -c 2000 /dev/zero; sleep 600");
    let command = sandbox.run(shell(&script));
    command.wait_for("one");
    File::create(more).unwrap();
    let told = last(command.told);
    assert!(matches!(told, Some(CommandEnd::Unrecorded(_))), "{told:?}");
    assert_eq!(printed(&command.spool), ("one\n".to_owned(), told));
}

#[test]
fn a_reason_of_any_length_arrives() {
    let Some(sandbox) = Sandbox::start(LONG) else { return };
    let missing = "/x".repeat(60_000);
    let words = vec![missing.clone()];
    for spec in [
        CommandSpec { words: words.clone(), ..shell("") },
        with_terminal(CommandSpec { words, ..shell("") }),
        CommandSpec { directory: Some(missing), ..shell("") },
    ] {
        let end = last(sandbox.begin(spec).told);
        let Some(CommandEnd::Unstartable { why, .. }) = end else { panic!("{end:?}") };
        assert!(why.contains("/x/x"), "{why}");
    }
}

#[test]
fn a_terminal_whose_command_did_not_start_leaves_nobody_to_wait_for() {
    let Some(sandbox) = Sandbox::start_with(&[], LONG, 2 * TEST_DEADLINE) else { return };
    let words = vec!["/no/such/program".to_owned()];
    let begun = sandbox.begin(with_terminal(CommandSpec { words, ..shell("") }));
    let end = last(begun.told);
    assert!(matches!(end, Some(CommandEnd::Unstartable { code: 127, .. })), "{end:?}");
    // Whoever is left is waited for longer than for this answer.
    assert_eq!(sandbox.end().1, Some(CommandEnd::Exited(0)));
}

/// The run whose end is the sandbox's.
fn run_of(script: &str) -> CommandSpec {
    CommandSpec { ends_sandbox: true, ..shell(script) }
}

#[test]
fn whoever_is_ended_with_the_run_is_on_record_too() {
    let Some(mut sandbox) = Sandbox::start(LONG) else { return };
    let others: Vec<Begun> = (0..8).map(|_| sandbox.run(shell(STUBBORN))).collect();
    others.iter().for_each(|other| other.wait_for("ready"));
    let run = sandbox.run(run_of("exit 3"));
    assert_eq!(last(run.told), Some(CommandEnd::Exited(3)));
    assert_eq!(sandbox.unshare.wait().unwrap().code(), Some(3));
    for other in others {
        assert_eq!(printed(&other.spool).1, Some(CommandEnd::Signaled(9)));
        assert_eq!(last(other.told), Some(CommandEnd::Signaled(9)));
    }
}

#[test]
fn a_run_ends_also_while_other_commands_start() {
    let Some(mut sandbox) = Sandbox::start(LONG) else { return };
    let run = sandbox.run(run_of("sleep 0.3; exit 3"));
    let has_ended = AtomicBool::new(false);
    let end = thread::scope(|scope| {
        for name in 0..4 {
            let (socket, has_ended) = (sandbox.home.path().join("s"), &has_ended);
            let spool = sandbox.home.path().join(format!("{name}.others"));
            scope.spawn(move || {
                let mut begun = Vec::new();
                while !has_ended.load(Ordering::Relaxed) && begun.len() < 50 {
                    let Ok(stream) = UnixStream::connect(&socket) else { return };
                    let theirs = OpenOptions::new().append(true).create(true).open(&spool);
                    let input = File::open("/dev/null").unwrap();
                    let request = frame(&InitRequest::Run(shell("exec sleep 600"))).unwrap();
                    send_all(&stream, &request, &[input.as_fd(), theirs.unwrap().as_fd()]).ok();
                    begun.push(stream);
                    thread::sleep(Duration::from_millis(7));
                }
                // They hold on to their commands as long as it matters.
                while !has_ended.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(5));
                }
            });
        }
        let end = last(run.told);
        has_ended.store(true, Ordering::Relaxed);
        end
    });
    assert_eq!(end, Some(CommandEnd::Exited(3)));
    assert_eq!(sandbox.unshare.wait().unwrap().code(), Some(3));
}

#[test]
fn a_first_process_that_cannot_wait_for_its_commands_does_not_take_the_processor() {
    if !skip::is_installed("prlimit") {
        return;
    }
    let Some(sandbox) = Sandbox::start(LONG) else { return };
    let spec = CommandSpec { outlives_client: true, ..shell("sleep 1; echo go; sleep 600") };
    let command = sandbox.run(spec);
    // The kernel waits for no more descriptors than there may be.
    let limit = ["--nofile=1:1".to_owned(), format!("--pid={}", sandbox.pid)];
    assert!(Command::new("prlimit").args(limit).status().unwrap().success());
    let taken = || ProcessStat::of(sandbox.pid).unwrap().cpu_nanoseconds;
    // It waits anew when something was printed.
    command.wait_for("go");
    let before = taken();
    thread::sleep(Duration::from_secs(1));
    let taken = Duration::from_nanos(taken() - before);
    assert!(taken < Duration::from_millis(300), "{taken:?} of a second");
}
