//! What `sluice run` is asked for is done, or refused with what to write instead.

use std::fs;

use crate::world::{Ran, World, program};

const DRY: [&str; 6] = ["run", "--dry-run", "--backend", "namespaces", "--image", "host"];

fn plan(world: &World, words: &[&str]) -> Ran {
    world.sluice(&[&DRY, words].concat())
}

#[track_caller]
fn refused(ran: &Ran, why: &str) {
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
    ran.assert_harmless();
}

#[test]
fn a_command_without_its_dashes_is_shown_with_them() {
    let world = World::new();
    refused(&plan(&world, &["true"]), "write: sluice run -- true\n");
    refused(&plan(&world, &["make", "a b"]), "write: sluice run -- make 'a b'\n");
    refused(&plan(&world, &["echo hi; pwd"]), "write: sluice run -c 'echo hi; pwd'\n");
    refused(&plan(&world, &[]), "no command; write `sluice run -- COMMAND`");
    refused(&plan(&world, &["-c", "pwd", "--", "true"]), "cannot be used with");
}

#[test]
fn a_line_for_the_shell_is_one_command() {
    let ran = plan(&World::new(), &["-o", "json", "-c", "echo hi; pwd"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let command = ran.json()["command"].clone();
    assert_eq!(command, serde_json::json!(["sh", "-c", "echo hi; pwd"]));
}

#[test]
fn a_value_may_hold_commas_lines_and_json() {
    let mut world = World::new();
    let given = |world: &World, words: &[&str]| {
        let ran = plan(world, &[&["-o", "json"], words, &["--", "true"]].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let environment = ran.json()["environment"].clone();
        let names = environment.as_array().unwrap().iter().map(|pair| pair[0].as_str().unwrap());
        let names: Vec<String> = names.map(str::to_owned).collect();
        ["A", "B"].map(|name| names.iter().filter(|known| *known == name).count())
    };
    assert_eq!(given(&world, &["-e", r#"A={"a":1,"B":2}"#]), [1, 0]);
    assert_eq!(given(&world, &["-e", "A=1\nB=2"]), [1, 0]);
    assert_eq!(given(&world, &["-e", "A=1", "-e", "B=2"]), [1, 1]);
    world.set("SLUICE_ENV", "A=1,2\nB=3");
    assert_eq!(given(&world, &[]), [1, 1], "the variable has one a line");
}

#[test]
fn a_name_that_no_shell_can_use_is_refused() {
    let world = World::new();
    for wrong in ["BAD NAME=1", "1A=1", "=1", "A\tB=1"] {
        refused(&plan(&world, &["-e", wrong, "--", "true"]), "is not NAME=VALUE");
    }
    refused(&plan(&world, &["-e", "NOT_SET", "--", "true"]), "write NOT_SET=VALUE");
}

#[test]
fn a_wider_mode_than_the_policys_is_refused_not_narrowed() {
    let world = World::new();
    let told = "`--mode direct` is more than the policy permits, which is `overlay`; it would \
                need `fs: {workspace: direct}`";
    refused(&plan(&world, &["--mode", "direct", "--", "true"]), told);
    assert_eq!(plan(&world, &["--mode", "readonly", "--", "true"]).code, 0);
}

#[test]
fn a_whole_home_or_machine_is_no_project() {
    let world = World::new();
    let words = [&DRY[..], &["--", "true"]].concat();
    for (dir, why) in [
        (world.home(), "your whole home directory, keys and all"),
        (world.home().parent().unwrap().to_owned(), "every home directory on this machine"),
        ("/".into(), "the whole file system"),
    ] {
        let mut command = program(&dir, &world.home());
        command.args(&words);
        let ran = Ran::of(command);
        refused(&ran, why);
        assert!(ran.stderr.contains("name one with `-w DIR`"), "{}", ran.stderr);
        let mut command = program(&dir, &world.home());
        command.args([&DRY[..], &["--mode", "none", "--", "true"]].concat());
        assert_eq!(Ran::of(command).code, 0, "without a project there is nothing to refuse");
    }
    fs::write(world.home().join("file"), "").unwrap();
    let file = world.home().join("file");
    refused(&plan(&world, &["-w", file.to_str().unwrap(), "--", "true"]), "is not a directory");
    refused(
        &plan(&world, &["-w", "/nosuch", "--", "true"]),
        "cannot use /nosuch as the project directory",
    );
}

#[test]
fn a_variable_turns_a_switch_on_in_the_usual_words() {
    for (word, asked) in [("1", true), ("yes", true), ("true", true), ("0", false), ("no", false)] {
        let mut world = World::new();
        world.set("SLUICE_NO_SANDBOX", word);
        let ran = plan(&world, &["--", "true"]);
        // Only a policy permits it, and there is none.
        let refused = ran.code == 2 && ran.stderr.contains("running without a sandbox");
        assert_eq!(refused, asked, "{word}: {}", ran.stderr);
    }
}

#[test]
fn a_verb_that_is_misspelt_or_elsewhere_is_named() {
    let world = World::new();
    for (written, meant) in [
        ("rnu", "'run'"),
        ("polcy", "'policy'"),
        ("cp", "'session cp'"),
        ("verify", "'audit verify'"),
    ] {
        let ran = world.sluice(&[written]);
        assert_eq!(ran.code, 2, "{written}");
        assert!(ran.stderr.contains(meant), "{written}: {}", ran.stderr);
    }
}

#[test]
fn a_policy_that_is_not_there_does_not_look_like_a_command_that_failed() {
    let world = World::new();
    for (words, code) in [
        (&["run", "--policy", "nosuch.yaml", "--", "true"][..], 2),
        (&["policy", "check", "nosuch.yaml"], 1),
    ] {
        let ran = world.sluice(words);
        assert_eq!(ran.code, code, "{words:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("cannot read nosuch.yaml"), "{}", ran.stderr);
    }
}

#[test]
fn no_time_at_all_is_refused_in_words() {
    let world = World::new();
    for written in ["0", "0s", "0h0m"] {
        let ran = world.sluice(&["session", "start", "--ttl", written]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains("it must be more than zero"), "{}", ran.stderr);
    }
}
