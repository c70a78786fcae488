//! `pbench load`: one bounded workload; what was measured is one JSON object on stdout.
//!
//! [`run`] is the story: counters before, the workload, counters after. Each workload
//! is a file of this folder; [`Tally`] is what it counts into, and [`Window`] what the
//! processes took meanwhile.

mod args;
mod bulk;
mod deny;
mod events;
mod get;
mod get_h2;
mod idle;
mod new_connections;
mod origin_counters;
mod tally;
mod timed;
mod watched;
mod window;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::{Map, Value, json};

pub(crate) use self::args::Args;
use self::args::Workload;
use self::tally::Tally;
use self::watched::{PeakMemory, WatchedProcesses};
use crate::calibrate::calibration_us;
use crate::processes;
use crate::tls::ClientTls;
use crate::tunnel::LoadRoute;

/// What every workload is given.
struct Load {
    args: Args,
    route: LoadRoute,
    tally: Tally,
    watched: WatchedProcesses,
}

/// What a workload has to say besides what is in the tally.
type Figures = Map<String, Value>;

/// Runs the workload that `args` name, prints the result, and ends the process: what it
/// still holds open ends with it.
pub(crate) async fn run(args: Args) -> Result<()> {
    let tls = ClientTls {
        roots: &args.ca,
        alpn: if args.h2 { "h2" } else { "http/1.1" },
        resume: args.resume,
        post_quantum: args.pq,
    };
    let load = Arc::new(Load {
        route: LoadRoute { proxy: args.proxy, origin: args.origin, tls: tls.config()? },
        tally: Tally::default(),
        watched: WatchedProcesses::parse(&args.watch)?,
        args,
    });
    let result = measure(&load).await?;
    #[expect(clippy::print_stdout, reason = "the result of the program")]
    {
        println!("{}", Value::Object(result));
    }
    std::process::exit(0)
}

async fn measure(load: &Arc<Load>) -> Result<Figures> {
    let peak = PeakMemory::sample(&load.watched);
    let calibration_before = calibration_us()?;
    let origin_before = origin_counters::read(&load.args.admin).await?;
    let memory_before = load.watched.each(processes::usage);

    let worked = match load.args.workload {
        Workload::Conn | Workload::Deny | Workload::Get => timed::run(load).await,
        Workload::Download | Workload::Upload => bulk::run(load).await,
        Workload::Idle => idle::run(load).await,
        Workload::Sse => events::run(load).await,
    };
    let mut figures = worked.unwrap_or_else(|err| {
        load.tally.error(&err);
        Figures::new()
    });

    figures.insert("kind".into(), json!(load.args.workload.name()));
    let calibration = (calibration_before + calibration_us()?) / 2.0;
    figures.insert("calibration_us".into(), json!(calibration));
    load.tally.stop();
    let origin_after = origin_counters::read(&load.args.admin).await?;
    figures.insert("origin_stats".into(), origin_counters::since(&origin_before, &origin_after));
    figures.insert("mem".into(), load.watched.memory(&memory_before, &peak.stop()));
    figures.extend(load.tally.json());
    Ok(figures)
}

impl Load {
    /// The deadline of a single exchange.
    async fn within<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let seconds = self.args.timeout;
        tokio::time::timeout(Duration::from_secs_f64(seconds), work)
            .await
            .unwrap_or_else(|_| Err(anyhow!("timed out after {seconds} s")))
    }

    /// What is asked for in downloads.
    fn path(&self) -> String {
        format!("/bytes/{}", self.args.bytes)
    }
}
