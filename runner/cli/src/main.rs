//! `sluice`: parse, run, exit code.
//!
//! Nothing here decides anything. To see what a verb does, open the file of its
//! name under `policy` or `audit`.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::cli::run(cli::cli::parse()).into()
}
