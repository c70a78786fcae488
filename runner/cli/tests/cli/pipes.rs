//! Output that nobody reads, colours that nobody wants, and environment twins.

use std::fs;
use std::io::Read as _;
use std::process::{Command, Stdio};

use crate::world::{Ran, World};

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let world = World::new();
    let mut command = world.command(&["policy", "presets", "no-exfiltration"]);
    // Nobody reads at all: the first write meets a closed pipe.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
}

#[test]
fn a_full_disk_is_a_failure() {
    let world = World::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = world.command(&["policy", "schema"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("error: cannot write the result: No space left"), "{said}");
}

#[test]
fn colour_is_for_those_who_ask() {
    let mut world = World::with_policy("version: 1\n");
    let colored = |world: &World, arguments: &[&str]| {
        let mut all = vec!["policy", "check"];
        all.extend(arguments);
        world.sluice(&all).stdout.contains('\u{1b}')
    };
    assert!(!colored(&world, &[]));
    assert!(colored(&world, &["--color", "always"]));
    world.set("SLUICE_COLOR", "always");
    assert!(colored(&world, &[]));
    assert!(!colored(&world, &["--color", "never"]));
    world.set("SLUICE_COLOR", "auto");
    world.set("CLICOLOR_FORCE", "1");
    assert!(colored(&world, &[]));
    world.set("NO_COLOR", "1");
    assert!(!colored(&world, &[]));
}

#[test]
fn a_flag_beats_its_variable() {
    let mut world = World::with_policy("version: 1\n");
    world.set("SLUICE_OUTPUT", "json");
    assert_eq!(world.sluice(&["policy", "check"]).stdout, "[]\n");
    assert_eq!(world.sluice(&["policy", "check", "-o", "jsonl"]).stdout, "");
    world.set("SLUICE_OUTPUT", "xml");
    let ran = world.sluice(&["policy", "check"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("invalid value 'xml'"), "{}", ran.stderr);
}

#[test]
fn bash_completes_runs_by_name() {
    let world = World::new();
    let run = "20261116-031045-7f3a2b";
    fs::create_dir_all(world.state().join("runs").join(run)).unwrap();
    let script = world.sluice(&["completions", "bash"]).stdout;
    world.write("completions.bash", script);
    let asked = "sluice() { \"$SLUICE\" \"$@\"; }; . ./completions.bash; \
                 COMP_WORDS=(sluice diff 2026); COMP_CWORD=2; \
                 _sluice_with_names sluice 2026 diff; echo \"${COMPREPLY[@]}\"; \
                 COMP_WORDS=(sluice session exec ''); COMP_CWORD=3; \
                 _sluice_with_names sluice '' exec; echo \"${#COMPREPLY[@]}\"";
    let mut bash = Command::new("/bin/bash");
    bash.args(["--norc", "-c", asked]).current_dir(world.project()).env_clear();
    bash.env("HOME", world.home()).env("SLUICE", env!("CARGO_BIN_EXE_sluice"));
    let ran = Ran::of(bash);
    let mut lines = ran.stdout.lines();
    assert_eq!(lines.next(), Some(run), "{}", ran.stderr);
}

#[test]
fn completions_are_written_for_every_shell() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = world.sluice(&["completions", shell]);
        assert_eq!(ran.code, 0);
        assert!(ran.stdout.contains("explain") && ran.stdout.contains("verify"), "{shell}");
    }
    assert_eq!(world.sluice(&["completions", "tcsh"]).code, 2);
}
