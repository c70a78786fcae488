//! The first process of a sandbox: read the arguments, do what they say.
//!
//! People do not start it; the runner does, with exactly these arguments. To see
//! what it does, open `init/start.rs`. It is also what connects a command of
//! a session to its terminal, and what packs and unpacks files: an image may
//! bring neither.

use std::process::ExitCode;

use inside::init::start::start;
use inside::init::{files, terminal};
use protocol::init::InitArgs;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let code = match words.split_first() {
        Some((verb, rest)) if verb == "files" => files::carry_out(rest),
        Some((verb, rest)) if verb == "terminal" => terminal::take(rest),
        Some((args, [])) => serde_json::from_str::<InitArgs>(args).map_or(125, start),
        Some(_) | None => 125,
    };
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
