//! Every `--help` is a file beside this one: a change in it is a visible diff.

use std::path::{Path, PathBuf};

use expect_test::expect_file;

use crate::world::World;

const COMMANDS: &[&str] = &[
    "",
    "apply",
    "artifacts",
    "audit",
    "audit export",
    "audit review",
    "audit seal",
    "audit search",
    "audit show",
    "audit summary",
    "audit tail",
    "audit verify",
    "completions",
    "config",
    "config init",
    "config show",
    "demo",
    "diff",
    "doctor",
    "image",
    "image build",
    "logs",
    "ls",
    "policy",
    "policy check",
    "policy explain",
    "policy init",
    "policy lint",
    "policy presets",
    "policy schema",
    "policy test",
    "policy trust",
    "policy untrust",
    "rm",
    "run",
    "selftest",
    "session",
    "session cp",
    "session exec",
    "session ls",
    "session shell",
    "session start",
    "session stop",
    "stats",
    "sweep",
    "transcript",
];

fn page(command: &str) -> PathBuf {
    let name = format!("sluice {command}");
    let name = name.trim_end().replace(' ', "-");
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/cli/help/{name}.txt"))
}

#[test]
fn every_command_explains_itself() {
    let mut world = World::new();
    world.set("COLUMNS", "100");
    for command in COMMANDS {
        let mut arguments: Vec<&str> = command.split_whitespace().collect();
        arguments.push("--help");
        let ran = world.sluice(&arguments);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{command}");
        expect_file![page(command)].assert_eq(&ran.stdout);
    }
}

#[test]
fn no_command_is_left_out() {
    let world = World::new();
    let mut seen = 0;
    for command in COMMANDS {
        let mut arguments: Vec<&str> = command.split_whitespace().collect();
        arguments.push("--help");
        let help = world.sluice(&arguments).stdout;
        let Some((_, after)) = help.split_once("\nCommands:\n") else { continue };
        for line in after.lines().take_while(|line| line.starts_with("  ")) {
            let verb = line.split_whitespace().next().unwrap();
            let whole = format!("{command} {verb}");
            assert!(verb == "help" || COMMANDS.contains(&whole.trim()), "{whole}");
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");
}

#[test]
fn wrong_usage_is_told_on_stderr_with_exit_code_two() {
    let world = World::new();
    for wrong in
        [&["policy"][..], &["polcy"], &["policy", "check", "--nope"], &["audit", "show"], &[]]
    {
        let ran = world.sluice(wrong);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{wrong:?}");
        assert!(!ran.stderr.is_empty());
    }
}
