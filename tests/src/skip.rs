//! The one way for a test to say that it cannot run here.
//!
//! It needs the standard library alone, so any crate can include it in its tests:
//!
//! ```ignore
//! #[path = "../../tests/src/skip.rs"]
//! mod skip;
//! ```

#![allow(dead_code, unreachable_pub, reason = "other crates include this file and use a part")]

use std::env;
use std::io::{self, Write as _};

/// Prints the line `SKIP: ... is not here`, which `./test` counts. The test then ends.
///
/// `SLUICE_TEST_REQUIRE` lists by comma what must not be missing, or is `all`. Then
/// the test fails instead: a machine that is meant to have it must not skip it.
pub fn skip(what: &str) {
    let required = env::var("SLUICE_TEST_REQUIRE").unwrap_or_default();
    assert!(
        required != "all" && !required.split(',').any(|name| name.trim() == what),
        "SLUICE_TEST_REQUIRE asks for {what}, and it is not here"
    );
    // Not `eprintln!`: the harness captures that, and shows it only if the test fails.
    let line = format!("SKIP: {what} is not here\n");
    io::stderr().write_all(line.as_bytes()).expect("standard error can be written");
}

/// Whether a program is in `PATH`. If not, it is skipped.
pub fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        skip(program);
    }
    found
}
