//! `sluice selftest`: attacks this machine's own sandboxes, and keeps score.
//!
//! Real sandboxes are started as `sluice run` starts them. Inside one of them the
//! attack program ([`inside::probe::attack`]) tries what escapes are made of; on the host
//! canaries listen for whoever gets out; a second sandbox waits for visitors.
//! Then come the bombs, each in a sandbox of its own, and each has to end with
//! the reason that it was ended for.
//!
//! **Invariant:** silence is no success: an attack that was not heard of counts
//! as broken, and so does a canary that could not have heard.

mod bombs;
mod canaries;
mod neighbour;
mod scorecard;
mod witness;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::bail;
use clap::Args;
use engine::backend::{Abilities, Backend, Enforcement, UserOf};
use engine::plan::RunId;
use inside::probe::attack::{self, AttackOutcome, AttackVerdict, Attempt, Targets, pools};
use standin::Standin;
use tokio::task;

use crate::caller;
use crate::console::{Console, Format};
use crate::exit::{Exit, Failure};
use crate::request::BackendArgs;
use crate::self_invoke::{Ran, SelfInvocation, probe};
use canaries::{Canaries, own_addresses};
use neighbour::Neighbour;
pub use scorecard::Scorecard;
use witness::Witness;

/// Attack this machine's sandboxes from inside, and report the score.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 nothing is broken, 1 something is, or there is no sandbox.\n\
                  Attempts that were refused or could not be made are counted separately.\n\
                  `-o junit` writes a report for CI."
)]
pub struct Selftest {
    #[command(flatten)]
    on: BackendArgs,

    /// Show every attempt, not only the failed ones.
    #[arg(long, env = "SLUICE_SELFTEST_ALL")]
    all: bool,
}

/// Runs the whole test; `junit` instead of the usual forms.
pub fn run(asked: &Selftest, junit: bool, console: &mut Console) -> Result<Exit, Failure> {
    let runtime = caller::runtime()?;
    let card = runtime.block_on(async {
        let (backend, image) = asked.on.open(console).await?;
        let card = score(&*backend, image, &mut |line| console.say(line)).await?;
        Ok::<_, Failure>(card)
    });
    runtime.shutdown_background();
    let card = card?;
    match (junit, console.format) {
        (true, _) => console.raw(card.junit().as_bytes())?,
        (false, Format::Table) => card.table(console, asked.all)?,
        (false, Format::Json | Format::Jsonl) => console.json(&card)?,
    }
    Ok(if card.broken == 0 { Exit::Success } else { Exit::Failed })
}

/// Attacks sandboxes of `backend`.
async fn score(
    backend: &dyn Backend,
    image: Option<String>,
    say: &mut dyn FnMut(&str),
) -> anyhow::Result<Scorecard> {
    let begun = Instant::now();
    let name = backend.name();
    let invocation = Arc::new(SelfInvocation::new("selftest", name, image)?);
    let token = token();
    let canaries = Canaries::start(&token, invocation.write("secret", &token)?)?;
    let mut attempts = vec![awake(&canaries)];

    let standin = invocation.stand_in(backend, ALLOWED).await?;
    let policy = invocation.write("policy.yaml", &policy())?;
    let mut flags = invocation.flags(&policy, ALLOWED, &standin)?;
    flags.extend(["--timeout", "2m"].map(str::to_owned));
    say(&format!("{name}: starting a sandbox, and another to be its neighbour"));
    let neighbour = Neighbour::start(&invocation, &policy.display().to_string(), &token)?;
    let targets = targets(&canaries, &standin, &neighbour, &token);
    say(&format!("{name}: {} attacks from inside", attack::all().count()));
    let words: Vec<String> = [vec!["attack".to_owned()], targets.words()].concat();
    let witness = Witness::start();
    let ran = {
        let invocation = Arc::clone(&invocation);
        let command: Vec<&str> = words.iter().map(String::as_str).collect();
        let command = probe(&command);
        task::spawn_blocking(move || invocation.run(&flags, &command)).await??
    };
    if ran.code != 0 {
        bail!("the attacks could not be run (code {}): {}", ran.code, ran.why());
    }
    let abilities = backend.abilities();
    let sandbox = ran.record.pointer("/plan/host_user/uid").and_then(serde_json::Value::as_u64);
    let tried = told(&ran).into_iter().chain(witness.found(sandbox)).chain(neighbour.missed());
    attempts.extend(tried.map(|attempt| promised(attempt, &abilities)));
    attempts.extend(seen_outside(&canaries, &standin, &neighbour, &ran, &token));

    say(&format!("{name}: {} bombs, each in a sandbox of its own", bombs::EXPECTED.len()));
    attempts.extend(bombs::all(&invocation, &abilities).await?);
    attempts.push(neighbour.lived());
    drop(neighbour);
    attempts.push(left_over(backend, &invocation.runs()).await);
    Ok(Scorecard::new(name, begun.elapsed().as_secs(), attempts))
}

/// A word that stands nowhere else.
fn token() -> String {
    format!("canary-{}-{}", RunId::now(), std::process::id())
}

fn policy() -> String {
    format!("version: 1\nname: selftest\nnet: {{enabled: true, allow: [{{host: {ALLOWED}}}]}}\n")
}

const ALLOWED: &str = "allowed.selftest.test";

fn targets(canaries: &Canaries, standin: &Standin, neighbour: &Neighbour, token: &str) -> Targets {
    let on_each = |port: u16| -> Vec<SocketAddr> {
        own_addresses().into_iter().map(|address| SocketAddr::new(address, port)).collect()
    };
    let mut host = on_each(canaries.everywhere.port());
    host.extend(standin.addresses());
    Targets {
        token: token.to_owned(),
        allowed: Some(format!("https://{ALLOWED}")),
        host,
        host_udp: on_each(canaries.udp.port()),
        loopback: vec![canaries.loopback],
        others: neighbour.doors(),
        abstract_socket: Some(canaries.abstract_socket.clone()),
        secrets: canaries.files.iter().map(|path| path.display().to_string()).collect(),
        ..Targets::default()
    }
}

/// What the attack program said, and what it should have said something about.
fn told(ran: &Ran) -> Vec<Attempt> {
    let mut attempts: Vec<Attempt> = ran.lines();
    let heard: BTreeSet<String> = attempts.iter().map(|attempt| attempt.name.clone()).collect();
    for attack in attack::all().filter(|attack| !heard.contains(attack.name)) {
        let verdict = AttackVerdict::Broken("nothing was heard of it any more".to_owned());
        attempts.push(Attempt::new(attack.id, attack.name, attack.tried, verdict));
    }
    attempts
}

/// What a backend cannot give and says so is neither held nor broken there; and
/// what a sandbox takes of a user that nobody else is, it takes from nobody.
fn promised(attempt: Attempt, abilities: &Abilities) -> Attempt {
    let pool = attempt.name.strip_suffix("-outside").or(attempt.name.strip_suffix("-beside"));
    let outside = pool.is_some();
    let of_its_user = match pool.unwrap_or(&attempt.name) {
        pools::INOTIFY | "inotify" => Some(&abilities.inotify),
        pools::PIPES | "pipes" => Some(&abilities.pipes),
        pools::TERMINALS => None,
        _ => return attempt,
    };
    if attempt.result != AttackOutcome::Broken {
        return attempt;
    }
    match of_its_user.unwrap_or(&abilities.terminals) {
        Enforcement::Unavailable { why } | Enforcement::Watched { why } => {
            let detail = format!("not promised here, and so it is: {}; {why}", attempt.detail);
            Attempt { result: AttackOutcome::Untried, detail, ..attempt }
        }
        Enforcement::Enforced
            if of_its_user.is_some() && !outside && abilities.user != UserOf::Caller =>
        {
            let detail = format!("{}, and nobody else is that user", attempt.detail);
            Attempt { result: AttackOutcome::Held, detail, ..attempt }
        }
        Enforcement::Enforced => attempt,
    }
}

fn awake(canaries: &Canaries) -> Attempt {
    let verdict = match canaries.are_awake() {
        true => AttackVerdict::Held("they heard a visit of our own".to_owned()),
        false => AttackVerdict::Broken("they would not hear anybody".to_owned()),
    };
    Attempt::new("C0", "canaries", "the canaries on the host can hear", verdict)
}

/// The same events, from the other side of the wall.
fn seen_outside(
    canaries: &Canaries,
    standin: &Standin,
    neighbour: &Neighbour,
    ran: &Ran,
    token: &str,
) -> Vec<Attempt> {
    let visits = match canaries.visits() {
        0 => AttackVerdict::Held("nobody came".to_owned()),
        count => {
            AttackVerdict::Broken(format!("{count} visits: {}", canaries.visitors().join("; ")))
        }
    };
    let asked = standin.requests();
    let strange: Vec<_> = asked
        .iter()
        .filter(|seen| seen.host.as_deref() != Some(ALLOWED) || !seen.path.contains(token))
        .map(|seen| format!("{:?} {}", seen.host, seen.path))
        .collect();
    let upstream = match (strange.as_slice(), asked.len()) {
        ([], 2) => AttackVerdict::Held("two requests, both of them allowed".to_owned()),
        ([], count) => {
            AttackVerdict::Broken(format!("{count} requests came, and two were allowed"))
        }
        (strange, _) => AttackVerdict::Broken(strange.join("; ")),
    };
    vec![
        Attempt::new("D8", "canaries-outside", "what the host's own services saw", visits),
        Attempt::new("D11", "upstream-outside", "what the allowed host saw", upstream),
        neighbour.visited(),
        recorded(ran),
    ]
}

/// A refusal that nobody can read about later is half a refusal.
fn recorded(ran: &Ran) -> Attempt {
    let wanted = ["evil.sluice-attack.example", "203.0.113.7", "169.254.169.254", ALLOWED];
    let log = ran.evidence.as_ref().map(|folder| folder.join("audit.jsonl"));
    let text = log.and_then(|path| std::fs::read_to_string(path).ok());
    let verdict = match text {
        None => AttackVerdict::Broken("the run has no audit log".to_owned()),
        Some(text) => {
            let missing: Vec<_> = wanted.into_iter().filter(|host| !text.contains(host)).collect();
            match missing.is_empty() {
                true => AttackVerdict::Held(format!("{} records", text.lines().count())),
                false => AttackVerdict::Broken(format!("no record names {}", missing.join(", "))),
            }
        }
    };
    Attempt::new("D11", "audit", "the audit log has what was refused", verdict)
}

/// What is still there of these runs. Others of this user may be starting, running
/// and crashing at the same time.
async fn left_over(backend: &dyn Backend, runs: &[RunId]) -> Attempt {
    let verdict = match backend.labelled().await {
        Err(err) => AttackVerdict::Untried(err.to_string()),
        Ok(_) if runs.is_empty() => AttackVerdict::Broken("no run is known".to_owned()),
        Ok(found) => {
            let left: Vec<_> = found
                .iter()
                .filter(|found| runs.contains(&found.run))
                .map(|found| found.resource.to_string())
                .collect();
            match left.is_empty() {
                true => AttackVerdict::Held(format!("nothing, of {} runs", runs.len())),
                false => AttackVerdict::Broken(left.join(", ")),
            }
        }
    };
    Attempt::new("H8", "left-over", "what these runs left behind", verdict)
}

impl Scorecard {
    /// Whether one attempt, by its name, came out as `result`.
    pub fn has(&self, name: &str, result: AttackOutcome) -> bool {
        self.attempts.iter().any(|attempt| attempt.name == name && attempt.result == result)
    }
}
