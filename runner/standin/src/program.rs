//! `sluice-standin`: a stand-in as a program, until it is told to stop.

use std::io::{self, Write as _};
use std::net::{self, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::{RequestSink, Setup};

/// A server that is whatever host it is told to be, with TLS and without.
///
/// Writes one JSON line per request to standard output.
#[derive(Debug, Parser)]
#[command(name = "sluice-standin", version)]
struct StandinArgs {
    /// A host to have a certificate for.
    #[arg(long = "name", value_name = "HOST", required_unless_present = "health")]
    names: Vec<String>,

    /// Where to listen; several are served alike.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: Vec<SocketAddr>,

    /// Where to write the certificate of its authority, once it listens.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// Say whether something listens there, and exit.
    #[arg(long, value_name = "ADDRESS")]
    health: Option<SocketAddr>,
}

/// Does what the command line says, and ends as a program does.
pub fn main() -> ExitCode {
    let args = StandinArgs::parse();
    let done = match args.health {
        Some(at) => health(at),
        None => Runtime::new()
            .context("cannot start the runtime")
            .and_then(|runtime| runtime.block_on(serve(args))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            writeln!(io::stderr(), "sluice-standin: {err:#}").ok();
            ExitCode::FAILURE
        }
    }
}

async fn serve(args: StandinArgs) -> anyhow::Result<()> {
    let mut stop = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let sink = RequestSink::to(|seen| {
        if let Ok(line) = serde_json::to_string(seen) {
            // A reader that left must not end the server.
            writeln!(io::stdout().lock(), "{line}").ok();
        }
    });
    let standin = Setup { listen: args.listen, names: args.names, sink }.start().await?;
    for address in standin.addresses() {
        writeln!(io::stderr(), "listening on {address}").ok();
    }
    if let Some(path) = args.ca {
        // In place at once: whoever waits for it never reads half of it.
        let certificate = standin.certificate().as_bytes();
        audit::put_whole_file(&path, 0o666, |file| file.write_all(certificate))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    tokio::select! {
        _ = stop.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "asks itself, for nobody's request")]
fn health(at: SocketAddr) -> anyhow::Result<()> {
    net::TcpStream::connect_timeout(&at, Duration::from_secs(2))
        .with_context(|| format!("nothing listens on {at}"))?;
    Ok(())
}
