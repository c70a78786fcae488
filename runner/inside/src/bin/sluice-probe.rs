//! Attacks and small clients, for sandboxes that are there to be tried.
//!
//! A command like any other: whatever it may do, any command may. To see what a
//! word does, open the file of its name under `probe`.

use std::process::ExitCode;

use inside::probe::{attack, fetch, tools, walk};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.split_first() {
        Some((verb, rest)) if verb == "attack" => attack::main(rest),
        Some((verb, rest)) if verb == "fetch" => fetch::main(rest),
        Some((verb, rest)) if verb == "tools" => tools::main(rest),
        Some((verb, rest)) if verb == "walk" => walk::main(rest),
        Some(_) | None => ExitCode::from(2),
    }
}
