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
use gateway::config::{self, Config, ConfigError, SettingValue};
use gateway::control;
use gateway::{
    Drained, Inherited, OperatorSignal, OsSignals, Server, StartError, check, processors,
};
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

    /// Value for `${NAME}` in the settings.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    given: Vec<SettingValue>,

    /// Allow what no rule matches, and record it as `would_deny`. The policy must permit it.
    #[arg(long, env = "SLUICE_GATEWAY_OBSERVE", value_parser = FalseyValueParser::new())]
    observe: bool,

    /// Stop when standard input is closed: its other end is gone.
    #[arg(long, env = "SLUICE_GATEWAY_LIFELINE")]
    lifeline: bool,

    /// Stop at this Unix time, even with connections open.
    #[arg(long, value_name = "SECONDS", env = "SLUICE_GATEWAY_UNTIL")]
    until: Option<u64>,

    /// Check settings and policy, print what would run, and exit.
    #[arg(long, env = "SLUICE_GATEWAY_CHECK", value_parser = FalseyValueParser::new())]
    check: bool,

    /// Ask the running gateway whether it is ready, and exit.
    #[arg(long, env = "SLUICE_GATEWAY_HEALTH", value_parser = FalseyValueParser::new())]
    health: bool,

    /// What to log, such as `info` or `gateway=debug`.
    #[arg(long, value_name = "FILTER", env = "SLUICE_GATEWAY_LOG", default_value = "info")]
    log: String,

    /// Format of the log.
    #[arg(long, value_name = "FORMAT", env = "SLUICE_GATEWAY_LOG_FORMAT", default_value = "text")]
    log_format: LogFormat,
}

/// The log goes to stderr, one event a line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Json,
    Text,
}

/// Why the program fails.
#[derive(Debug, thiserror::Error)]
enum ProgramError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("no gateway answers at {}", path.display())]
    Health { path: PathBuf, source: io::Error },
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
    // First of all, while there is one thread: it takes over inherited sockets and
    // changes the environment.
    let inherited = Inherited::from_env();
    match run(&Args::parse(), inherited) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => print_failure(&failure),
    }
}

#[expect(clippy::print_stdout, reason = "`--check` answers on stdout")]
fn run(args: &Args, inherited: Inherited) -> Result<(), ProgramError> {
    log_to_stderr(args)?;
    let mut config = config::load_with(&args.config, &args.given)?;
    config.observe |= args.observe;
    config.workers = processors();
    if args.check {
        println!("{}", check(&config)?);
        return Ok(());
    }
    // The first of the workers; the server starts the others.
    let runtime =
        Builder::new_current_thread().enable_all().build().map_err(ProgramError::Runtime)?;
    if args.health {
        return runtime.block_on(health(&config));
    }
    runtime.block_on(serve(config, inherited, args))
}

/// For health checks of container engines: the image has no shell to ask with.
async fn health(config: &Config) -> Result<(), ProgramError> {
    let asked = time::timeout(HEALTH_TIMEOUT, control::status(&config.control)).await;
    let answer =
        asked.map_err(|_| ProgramError::NotReady { why: "it does not answer".to_owned() })?;
    let status =
        answer.map_err(|source| ProgramError::Health { path: config.control.clone(), source })?;
    if status.ready {
        return Ok(());
    }
    let why = status.audit.why_not.unwrap_or_else(|| "it is draining".to_owned());
    Err(ProgramError::NotReady { why })
}

async fn serve(config: Config, inherited: Inherited, args: &Args) -> Result<(), ProgramError> {
    let mut stdin_closed = pin!(stdin_closed(args.lifeline));
    let mut deadline_reached = pin!(deadline_reached(args.until));
    let mut signals = OsSignals::listen().map_err(ProgramError::Signals)?;
    let server = Server::start(config, inherited).await?;
    for listening in server.listening() {
        info!(way = %listening.way, address = %listening.address, "listening");
    }
    info!("ready");
    loop {
        tokio::select! {
            signal = signals.next() => match signal {
                OperatorSignal::Reload => server.reload().await,
                OperatorSignal::Stop => break,
            },
            () = server.asked_to_drain() => break,
            () = &mut stdin_closed => break,
            () = &mut deadline_reached => {
                info!("the time given by --until has come");
                break;
            }
        }
    }
    match server.drain().await {
        Drained::All => info!("stopped"),
        Drained::Cut { connections } => info!(connections, "stopped; these connections were cut"),
    }
    Ok(())
}

/// Done when standard input is closed, if `--lifeline` asks for that. What is written
/// there is ignored.
async fn stdin_closed(lifeline: bool) {
    if !lifeline {
        return pending().await;
    }
    let (ended, end) = oneshot::channel();
    // A blocking read cannot be cancelled, so it has a thread outside of the runtime.
    thread::spawn(move || {
        drop(io::copy(&mut io::stdin().lock(), &mut io::sink()));
        ended.send(()).ok();
    });
    end.await.ok();
}

/// Done at the Unix time `until`. The clock is read again and again, because a sleep
/// does not count the time in which the machine was suspended.
async fn deadline_reached(until: Option<u64>) {
    let Some(until) = until else { return pending().await };
    let until = UNIX_EPOCH.checked_add(Duration::from_secs(until));
    // A time that overflows never comes.
    let Some(until) = until else { return pending().await };
    while let Ok(left) = until.duration_since(SystemTime::now()) {
        time::sleep(left.min(CLOCK_CHECK_INTERVAL).max(MIN_SLEEP)).await;
    }
}

const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(10);
const MIN_SLEEP: Duration = Duration::from_millis(1);

fn log_to_stderr(args: &Args) -> Result<(), ProgramError> {
    let filter: Targets =
        args.log.parse().map_err(|why| ProgramError::Log { written: args.log.clone(), why })?;
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

/// Prints a failure and its causes. The exit code is 2 if the operator's files are
/// wrong, else 1.
#[expect(clippy::print_stderr, reason = "the log may be what failed")]
fn print_failure(failure: &ProgramError) -> ExitCode {
    eprintln!("sluice-gateway: {failure}");
    let mut cause = failure.source();
    while let Some(err) = cause {
        eprintln!("  because: {err}");
        cause = err.source();
    }
    match failure {
        ProgramError::Config(_)
        | ProgramError::Log { .. }
        | ProgramError::Start(StartError::Policy(_)) => ExitCode::from(2),
        ProgramError::Health { .. }
        | ProgramError::NotReady { .. }
        | ProgramError::Runtime(_)
        | ProgramError::Signals(_)
        | ProgramError::Start(_) => ExitCode::FAILURE,
    }
}

/// A gateway that takes longer to answer is not healthy.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(3);
