//! A stand-in for the internet, for pilots. Everything it does is in `standin/`.

use std::process::ExitCode;

fn main() -> ExitCode {
    standin::program::main()
}
