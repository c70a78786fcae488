//! The engine as a library: its examples do what they say, without `sluice`.

use std::process::Command;
use std::time::Duration;

use engine::backend::{self, Backend, Chunk};
use engine::detached::{self, Handle};
use engine::environment::Environment;
use engine::evidence::RunFolder;
use engine::outcome::Outcome;
use engine::plan::{Machine, RunId, plan};
use engine::record::Record;
use engine::resolve::RunRequest;
use engine::spec::BackendKind;
use engine::spooled::end_of_run;
use engine::state_folder;
use engine::supervise::{Caller, OutputSink};
use tests::deadline::{CommandDeadline as _, until, within};
use tokio::sync::mpsc;

use crate::programs;

fn example(program: &str) -> String {
    let programs = programs();
    let output = Command::new(program)
        .env("SLUICE_INIT_PROGRAM", programs.init)
        .env("SLUICE_GATEWAY_PROGRAM", programs.gateway)
        .env("SLUICE_LAUNCH_PROGRAM", programs.launch)
        .output_in_time()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn two_runs_go_on_at_once_in_one_process_and_one_is_cancelled() {
    let printed = example(env!("CARGO_BIN_EXE_two-at-once-under-test"));
    assert_eq!(
        printed,
        "Exited { code: 0 } printed \"quick\\n\"\n\
         Cancelled { signal: 15 } printed \"slow\\n\"\n"
    );
}

#[test]
fn a_run_whose_starter_was_killed_is_attached_to_whole_and_sealed() {
    let printed = example(env!("CARGO_BIN_EXE_detached-under-test"));
    let mut lines = printed.lines();
    assert_eq!(lines.next(), Some("the starter is dead"), "{printed}");
    for number in 1..=5 {
        let line = lines.next().unwrap_or_default();
        assert!(line.ends_with(&format!("ms  {number}")), "{printed}");
    }
    assert_eq!(lines.next(), Some("Some(Exited { code: 7 }), exit code 7"), "{printed}");
    assert_eq!(lines.next(), Some("sealed and verified: true"), "{printed}");
    // The transcript: its header, five pieces, the exit.
    let events: Vec<&str> = lines.skip(1).filter_map(|line| line.split('"').nth(3)).collect();
    assert_eq!(events, ["1\\n", "2\\n", "3\\n", "4\\n", "5\\n", "7"], "{printed}");
}

/// A home of its own, in which runs are started and left.
struct Home {
    folder: tempfile::TempDir,
    environment: Environment,
    backend: Box<dyn Backend>,
}

impl Home {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (programs, here) = (programs(), folder.path().to_str().unwrap().to_owned());
        let environment = Environment::new([
            ("SLUICE_INIT_PROGRAM", programs.init),
            ("SLUICE_GATEWAY_PROGRAM", programs.gateway),
            ("SLUICE_LAUNCH_PROGRAM", programs.launch),
            ("XDG_RUNTIME_DIR", &here),
            ("XDG_STATE_HOME", &here),
        ]);
        let backend = backend::open(BackendKind::Namespaces, &environment).await.unwrap().backend;
        Self { folder, environment, backend }
    }

    async fn start(&self, policy: &str, words: &[&str]) -> (RunId, anyhow::Result<Handle>) {
        let project = self.folder.path().join("project");
        std::fs::create_dir_all(&project).unwrap();
        let request = RunRequest {
            policy: format!("version: 1\n{policy}"),
            command: words.iter().copied().map(str::to_owned).collect(),
            project: Some(project),
            backend: BackendKind::Namespaces,
            image: None,
        };
        let resolved = request.resolve(&self.environment).unwrap();
        let (request, policy) = (&resolved.request, &resolved.policy);
        let (run, abilities) = (RunId::now(), self.backend.abilities());
        let plan = plan(run.clone(), request, policy, &Machine::this(), &abilities).unwrap();
        (run, detached::start(plan, &resolved, &*self.backend, &mut |_| {}).await)
    }

    /// Attaches until it has ended, and finishes it; the record.
    async fn finish(&self, handle: &Handle, attach: bool) -> Record {
        if attach {
            let (_nobody, mut events) = mpsc::channel(1);
            let caller = Caller { events: &mut events, sink: &mut Nowhere, recorder: None };
            within("its end", detached::attach(handle, 0, caller)).await.unwrap();
        }
        detached::finish(handle, &*self.backend).await.unwrap().record.unwrap()
    }

    /// Waits until it has ended, without attaching to it.
    async fn ended(&self, handle: &Handle) {
        let evidence = self.evidence(&handle.run);
        until("its end", move || end_of_run(&evidence)).await;
    }

    fn evidence(&self, run: &RunId) -> RunFolder {
        let state = self.environment.state().unwrap();
        RunFolder::open(&state_folder::runs(&state), run.as_str()).unwrap()
    }
}

struct Nowhere;

#[async_trait::async_trait]
impl OutputSink for Nowhere {
    async fn printed(&mut self, _: &Chunk, _: Duration) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_command_that_cannot_be_started_and_left_is_closed_with_its_reason() {
    let home = Home::new().await;
    let (run, started) = home.start("", &["/no/such/program"]).await;
    let why = started.unwrap_err().to_string();
    assert!(why.contains("/no/such/program"), "{why}");
    let evidence = home.evidence(&run);
    let record: Record = evidence.read_run().unwrap();
    assert_eq!(record.outcome, Some(Outcome::Exited { code: 127 }));
    assert!(std::fs::read_to_string(evidence.transcript()).unwrap().contains(&why));
}

#[tokio::test]
async fn a_run_that_was_left_fails_without_its_gateway_and_ends_when_somebody_sees_it() {
    let home = Home::new().await;
    let policy = "proc: {timeout: 1m}\nnet: {enabled: true, allow: [docs.example.com]}\n";
    for attach in [true, false] {
        let (_, started) = home.start(policy, &["sleep", if attach { "50" } else { "1" }]).await;
        let handle = started.unwrap();
        let remembered = std::fs::read(handle.folder.join("gateway.process")).unwrap();
        let remembered: serde_json::Value = serde_json::from_slice(&remembered).unwrap();
        let gateway = remembered["pid"].to_string();
        assert!(Command::new("kill").args(["-9", &gateway]).status().unwrap().success());
        if !attach {
            home.ended(&handle).await;
        }
        let record = home.finish(&handle, attach).await;
        let outcome = format!("{:?}", record.outcome);
        assert!(outcome.contains("gateway died"), "{outcome}");
    }
}

#[tokio::test]
async fn a_run_that_was_left_is_judged_by_what_it_wrote() {
    let home = Home::new().await;
    let policy = "proc: {timeout: 1m, disk: 1MiB}\n";
    let (_, started) = home.start(policy, &["sh", "-c", "head -c 3000000 /dev/zero >a"]).await;
    let handle = started.unwrap();
    home.ended(&handle).await;
    let record = home.finish(&handle, false).await;
    assert_eq!(record.outcome.as_ref().map(Outcome::kind), Some("disk"), "{:?}", record.outcome);
}
