//! The first process of a sandbox: read the charge, keep it.
//!
//! People do not start it; the runner does, with exactly these arguments. To see
//! what it does, open `init/supervise.rs`.

use std::process::ExitCode;
use std::time::Duration;

use runner::init::supervise::{Charge, supervise};
use runner::{attack, inside};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.split_first() {
        // Tools for a sandbox that may hold nothing else; commands like any.
        Some((verb, rest)) if verb == "attack" => return attack::main(rest),
        Some((verb, rest)) if verb == "fetch" => return inside::fetch::main(rest),
        Some((verb, rest)) if verb == "tools" => return inside::tools::main(rest),
        Some((verb, rest)) if verb == "walk" => return inside::walk::main(rest),
        Some(_) | None => {}
    }
    match charge(&mut words.into_iter()) {
        Some(charge) => ExitCode::from(u8::try_from(supervise(charge)).unwrap_or(u8::MAX)),
        None => ExitCode::from(125),
    }
}

fn charge(arguments: &mut impl Iterator<Item = String>) -> Option<Charge> {
    let mut charge = Charge {
        socket: "/run/sluice/runner.sock".into(),
        deadline: None,
        grace: Duration::from_secs(5),
        detached: false,
        bounded: Vec::new(),
        command: Vec::new(),
    };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bounded" => charge.bounded.push(arguments.next()?),
            "--deadline" => charge.deadline = Some(millis(&arguments.next()?)?),
            "--detached" => charge.detached = true,
            "--grace" => charge.grace = millis(&arguments.next()?)?,
            "--socket" => charge.socket = arguments.next()?.into(),
            "--" => {
                charge.command = arguments.collect();
                return Some(charge);
            }
            _ => return None,
        }
    }
    None
}

fn millis(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_millis)
}
