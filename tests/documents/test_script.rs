//! The two scripts that people type. `./test` runs what it is told, and refuses
//! what it does not know: a misspelt option must not look like a test run.
//! `./sluice` builds where something changed, and is the program otherwise.

use std::process::{Command, Output};

use tests::CommandDeadline as _;

use crate::pages::root;

fn test_script(arguments: &[&str]) -> Output {
    Command::new("./test").args(arguments).current_dir(root()).output_in_time().unwrap()
}

#[test]
fn an_option_that_the_test_script_does_not_know_is_refused_with_what_to_write() {
    for (arguments, told) in [
        (&["--ful"][..], "`--ful` is no option of ./test; ./test --help lists them"),
        (&["--nocapture"], "options of the test programs come after `--`"),
        (&["--full", "-p", "sluice-audit"], "write ./test --full or ./test -p sluice-audit"),
        (&["-p", "sluice-audit", "--full"], "write ./test --full, by itself"),
        (&["-p"], "-p needs a value, as in ./test -p sluice-audit"),
    ] {
        let output = test_script(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(told), "{arguments:?}: {said}");
    }
}

#[test]
fn the_test_script_explains_itself() {
    let output = test_script(&["--help"]);
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stdout);
    for named in ["./test --full", "-p sluice-audit", "scripts/full", "docs/reliability.md"] {
        assert!(said.contains(named), "{said}");
    }
}

#[test]
fn the_times_of_suites_and_the_slowest_tests_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("test.log");
    let tests: String = (1..=11).map(|n| format!("test a::t{n} ... ok <{n}.500s>\n")).collect();
    let text = format!(
        "     Running unittests src/lib.rs (target/x/debug/deps/audit-0123456789abcdef)\n{tests}\
         test a::late ... FAILED <0.004s>\n\
         test result: FAILED. 11 passed; 1 failed; finished in 12.34s\n   Doc-tests audit\n\
         test result: ok. 2 passed; 0 failed; finished in 0.05s\n"
    );
    std::fs::write(&log, text).unwrap();
    let output = Command::new("scripts/test-times").arg(&log).current_dir(root()).output_in_time();
    let said = String::from_utf8(output.unwrap().stdout).unwrap();
    let slowest: String =
        (2..=11).rev().map(|n| format!("{n:>6}.50 s  audit: a::t{n}\n")).collect();
    let suites = "    12.34 s  audit (unittests src/lib.rs)\n     0.05 s  audit (documentation)\n";
    assert_eq!(said, format!("time of each suite:\n{suites}slowest tests:\n{slowest}"));
}

/// Cargo starts every test program through this script.
#[test]
fn a_timed_test_program_keeps_its_arguments_output_and_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("deps")).unwrap();
    for (name, script, said) in [
        (
            "deps/libtest",
            "echo $RUSTC_BOOTSTRAP \"$@\"; case $* in *--list) ;; *) exit 3; esac",
            "1 a b -Z unstable-options --report-time\n",
        ),
        (
            "deps/another",
            "[ \"$*\" = 'a b' ] || exit 1; echo \"$RUSTC_BOOTSTRAP $@\"; exit 3",
            " a b\n",
        ),
        ("documentation", "echo \"$RUSTC_BOOTSTRAP $@\"; exit 3", " a b\n"),
    ] {
        let program = folder.path().join(name);
        executable(&program, &format!("#!/bin/sh\n{script}\n"));
        let mut command = Command::new("scripts/timed-test");
        command.arg(&program).args(["a", "b"]).env_remove("RUSTC_BOOTSTRAP").current_dir(root());
        let output = command.output_in_time().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!((output.status.code(), printed.as_ref()), (Some(3), said), "{name}");
    }
}

/// A build as `./sluice` leaves it, whose programs only say that they ran.
fn built() -> tempfile::TempDir {
    let target = tempfile::tempdir().unwrap();
    for program in ["sluice", "sluice-gateway"] {
        executable(&target.path().join(program), "#!/bin/sh\necho ran: \"$@\"\n");
    }
    // Whoever builds is noticed, and fails.
    executable(&target.path().join("cargo"), "#!/bin/sh\necho cargo was asked >&2\nexit 101\n");
    let programs = format!("{}\n", target.path().display());
    std::fs::write(target.path().join("sluice.built"), programs).unwrap();
    target
}

fn executable(path: &std::path::Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn sluice(target: &std::path::Path) -> Output {
    let path = format!("{}:{}", target.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(root().join("sluice"));
    command.args(["run", "--", "a b"]).env("PATH", path).env("CARGO_TARGET_DIR", target);
    command.output_in_time().unwrap()
}

#[test]
fn the_sluice_script_builds_only_what_changed() {
    let target = built();
    let output = sluice(target.path());
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!((output.status.code(), said.as_ref()), (Some(0), "ran: run -- a b\n"));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "it is quiet");

    // Older than any file of the project.
    let stamp = std::fs::File::options().write(true).open(target.path().join("sluice.built"));
    stamp.unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    let output = sluice(target.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(101), "{said}");
    assert!(said.contains("sluice: building"), "it says what it waits for: {said}");
    assert!(said.contains("cargo was asked"), "{said}");
}
