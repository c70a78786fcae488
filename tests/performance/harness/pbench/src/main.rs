//! pbench: what is needed to measure a proxy that opens TLS, on loopback.
//!
//! - `pbench gencerts`: a test CA with the origin's leaf, and a CA that proxies sign with
//! - `pbench origin`: an HTTPS server with downloads, uploads, events and counters
//! - `pbench dns`: a name server that answers every name of one zone with one address
//! - `pbench load WORKLOAD`: one bounded workload, directly or through a proxy; prints
//!   one JSON object
//!
//! Open `load/mod.rs` to follow a measurement.

mod calibrate;
mod certs;
mod clock;
mod connection;
mod dns;
mod issuer;
mod load;
mod origin;
mod processes;
mod tls;
mod tunnel;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::runtime::{Builder, Runtime};

#[derive(Parser)]
#[command(name = "pbench", about = "Measures proxies that open TLS, on loopback")]
struct PbenchArgs {
    #[command(subcommand)]
    command: PbenchCommand,
}

#[derive(Subcommand)]
enum PbenchCommand {
    /// Serve HTTPS: downloads, uploads, events, and counters on a second port
    Origin(origin::Args),
    /// Answer every name of one zone with one address
    Dns(dns::Args),
    /// Make the certificates of a measurement
    Gencerts(certs::Args),
    /// Run one workload and print what was measured as JSON
    Load(load::Args),
}

fn main() -> ExitCode {
    match run(PbenchArgs::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        #[expect(clippy::print_stderr, reason = "why there is no result")]
        Err(err) => {
            eprintln!("pbench: {err:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: PbenchCommand) -> anyhow::Result<()> {
    match command {
        PbenchCommand::Dns(args) => runtime(1)?.block_on(dns::run(args)),
        PbenchCommand::Gencerts(args) => certs::run(&args),
        PbenchCommand::Load(args) => runtime(args.threads)?.block_on(load::run(args)),
        PbenchCommand::Origin(args) => runtime(args.threads)?.block_on(origin::run(args)),
    }
}

/// One thread unless more are wanted: client and origin must not crowd out the
/// proxy that is measured.
fn runtime(threads: usize) -> std::io::Result<Runtime> {
    match threads {
        0 | 1 => Builder::new_current_thread().enable_all().build(),
        threads => Builder::new_multi_thread().worker_threads(threads).enable_all().build(),
    }
}
