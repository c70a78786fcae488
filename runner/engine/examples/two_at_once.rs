//! Two sandboxes at once in one process, each with its own state and its own place
//! for output. One of them is cancelled.
//!
//! Run it beside the programs: `cargo build && cargo run -p sluice-engine --example
//! two_at_once`.

#![expect(clippy::print_stdout, reason = "an example shows what it saw")]

use std::time::Duration;

use engine::environment::Environment;
use engine::outcome::Outcome;
use engine::plan::{Machine, RunId, plan};
use engine::resolve::RunRequest;
use engine::spec::BackendKind;
use engine::supervise::{CallerEvent, OutputSink};
use engine::{backend, run};
use protocol::init::TerminalSize;
use tokio::sync::mpsc;

/// Collects what a command prints.
#[derive(Default)]
struct Collected(Vec<u8>);

#[async_trait::async_trait]
impl OutputSink for Collected {
    async fn printed(
        &mut self,
        chunk: &engine::backend::Chunk,
        _: Duration,
    ) -> std::io::Result<()> {
        self.0.extend(&chunk.bytes);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (stop, events) = mpsc::channel(1);
    let quick = carry_out("echo quick", mpsc::channel(1).1);
    let slow = carry_out("echo slow; sleep 600", events);
    let cancel = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        stop.send(CallerEvent::Stop(15)).await
    };
    let (quick, slow, cancelled) = tokio::join!(quick, slow, cancel);
    cancelled?;
    for (output, outcome) in [quick?, slow?] {
        println!("{:?} printed {:?}", outcome, String::from_utf8_lossy(&output));
    }
    Ok(())
}

/// Runs a line of shell in a sandbox without a network.
async fn carry_out(
    line: &str,
    events: mpsc::Receiver<CallerEvent>,
) -> anyhow::Result<(Vec<u8>, Outcome)> {
    let state = tempfile::tempdir()?;
    let programs = std::env::current_exe()?.ancestors().nth(2).map(ToOwned::to_owned);
    let own = ["XDG_STATE_HOME", "XDG_RUNTIME_DIR"].map(|name| (name.into(), state.path().into()));
    let named =
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().ends_with("_PROGRAM"));
    let environment = Environment::new(named.chain(own));
    let environment = environment.with_programs(programs.unwrap_or_default());
    let request = RunRequest {
        policy: "version: 1\nproc: {timeout: 1m}\n".to_owned(),
        command: ["sh", "-c", line].map(str::to_owned).to_vec(),
        project: None,
        backend: BackendKind::Namespaces,
        image: None,
    };
    let resolved = request.resolve(&environment)?;
    let backend = backend::open(BackendKind::Namespaces, &environment).await?.backend;
    let (request, policy) = (&resolved.request, &resolved.policy);
    let plan = plan(RunId::now(), request, policy, &Machine::this(), &backend.abilities())?;
    let mut sink = Collected::default();
    let starter = run::Starter {
        events,
        sink: &mut sink,
        input: None,
        size: TerminalSize { columns: 80, rows: 24 },
        say: &mut |_| {},
        announce: |_, _| {},
    };
    let report = run::run(&plan, &resolved, &*backend, starter).await;
    Ok((sink.0, report.ended?.outcome))
}
