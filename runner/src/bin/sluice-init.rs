//! The first process of a sandbox: read the charge, keep it.
//!
//! People do not start it; the runner does, with exactly these arguments. To see
//! what it does, open `init/supervise.rs`. It is also the small programs that a
//! sandbox needs and that no image has to bring: the tools of `inside`, and for
//! sessions what connects a command to its terminal, and what packs and unpacks
//! files.

use std::process::ExitCode;

use runner::init::charge::Charge;
use runner::init::supervise::supervise;
use runner::init::{files, terminal};
use runner::{attack, inside};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.split_first() {
        // Tools for a sandbox that may hold nothing else; commands like any.
        Some((verb, rest)) if verb == "attack" => return attack::main(rest),
        Some((verb, rest)) if verb == "fetch" => return inside::fetch::main(rest),
        Some((verb, rest)) if verb == "files" => return ended(files::carry_out(rest)),
        Some((verb, rest)) if verb == "terminal" => return ended(terminal::take(rest)),
        Some((verb, rest)) if verb == "tools" => return inside::tools::main(rest),
        Some((verb, rest)) if verb == "walk" => return inside::walk::main(rest),
        Some(_) | None => {}
    }
    ended(Charge::parse(words.into_iter()).map_or(125, supervise))
}

fn ended(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
