//! Runs other people's programs with a deadline.

use std::env;
use std::ffi::OsStr;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::skip::{is_installed, skip};

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

/// Whether a Python module can be imported; if not, the test says so and ends.
pub(crate) fn is_importable(module: &str, home: &Path) -> bool {
    if !is_installed("python3") {
        return false;
    }
    let imports =
        Tool::new("python3", home).args(["-c", &format!("import {module}")]).run().success;
    if !imports {
        skip(module);
    }
    imports
}
