//! `sluice demo`: what a sandbox is good for, in a minute and without a network.
//!
//! Everything it prints was measured while it ran: what came of each step is told
//! from inside, and compared with what should have come of it. A step that ended
//! otherwise is said so, and the demonstration has failed.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, bail};
use clap::Args;
use engine::backend::{Backend, Enforcement};
use files::printable::{Printable, PrintableLine};
use inside::probe::walk::{Name, StepResult, WalkStep};
use serde::Serialize;
use serde_json::{Value, json};
use standin::Standin;
use tokio::task;

use crate::caller;
use crate::console::{Console, Format, Tone};
use crate::exit::{Exit, Failure};
use crate::request::BackendArgs;
use crate::self_invoke::{Ran, SelfInvocation, probe};

/// See a sandbox at work: one minute, offline, and none of your files are touched.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 everything went as it should, 1 something did not.")]
pub struct Demo {
    #[command(flatten)]
    on: BackendArgs,
}

const ALLOWED: &str = "api.demo.test";
const REFUSED: &str = "attacker.demo.test";

const POLICY: &str = "version: 1
name: demo
net:
  enabled: true
  allow:
    - {host: api.demo.test, methods: [GET], paths: [/hello]}
";

pub fn run(asked: &Demo, console: &mut Console) -> Result<Exit, Failure> {
    let runtime = caller::runtime()?;
    let good = runtime.block_on(async {
        let (backend, image) = asked.on.open(console).await?;
        let good = Demonstration { console, checks: Vec::new() }.play(&*backend, image).await?;
        Ok::<_, Failure>(good)
    });
    runtime.shutdown_background();
    Ok(if good? { Exit::Success } else { Exit::Failed })
}

struct Demonstration<'c> {
    console: &'c mut Console,
    checks: Vec<DemoCheck>,
}

/// Something that is promised, and whether it was so.
#[derive(Debug, Serialize)]
struct DemoCheck {
    what: String,
    held: bool,
}

impl Demonstration<'_> {
    async fn play(mut self, backend: &dyn Backend, image: Option<String>) -> anyhow::Result<bool> {
        let begun = Instant::now();
        let invocation = SelfInvocation::new("demo", backend.name(), image)?.keeping_evidence()?;
        let invocation = Arc::new(invocation);
        let notes = invocation.project().join("notes.txt");
        fs::write(&notes, BEFORE)?;
        belongs_to_somebody(&[&invocation.project(), &notes])?;
        let secret = invocation.write("diary.txt", "something private\n")?.display().to_string();
        let policy = invocation.write("demo.policy.yaml", POLICY)?;
        let standin = invocation.stand_in(backend, ALLOWED).await?;

        self.title(&format!("A sandbox on {}, and a policy with one rule", backend.name()))?;
        self.quote(POLICY)?;
        let ran = walk(&invocation, &policy, &standin, &secret).await?;
        let steps: Vec<WalkStep> = ran.lines();
        if ran.code != 0 || steps.is_empty() {
            bail!("the sandbox did not run (code {}): {}", ran.code, ran.why());
        }
        self.title("What the agent in it did, and what came of it")?;
        for step in &steps {
            self.step(step)?;
        }
        self.check(steps.len() == STEPS, &format!("{} steps were taken", steps.len()))?;
        let asked = standin.requests().len();
        self.check(
            asked == 1,
            &format!("{ALLOWED} was asked {asked} time(s), for what was allowed"),
        )?;

        self.title("A program that makes programs, without end")?;
        let bomb = bomb(&invocation, backend).await?;
        self.check(bomb.0, &bomb.1)?;

        let run = ran.record.get("run").and_then(Value::as_str).context("the run has no name")?;
        self.title("What was recorded, where the sandbox cannot reach it")?;
        let shown = self.invocation(&invocation, &["audit", "search", "--run", run])?;
        self.check(shown.contains(REFUSED), "the refusals are in it")?;
        let sealed = self.invocation(&invocation, &["audit", "verify", "--run", run])?;
        self.check(!sealed.is_empty(), "the evidence is sealed and whole")?;
        self.title("What it changed")?;
        let diff = self.invocation(&invocation, &["diff", run])?;
        self.check(diff.contains("The agent was here."), "the change is there to be reviewed")?;
        let untouched = fs::read_to_string(&notes)? == BEFORE;
        self.check(
            untouched,
            "the file on your disk is as it was; `sluice apply` would change it",
        )?;

        let good = self.checks.iter().all(|check| check.held);
        if self.console.format != Format::Table {
            let (backend, checks) = (backend.name(), &self.checks);
            let seconds = begun.elapsed().as_secs_f64();
            let report = json!({
                "backend": backend, "run": run, "held": good, "seconds": seconds, "checks": checks,
            });
            self.console.json(&report).map_err(told)?;
            return Ok(good);
        }
        self.line("")?;
        let verdict = if good { "everything went as it should" } else { "not everything held" };
        let tone = if good { Tone::Good } else { Tone::Bad };
        let verdict = self.console.toned(tone, verdict);
        let seconds = begun.elapsed().as_secs();
        self.line(&format!("{verdict}, in {seconds} s; the evidence is that of run {run}"))?;
        self.line("try it with a command of yours: sluice run -- COMMAND")?;
        Ok(good)
    }

    /// For people; machines get the checks at the end.
    fn line(&mut self, line: &str) -> anyhow::Result<()> {
        if self.console.format != Format::Table {
            return Ok(());
        }
        self.console.line(line).and_then(|()| self.console.flush()).map_err(told)
    }

    fn title(&mut self, title: &str) -> anyhow::Result<()> {
        self.line("")?;
        self.line(&format!("== {title}"))
    }

    fn quote(&mut self, text: &str) -> anyhow::Result<()> {
        for line in text.lines() {
            let line = self.console.toned(Tone::Faint, PrintableLine(line));
            self.line(&format!("   {line}"))?;
        }
        Ok(())
    }

    /// One step: what was done, what came of it, and whether that is right.
    fn step(&mut self, step: &WalkStep) -> anyhow::Result<()> {
        let status = step.status.map(|status| format!("{status} ")).unwrap_or_default();
        self.line(&format!("   {}", Printable(&step.did)))?;
        let got = self.console.toned(Tone::Faint, format_args!("{status}{}", Printable(&step.got)));
        self.line(&format!("     {got}"))?;
        self.check(is_as_it_should_be(step), meaning(step))
    }

    fn check(&mut self, holds: bool, what: &str) -> anyhow::Result<()> {
        self.checks.push(DemoCheck { what: what.to_owned(), held: holds });
        let word = match holds {
            true => self.console.toned(Tone::Good, "ok"),
            false => self.console.toned(Tone::Bad, "NOT SO"),
        };
        self.line(&format!("     {word}: {}", Printable(what)))
    }

    /// Another verb, shown as a person would type it, with what it answers.
    fn invocation(
        &mut self,
        invocation: &SelfInvocation,
        words: &[&str],
    ) -> anyhow::Result<String> {
        self.line(&format!("   $ sluice {}", words.join(" ")))?;
        let mut command = invocation.command(words.iter().copied());
        // What is shown stands three blanks further in.
        let columns = self.console.columns().unwrap_or(100).saturating_sub(3);
        let output = command.env("COLUMNS", columns.to_string()).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        self.quote(&text)?;
        if !output.status.success() {
            self.quote(&String::from_utf8_lossy(&output.stderr))?;
            self.check(false, "this command works")?;
        }
        Ok(text)
    }
}

/// Nothing in a sandbox is root, so a project of root's could not be worked on.
fn belongs_to_somebody(paths: &[&Path]) -> anyhow::Result<()> {
    if rustix::process::geteuid().is_root() {
        for path in paths {
            std::os::unix::fs::chown(path, Some(1000), Some(1000))?;
        }
    }
    Ok(())
}

const BEFORE: &str = "Notes of the project.\n";
const STEPS: usize = 8;

fn is_as_it_should_be(step: &WalkStep) -> bool {
    match step.name {
        Name::Allowed => step.status == Some(200),
        Name::Refused | Name::PastTheProxy => {
            step.status == Some(403) && step.code.as_deref() == Some("no_rule")
        }
        Name::RawAddress => step.status.is_none() || step.status == Some(403),
        // The image may have a folder of that name of its own, which its user may not enter.
        Name::HostFile => {
            matches!(step.result, StepResult::Missing | StepResult::PermissionDenied)
        }
        Name::HostProcesses => step.got.parse::<u32>().is_ok_and(|count| count <= 4),
        Name::SystemFile => step.result != StepResult::Done,
        Name::Change => step.result == StepResult::Done,
    }
}

fn meaning(step: &WalkStep) -> &'static str {
    match step.name {
        Name::Allowed => "the policy allows it, and it works",
        Name::Refused => "no rule allows it; the program is told why, and nothing left",
        Name::PastTheProxy => "a program that ignores the proxy gets the same answer",
        Name::RawAddress => "an address without a name leads nowhere",
        Name::HostFile if step.result == StepResult::Missing => "your files are not there",
        Name::HostFile => "your files cannot be read",
        Name::HostProcesses => "nor are your processes",
        Name::SystemFile => "the system around it is read-only",
        Name::Change => "the project can be worked on",
    }
}

async fn walk(
    invocation: &Arc<SelfInvocation>,
    policy: &Path,
    standin: &Standin,
    secret: &str,
) -> anyhow::Result<Ran> {
    let flags = invocation.flags(policy, ALLOWED, standin)?;
    let (allowed, refused) = (format!("https://{ALLOWED}/hello"), format!("https://{REFUSED}/"));
    let command = probe(&["walk", &allowed, &refused, secret]);
    let invocation = Arc::clone(invocation);
    task::spawn_blocking(move || invocation.run(&flags, &command)).await?
}

/// A fork bomb, and whether it ended as it should.
async fn bomb(
    invocation: &Arc<SelfInvocation>,
    backend: &dyn Backend,
) -> anyhow::Result<(bool, String)> {
    let flags = ["--pids", "64", "--mode", "none", "--timeout", "60s"].map(str::to_owned);
    let command = probe(&["attack", "bomb", "fork"]);
    let again = Arc::clone(invocation);
    let ran = task::spawn_blocking(move || again.run(&flags, &command)).await??;
    let refused = ran.record.pointer("/outcome/refused").and_then(Value::as_u64);
    Ok(match (ran.outcome(), backend.abilities().pids) {
        (Some("pids"), _) => {
            let count = refused.unwrap_or_default();
            (true, format!("it was refused {count} more processes and ended; this machine is fine"))
        }
        (_, Enforcement::Unavailable { why } | Enforcement::Watched { why })
            if ran.code == 125 || ran.code == 2 =>
        {
            (true, format!("it was not started at all, since it could not be limited here: {why}"))
        }
        (outcome, _) => {
            let outcome = outcome.unwrap_or("nothing").to_owned();
            (false, format!("it should have ended for want of processes, and ended: {outcome}"))
        }
    })
}

fn told(failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Failed(err) => err,
        other => anyhow::anyhow!("{other}"),
    }
}
