//! The two scripts that people type. `./test` runs what it is told, and refuses
//! what it does not know: a misspelt option must not look like a test run.
//! `./sluice` builds where something changed, and is the program otherwise.

use std::process::{Command, Output};

use crate::pages::root;

fn test_script(arguments: &[&str]) -> Output {
    Command::new("./test").args(arguments).current_dir(root()).output().unwrap()
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
    command.output().unwrap()
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
