//! One backend, looked at from inside.

use std::net::SocketAddr;

use anyhow::bail;
use engine::backend::{Abilities, Backend, Enforcement};
use engine::isolation::Finding;
use engine::plan::RunId;
use engine::spec::BackendKind;
use inside::probe::attack::{AttackOutcome, Attempt, Targets, own_addresses};
use inside::probe::tools::Row;
use policies::Attachment;
use serde::Serialize;
use tokio::task;

use super::advice;
use super::machine::Fact;
use crate::self_invoke::{SelfInvocation, probe};

/// What was found out about one backend.
#[derive(Debug, Serialize)]
pub(super) struct Examined {
    pub(super) backend: &'static str,
    pub(super) present: bool,
    pub(super) healthy: bool,
    /// Why it is not here, or why it could not be looked at.
    pub(super) why: Option<String>,
    pub(super) advice: Option<String>,
    pub(super) facts: Vec<Fact>,
    pub(super) inside: Option<Sandboxed>,
}

/// What was told from inside.
#[derive(Debug, Serialize)]
pub(super) struct Sandboxed {
    pub(super) image: String,
    pub(super) isolation: Vec<Finding>,
    pub(super) leaks: Vec<Attempt>,
    pub(super) tools: Vec<Row>,
}

impl Examined {
    pub(super) fn absent(kind: BackendKind, why: String) -> Self {
        Self {
            backend: kind.name(),
            present: false,
            healthy: false,
            why: Some(why),
            advice: advice::to_get(kind).map(str::to_owned),
            facts: Vec::new(),
            inside: None,
        }
    }
}

/// Starts a sandbox and asks around in it.
pub(super) async fn examine(backend: &dyn Backend, image: Option<String>) -> Examined {
    let abilities = backend.abilities();
    let facts = limits(&abilities);
    let usual = abilities.image.to_owned();
    let looked = look_inside(backend, image.clone()).await;
    let (inside, why) = match looked {
        Ok(mut inside) => {
            inside.image = image.unwrap_or(usual);
            (Some(inside), None)
        }
        Err(err) => (None, Some(format!("{err:#}"))),
    };
    let healthy = inside.as_ref().is_some_and(Sandboxed::is_healthy);
    Examined { backend: backend.name(), present: true, healthy, why, advice: None, facts, inside }
}

impl Sandboxed {
    fn is_healthy(&self) -> bool {
        !self.isolation.is_empty()
            && self.isolation.iter().all(|finding| finding.holds)
            && self.leaks.len() == LEAKS.len()
            && self.leaks.iter().all(|attempt| attempt.result != AttackOutcome::Broken)
            && !self.tools.is_empty()
            && self.tools.iter().all(|row| row.works)
    }
}

/// What the backend can promise, in its own words.
fn limits(abilities: &Abilities) -> Vec<Fact> {
    let limit = |what, ability: &Enforcement| match ability {
        Enforcement::Enforced => Fact { what, found: "enforced".to_owned(), advice: None },
        Enforcement::Unavailable { why } => Fact {
            what,
            found: "NOT enforced here".to_owned(),
            advice: Some(format!("{why}; a policy that sets this limit is refused")),
        },
        Enforcement::Watched { why } => Fact {
            what,
            found: "watched, not enforced: measured from outside, and ended when it is too much"
                .to_owned(),
            advice: Some(format!("{why}; a policy that sets this limit is refused")),
        },
    };
    let share = |what, ability: &Enforcement| match ability {
        Enforcement::Enforced => Fact { what, found: "its own share".to_owned(), advice: None },
        Enforcement::Unavailable { why } | Enforcement::Watched { why } => {
            Fact { what, found: format!("NOT its own: {why}"), advice: None }
        }
    };
    let attachment = match abilities.usual_attachment() {
        Attachment::Sockets => "doors alone: no network, the gateway's sockets are opened in there",
        Attachment::Relay => "doors alone: no network, its first process relays them",
        Attachment::Network => "an internal network with its gateway on it",
    };
    let attachment = match &abilities.no_sockets {
        None => attachment.to_owned(),
        Some(why) => format!("{attachment}; no doors, because {why}"),
    };
    vec![
        Fact { what: "a sandbox's way to its gateway", found: attachment, advice: None },
        limit("limit of memory", &abilities.memory),
        limit("limit of processes", &abilities.pids),
        limit("limit of processors", &abilities.cpus),
        share("instances of inotify", &abilities.inotify),
        share("pipes, epoll, descriptors", &abilities.pipes),
        share("terminals", &abilities.terminals),
    ]
}

/// The checks for names that leave.
const LEAKS: [&str; 3] = ["leak-by-name", "names-elsewhere", "names-over-tls"];
const HOST: &str = "tools.doctor.test";

async fn look_inside(backend: &dyn Backend, image: Option<String>) -> anyhow::Result<Sandboxed> {
    let invocation = SelfInvocation::new("doctor", backend.name(), image)?;
    let standin = invocation.stand_in(backend, HOST).await?;
    let text = format!("version: 1\nname: doctor\nnet: {{enabled: true, allow: [{HOST}]}}\n");
    let policy = invocation.write("policy.yaml", &text)?;
    let mut flags = invocation.flags(&policy, HOST, &standin)?;
    flags.extend(["--timeout", "4m", "--mode", "none"].map(str::to_owned));
    let token = format!("doctor-{}", RunId::now());
    let on_each = own_addresses().into_iter().map(|address| SocketAddr::new(address, 53));
    let targets = Targets {
        host_udp: on_each.collect(),
        only: LEAKS.map(str::to_owned).to_vec(),
        token: token.clone(),
        ..Targets::default()
    };
    let tools = ["tools".to_owned(), format!("https://{HOST}"), token];
    let attack = [vec!["attack".to_owned()], targets.words()].concat();
    task::spawn_blocking(move || {
        let words: Vec<&str> = tools.iter().map(String::as_str).collect();
        let ran = invocation.run(&flags, &probe(&words))?;
        let isolation: Vec<Finding> = ran
            .record
            .get("isolation")
            .and_then(|found| serde_json::from_value(found.clone()).ok())
            .unwrap_or_default();
        if isolation.is_empty() {
            bail!("no sandbox could be started: {}", ran.why());
        }
        let words: Vec<&str> = attack.iter().map(String::as_str).collect();
        let asked = invocation.run(&flags, &probe(&words))?;
        let image = String::new();
        let mut tools: Vec<Row> = ran.lines();
        tools.sort_by(|a, b| (&a.tool, b.way).cmp(&(&b.tool, a.way)));
        Ok(Sandboxed { image, isolation, leaks: asked.lines(), tools })
    })
    .await?
}
