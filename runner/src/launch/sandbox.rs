//! `sluice-launch sandbox`: a sandbox made of Linux namespaces.

use std::process::ExitCode;

/// Makes one sandbox and stays until it has ended.
pub fn main() -> ExitCode {
    ExitCode::from(super::USAGE)
}
