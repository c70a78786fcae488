//! A run that outlives whoever started it: the starter is killed, and whoever comes
//! after it attaches, sees everything and closes the evidence.
//!
//! Run it beside the programs: `cargo build && cargo run -p sluice-engine --example
//! detached`.

#![expect(clippy::print_stdout, reason = "an example shows what it saw")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use engine::backend::{self, Chunk};
use engine::detached::{self, Handle};
use engine::environment::Environment;
use engine::evidence::RunFolder;
use engine::resolve::RunRequest;
use engine::spec::BackendKind;
use engine::state_folder;
use engine::supervise::{Caller, OutputSink};
use tokio::sync::mpsc;

/// Prints what the command prints.
struct Passed;

#[async_trait::async_trait]
impl OutputSink for Passed {
    async fn printed(&mut self, chunk: &Chunk, at: Duration) -> std::io::Result<()> {
        print!("{:>4} ms  {}", at.as_millis(), String::from_utf8_lossy(&chunk.bytes));
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if let [_, word, home] = &*env::args().collect::<Vec<_>>() {
        anyhow::ensure!(word == "start", "there is no word `{word}`");
        return start(Path::new(home)).await;
    }
    let home = tempfile::tempdir()?;
    let mut starter = Command::new(env::current_exe()?)
        .arg("start")
        .arg(home.path())
        .stdout(Stdio::null())
        .spawn()?;
    let written = home.path().join("handle.json");
    while !written.exists() {
        anyhow::ensure!(starter.try_wait()?.is_none(), "the starter ended by itself");
        thread::sleep(Duration::from_millis(50));
    }
    // SIGKILL: it can neither say nor undo anything.
    starter.kill()?;
    starter.wait()?;
    println!("the starter is dead");

    let handle: Handle = serde_json::from_slice(&fs::read(written)?)?;
    let environment = surroundings(home.path())?;
    let backend = backend::open(BackendKind::Namespaces, &environment).await?.backend;
    let (_nobody, mut events) = mpsc::channel(1);
    let caller = Caller { events: &mut events, sink: &mut Passed, recorder: None };
    detached::attach(&handle, 0, caller).await?;
    let finished = detached::finish(&handle, &*backend).await?;
    let record = finished.record.expect("the record was written");
    println!("{:?}, exit code {}", record.outcome, record.exit_code);

    let state = environment.state().expect("it was set");
    let evidence = RunFolder::open(&state_folder::runs(&state), handle.run.as_str())?;
    let key = audit::SigningKey::load(&state_folder::key(&state))?;
    let verified = audit::verify(evidence.path(), &[key.public()])?;
    println!("sealed and verified: {}", verified.seal.is_some());
    print!("{}", fs::read_to_string(evidence.transcript())?);
    Ok(())
}

/// Starts a run, writes down its handle, and stays until it is killed.
async fn start(home: &Path) -> anyhow::Result<()> {
    let line = "for number in 1 2 3 4 5; do echo $number; sleep 0.4; done; exit 7";
    let request = RunRequest::new("version: 1\nproc: {timeout: 1m}\n", &["sh", "-c", line]);
    let request = RunRequest { backend: BackendKind::Namespaces, ..request };
    let handle = request.start(&surroundings(home)?).await?;
    let draft = home.join("handle.draft");
    fs::write(&draft, serde_json::to_vec(&handle)?)?;
    fs::rename(&draft, home.join("handle.json"))?;
    std::future::pending().await
}

/// Everything of this example stands in `home`; programs are beside it.
fn surroundings(home: &Path) -> anyhow::Result<Environment> {
    let own = ["XDG_STATE_HOME", "XDG_RUNTIME_DIR"].map(|name| (name.into(), home.into()));
    let programs = env::current_exe()?.ancestors().nth(2).expect("a folder").to_owned();
    Ok(Environment::new(env::vars_os().chain(own)).with_programs(programs))
}
