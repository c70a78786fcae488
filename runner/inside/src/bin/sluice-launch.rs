//! Does what needs a process of its own, then becomes or watches what it made.
//!
//! People do not start it; the runner does. To see what a word does, open the
//! file of its name under `launch`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let word = std::env::args().nth(1).unwrap_or_default();
    match word.as_str() {
        "doors" => inside::launch::doors::main(),
        "gateway" => inside::launch::gateway::main(),
        "idmap" => inside::launch::idmap::main(),
        "pools" => inside::launch::pools::main(),
        "relay" => inside::launch::relay::main(),
        "sandbox" => inside::launch::sandbox::main(),
        _ => ExitCode::from(inside::launch::USAGE),
    }
}
