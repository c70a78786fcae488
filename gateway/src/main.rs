//! The gateway: read settings, build, serve, drain.
//!
//! Nothing here decides anything. To follow a request, open `lifecycle.rs`.

use std::env;
use std::error::Error as _;
use std::future::pending;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::builder::FalseyValueParser;
use clap::{Parser, ValueEnum};
use gateway::config::{self, Config, ConfigError, Given};
use gateway::control::{Client, ClientError};
use gateway::{Drained, Inherited, Server, Signals, StartError, Told, check, processors};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time;
use tracing::info;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The one way out of a sandbox.
///
/// Serves until SIGTERM or SIGINT, then drains. SIGHUP reads the policy again.
#[derive(Debug, Parser)]
#[command(name = "sluice-gateway", version)]
struct Args {
    /// Settings file.
    #[arg(
        long,
        value_name = "FILE",
        env = "SLUICE_GATEWAY_CONFIG",
        default_value = "/etc/sluice/gateway.yaml"
    )]
    config: PathBuf,

    /// What `${NAME}` in the settings stands for.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    given: Vec<Given>,

    /// Let pass what no rule names, and record it as `would_deny`. The policy must permit it.
    #[arg(long, env = "SLUICE_GATEWAY_OBSERVE", value_parser = FalseyValueParser::new())]
    observe: bool,

    /// Stop when standard input ends: whoever holds its other end is gone.
    #[arg(long, env = "SLUICE_GATEWAY_LIFELINE")]
    lifeline: bool,

    /// Stop at this time, in seconds since 1970, whoever is still there.
    #[arg(long, value_name = "SECONDS", env = "SLUICE_GATEWAY_UNTIL")]
    until: Option<u64>,

    /// Check settings and policy, print what would run, and exit.
    #[arg(long, env = "SLUICE_GATEWAY_CHECK", value_parser = FalseyValueParser::new())]
    check: bool,

    /// Ask the gateway of these settings whether it serves and can record, and exit.
    #[arg(long, env = "SLUICE_GATEWAY_HEALTH", value_parser = FalseyValueParser::new())]
    health: bool,

    /// What to log, such as `info` or `gateway=debug`.
    #[arg(long, value_name = "FILTER", env = "SLUICE_GATEWAY_LOG", default_value = "info")]
    log: String,

    /// How to log.
    #[arg(long, value_name = "FORMAT", env = "SLUICE_GATEWAY_LOG_FORMAT", default_value = "text")]
    log_format: LogFormat,
}

/// The log goes to stderr, one event a line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Json,
    Text,
}

/// Why the program ends without having served, or in the middle of it.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Control(#[from] ClientError),
    #[error("`{written}` is not a log filter: {why}")]
    Log { written: String, why: ParseError },
    #[error("the gateway is not ready: {why}")]
    NotReady { why: String },
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
    #[error(transparent)]
    Start(#[from] StartError),
}

fn main() -> ExitCode {
    // First of all: it takes over what we were started with, while there is one
    // thread and nothing else is open.
    let inherited = Inherited::from_env();
    match run(&Args::parse(), inherited) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => tell(&failure),
    }
}

#[expect(clippy::print_stdout, reason = "`--check` answers on stdout")]
fn run(args: &Args, inherited: Inherited) -> Result<(), Failure> {
    log_to_stderr(args)?;
    let mut config = config::load_with(&args.config, &args.given)?;
    config.observe |= args.observe;
    config.workers = processors();
    if args.check {
        println!("{}", check(&config)?);
        return Ok(());
    }
    // The first of the workers; the server starts the others.
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)?;
    if args.health {
        return runtime.block_on(health(&config));
    }
    runtime.block_on(serve(config, inherited, args))
}

/// For engines that ask a container how it is: there is no shell in its image.
async fn health(config: &Config) -> Result<(), Failure> {
    let asked = time::timeout(PATIENCE, Client::new(&config.control).status()).await;
    let status =
        asked.map_err(|_| Failure::NotReady { why: "it does not answer".to_owned() })??;
    if status.ready {
        return Ok(());
    }
    let why = status.audit.why_not.unwrap_or_else(|| "it is draining".to_owned());
    Err(Failure::NotReady { why })
}

async fn serve(config: Config, inherited: Inherited, args: &Args) -> Result<(), Failure> {
    let mut cut_off = pin!(cut_off(args.lifeline));
    let mut expired = pin!(expired(args.until));
    let mut signals = Signals::listen().map_err(Failure::Signals)?;
    let server = Server::start(config, inherited).await?;
    for listening in server.listening() {
        info!(way = %listening.way, address = %listening.address, "listening");
    }
    info!("ready");
    loop {
        tokio::select! {
            told = signals.next() => match told {
                Told::Reload => server.reload().await,
                Told::Stop => break,
            },
            () = server.asked_to_drain() => break,
            () = &mut cut_off => break,
            () = &mut expired => {
                info!("the time is over");
                break;
            }
        }
    }
    match server.drain().await {
        Drained::All => info!("stopped"),
        Drained::Cut { connections } => info!(connections, "stopped; some were cut"),
    }
    Ok(())
}

/// Done when standard input has ended, if that is a lifeline. What is written
/// there means nothing.
async fn cut_off(lifeline: bool) {
    if !lifeline {
        return pending().await;
    }
    let (ended, end) = oneshot::channel();
    // Its read cannot be called back, so no thread of the runtime's waits for it.
    thread::spawn(move || {
        drop(io::copy(&mut io::stdin().lock(), &mut io::sink()));
        ended.send(()).ok();
    });
    end.await.ok();
}

/// Done when the clock on the wall shows `until`. It is looked at again and
/// again: a sleep does not count the time that the machine itself slept.
async fn expired(until: Option<u64>) {
    let Some(until) = until else { return pending().await };
    let until = UNIX_EPOCH.checked_add(Duration::from_secs(until));
    // A time that no clock shows never comes.
    let Some(until) = until else { return pending().await };
    while let Ok(left) = until.duration_since(SystemTime::now()) {
        time::sleep(left.min(A_LOOK).max(A_MOMENT)).await;
    }
}

const A_LOOK: Duration = Duration::from_secs(10);
const A_MOMENT: Duration = Duration::from_millis(1);

fn log_to_stderr(args: &Args) -> Result<(), Failure> {
    let filter: Targets =
        args.log.parse().map_err(|why| Failure::Log { written: args.log.clone(), why })?;
    let colours =
        io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
    let lines = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(io::stderr);
    let log = tracing_subscriber::registry().with(filter);
    match args.log_format {
        LogFormat::Json => log.with(lines.json().flatten_event(true)).init(),
        LogFormat::Text => log.with(lines.with_target(false)).init(),
    }
    Ok(())
}

/// Says what went wrong and what it was caused by. What the operator wrote is
/// told apart from what the machine did: 2 and 1.
#[expect(clippy::print_stderr, reason = "the log may be what failed")]
fn tell(failure: &Failure) -> ExitCode {
    eprintln!("sluice-gateway: {failure}");
    let mut cause = failure.source();
    while let Some(err) = cause {
        eprintln!("  because: {err}");
        cause = err.source();
    }
    match failure {
        Failure::Config(_) | Failure::Log { .. } | Failure::Start(StartError::Policy(_)) => {
            ExitCode::from(2)
        }
        Failure::Control(_)
        | Failure::NotReady { .. }
        | Failure::Runtime(_)
        | Failure::Signals(_)
        | Failure::Start(_) => ExitCode::FAILURE,
    }
}

/// A gateway that has not said by then how it is, is not well.
const PATIENCE: Duration = Duration::from_secs(3);
