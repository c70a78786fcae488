//! Two sandboxes at once in one process, each with its own state and its own place
//! for output. One of them is cancelled.
//!
//! Run it beside the programs: `cargo build && cargo run -p sluice-engine --example
//! two_at_once`.

#![expect(clippy::print_stdout, reason = "an example shows what it saw")]

use std::time::Duration;

use engine::backend::Chunk;
use engine::environment::Environment;
use engine::outcome::Outcome;
use engine::resolve::RunRequest;
use engine::spec::BackendKind;
use engine::supervise::{CallerEvent, OutputSink};
use tokio::sync::mpsc;

/// Collects what a command prints, and cancels it then if it is to be.
struct Collected {
    text: Vec<u8>,
    cancel: Option<mpsc::Sender<CallerEvent>>,
}

#[async_trait::async_trait]
impl OutputSink for Collected {
    async fn printed(&mut self, chunk: &Chunk, _: Duration) -> std::io::Result<()> {
        self.text.extend(&chunk.bytes);
        if let Some(cancel) = self.cancel.take() {
            cancel.send(CallerEvent::Stop(15)).await.map_err(std::io::Error::other)?;
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let quick = carry_out("echo quick", false);
    let slow = carry_out("echo slow; sleep 600", true);
    let (quick, slow) = tokio::join!(quick, slow);
    for (output, outcome) in [quick?, slow?] {
        println!("{:?} printed {:?}", outcome, String::from_utf8_lossy(&output));
    }
    Ok(())
}

/// Runs a line of shell in a sandbox without a network.
async fn carry_out(line: &str, is_cancelled: bool) -> anyhow::Result<(Vec<u8>, Outcome)> {
    let state = tempfile::tempdir()?;
    let own = ["XDG_STATE_HOME", "XDG_RUNTIME_DIR"].map(|name| (name.into(), state.path().into()));
    let programs = std::env::current_exe()?.ancestors().nth(2).expect("a folder").to_owned();
    let environment = Environment::new(std::env::vars_os().chain(own)).with_programs(programs);
    let (cancel, events) = mpsc::channel(1);
    let mut sink = Collected { text: Vec::new(), cancel: is_cancelled.then_some(cancel) };
    let request = RunRequest::new("version: 1\nproc: {timeout: 1m}\n", &["sh", "-c", line]);
    let request = RunRequest { backend: BackendKind::Namespaces, ..request };
    let report = request.run(&environment, events, &mut sink).await?;
    Ok((sink.text, report.ended?.outcome))
}
