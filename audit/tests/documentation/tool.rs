//! Runs other people's programs with a deadline.

use std::path::Path;
use std::process::Command;

use crate::skip::is_installed;

/// How a script ended and what it said.
#[derive(Debug)]
pub(crate) struct EntryOutcome {
    pub(crate) success: bool,
    /// Standard output, then standard error.
    pub(crate) said: String,
}

/// Runs a script with `sh`.
pub(crate) fn sh(script: &Path, args: &[&Path]) -> EntryOutcome {
    // A script that hangs has failed.
    let mut command = Command::new("timeout");
    command.args(["60", "sh"]).arg(script).args(args).env("LC_ALL", "C.UTF-8");
    let output = command.output().expect("coreutils' `timeout` is on every Linux machine");
    let said = [output.stdout, output.stderr].concat();
    EntryOutcome {
        success: output.status.success(),
        said: String::from_utf8_lossy(&said).into_owned(),
    }
}

/// Whether all of these are in `PATH`. The first that is not is skipped.
pub(crate) fn are_installed(programs: &[&str]) -> bool {
    programs.iter().all(|program| is_installed(program))
}
