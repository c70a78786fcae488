//! The caller's terminal is lent to a command, and is not the command's.

use std::time::Duration;

use crate::people;

const RESETS: [&str; 4] = ["\x1b[?1000l", "\x1b[?2004l", "\x1b[?25h", "\x1b[?1049l"];

/// Draws, then tries everything that acts beyond the screen, and leaves modes on.
const HOSTILE: &str = r"printf '\033[31mred\033[0m \033[2;3Hthere \033[?1049h\033[?25l\033[?1000h\033[?2004h'
    printf '\033]52;c;ZXZpbA==\007\033]0;title\007\033]8;;https://evil.test/\033\\link\033]8;;\033\\'
    printf '\033P$q\042p\033\\\033_Gf=24;AAAA\033\\\033[22;0t\033[5i\033]9;note\007\033[>1m'
    printf '\033]5'; sleep 1; printf '2;c;split\007'; printf 'l\303\244st'; exit 3";

/// The words that would have done something.
const ACTING: [&str; 9] =
    ["]52;", "ZXZpbA", "]0;", "evil.test", "P$q", "_Gf", "[22;0t", "[5i", "]9;"];

#[test]
fn what_draws_passes_to_a_terminal_what_acts_beyond_it_does_not_and_modes_are_reset() {
    for person in people() {
        let (shown, code) =
            person.on_terminal(&["run", "--mode", "none", "--", "sh", "-c", HOSTILE]).ended();
        assert_eq!(code, 3, "{shown:?}");
        for drawn in ["\x1b[31mred", "\x1b[2;3Hthere", "\x1b[?1049h", "link", "l\u{e4}st"] {
            assert!(shown.contains(drawn), "{drawn:?}: {shown:?}");
        }
        for acting in ACTING.into_iter().chain(["split", "\x1b[>1m"]) {
            assert!(!shown.contains(acting), "{acting:?}: {shown:?}");
        }
        let (_, after) = shown.split_once("l\u{e4}st").unwrap();
        for reset in RESETS {
            assert!(after.contains(reset), "{reset:?}: {after:?}");
        }
    }
}

#[test]
fn a_terminal_is_reset_also_when_the_command_is_ended_for_it() {
    for person in people() {
        let script = r"printf '\033[?1000h\033[?1049h\033[?2004h\033[?25l'; sleep 60";
        let words = ["run", "--mode", "none", "--timeout", "1s", "--", "sh", "-c", script];
        let (shown, code) = person.on_terminal(&words).ended();
        assert_eq!(code, 124, "{shown:?}");
        for reset in RESETS {
            assert!(shown.contains(reset), "{reset:?}: {shown:?}");
        }
    }
}

#[test]
fn an_answer_of_the_terminal_reaches_the_command_that_asked() {
    for person in people() {
        let asks = r"stty raw -echo; printf '\033[6n'; dd bs=1 count=6 2>/dev/null | cat -v";
        let (shown, code) =
            person.on_terminal(&["run", "--mode", "none", "--", "sh", "-c", asks]).ended();
        assert_eq!(code, 0, "{shown:?}");
        assert!(shown.contains("^[[7;9R"), "{shown:?}");
    }
}

/// On a busy machine an answer may come too late for anybody, so several are tried.
#[test]
fn an_answer_that_comes_after_the_command_is_not_typed_to_the_next_program() {
    for person in people() {
        let asks = ["run", "--mode", "none", "--", "printf", r"\033[6n"];
        let next_line =
            || person.on_terminal(&asks).answering_after(Duration::from_millis(60)).next_line();
        assert!((0..10).any(|_| next_line() == "\n"), "it was typed to the next program");
    }
}

#[test]
fn what_goes_to_a_pipe_is_every_byte_that_was_written() {
    for person in people() {
        let ran = person.shell(&[], r"printf '\033]52;c;x\007\033[6n\233'");
        assert_eq!(ran.stdout, "\x1b]52;c;x\x07\x1b[6n\u{fffd}", "{}", ran.stderr);
    }
}

#[test]
fn a_sessions_commands_have_no_more_of_a_terminal() {
    for person in people() {
        let started = person.sluice(&["session", "start", "--mode", "none", "--quiet"]);
        assert_eq!(started.code, 0, "{}", started.stderr);
        assert!(!started.stderr.contains("session"), "{}", started.stderr);
        let name = started.stdout.trim();
        let words = ["session", "exec", name, "--", "sh", "-c", HOSTILE];
        let (shown, code) = person.on_terminal(&words).ended();
        person.sluice(&["session", "stop", name]);
        assert_eq!(code, 3, "{shown:?}");
        assert!(shown.contains("\x1b[31mred"), "{shown:?}");
        for acting in ACTING {
            assert!(!shown.contains(acting), "{acting:?}: {shown:?}");
        }
        for reset in RESETS {
            assert!(shown.contains(reset), "{reset:?}: {shown:?}");
        }
    }
}
