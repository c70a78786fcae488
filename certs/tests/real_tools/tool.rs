//! Running somebody else's program, or saying loudly that it is not here.

use std::env;
use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

/// How a tool ended and what it said.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) success: bool,
    /// Standard output, then standard error.
    pub(crate) said: String,
}

/// A program, with nothing in its environment that the test did not put there.
///
/// This machine may have trust variables of its own, which would answer the
/// question that is being asked.
#[derive(Debug)]
pub(crate) struct Tool(Command);

impl Tool {
    pub(crate) fn new(program: &str, home: &Path) -> Self {
        // A tool that hangs has failed.
        let mut command = Command::new("timeout");
        command.arg("60").arg(program).env_clear().env("HOME", home);
        command.current_dir(home);
        for name in ["PATH", "LD_LIBRARY_PATH"] {
            if let Some(value) = env::var_os(name) {
                command.env(name, value);
            }
        }
        Self(command)
    }

    pub(crate) fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.0.args(args);
        self
    }

    pub(crate) fn envs<'a>(
        mut self,
        set: impl IntoIterator<Item = &'a (&'static str, String)>,
    ) -> Self {
        self.0.envs(set.into_iter().map(|(name, value)| (name, value)));
        self
    }

    pub(crate) fn run(self) -> Outcome {
        self.run_with("")
    }

    /// Runs with `input` on standard input.
    pub(crate) fn run_with(mut self, input: &str) -> Outcome {
        let mut child = self
            .0
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("coreutils' `timeout` is on every Linux machine");
        // A tool that refuses early does not read its input.
        let sent = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
        drop(sent);
        let output = child.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        Outcome {
            success: output.status.success(),
            said: String::from_utf8_lossy(&said).into_owned(),
        }
    }
}

/// Whether a program is in `PATH`; if not, the test says so and ends.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).any(|folder| folder.join(program).is_file());
    found || skip(program)
}

/// Whether a Python module can be imported; if not, the test says so and ends.
pub(crate) fn is_importable(module: &str, home: &Path) -> bool {
    is_installed("python3")
        && (Tool::new("python3", home).args(["-c", &format!("import {module}")]).run().success
            || skip(module))
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
