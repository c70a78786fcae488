//! Running somebody else's programs, or saying loudly that they are not here.

use std::env;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;

/// How a script ended and what it said.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) success: bool,
    /// Standard output, then standard error.
    pub(crate) said: String,
}

/// Runs a script with `sh`.
pub(crate) fn sh(script: &Path, args: &[&Path]) -> Outcome {
    // A script that hangs has failed.
    let mut command = Command::new("timeout");
    command.args(["60", "sh"]).arg(script).args(args).env("LC_ALL", "C.UTF-8");
    let output = command.output().expect("coreutils' `timeout` is on every Linux machine");
    let said = [output.stdout, output.stderr].concat();
    Outcome { success: output.status.success(), said: String::from_utf8_lossy(&said).into_owned() }
}

/// Whether all of these are in `PATH`; if not, the test says so and ends.
pub(crate) fn are_installed(programs: &[&str]) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = |program: &str| env::split_paths(&path).any(|dir| dir.join(program).is_file());
    programs.iter().all(|program| found(program) || skip(program))
}

/// Says that a tool is missing, where it is seen, and returns `false`.
///
/// `SLUICE_TEST_REQUIRE` lists tools whose absence is a failure, by comma, or
/// is `all`: a machine that is meant to have them must not skip in silence.
fn skip(tool: &str) -> bool {
    let required = env::var("SLUICE_TEST_REQUIRE").unwrap_or_default();
    assert!(
        required != "all" && !required.split(',').any(|name| name.trim() == tool),
        "SLUICE_TEST_REQUIRE asks for {tool}, and it is not installed"
    );
    // Not the macro, whose output is shown only when a test fails.
    let line = format!("SKIP: {tool} is not installed\n");
    io::stderr().write_all(line.as_bytes()).unwrap();
    false
}
