//! A run that a program asks for: a policy and a command, nothing of a person's
//! configuration, no project of its own unless one is given.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use policies::{NoFiles, ProcLimits, Source, Workspace};
use tokio::sync::mpsc;

use crate::backend::{self, Backend};
use crate::detached::{self, Handle, NO_TERMINAL};
use crate::environment::Environment;
use crate::origin::StartedBy;
use crate::phases::Phases;
use crate::plan::{Machine, Plan, RunId, plan};
use crate::report::RunReport;
use crate::run::{Starter, run};
use crate::spec::{Approval, BackendKind, GatewayPolicy, Request, ResolvedRun, Upstream};
use crate::state_folder;
use crate::supervise::{CallerEvent, OutputSink};
use crate::workspace::owners::{Owners, owners};

/// What a program asks for.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The text of a policy, which extends nothing but presets.
    pub policy: String,
    pub command: Vec<String>,
    /// A directory of the host that appears as the policy says; nothing means none.
    pub project: Option<PathBuf>,
    pub backend: BackendKind,
    /// Nothing means the backend's usual one.
    pub image: Option<String>,
}

impl RunRequest {
    /// A command without a project, wherever sandboxes can be made here.
    pub fn new(policy: &str, command: &[&str]) -> Self {
        Self {
            policy: policy.to_owned(),
            command: command.iter().map(|&word| word.to_owned()).collect(),
            project: None,
            backend: BackendKind::Auto,
            image: None,
        }
    }

    /// Carries it out, from its plan to its sealed evidence.
    pub async fn run(
        self,
        environment: &Environment,
        events: mpsc::Receiver<CallerEvent>,
        sink: &mut dyn OutputSink,
    ) -> anyhow::Result<RunReport> {
        let (resolved, backend, plan) = self.plan(environment).await?;
        let starter = Starter {
            events,
            sink,
            input: None,
            size: NO_TERMINAL,
            say: &mut |_| {},
            announce: |_, _| {},
        };
        Ok(run(&plan, &resolved, &*backend, starter).await)
    }

    /// Starts it and leaves it; it goes on when this process is gone.
    pub async fn start(self, environment: &Environment) -> anyhow::Result<Handle> {
        let (resolved, backend, plan) = self.plan(environment).await?;
        detached::start(plan, &resolved, &*backend, &mut |_| {}).await
    }

    async fn plan(
        self,
        environment: &Environment,
    ) -> anyhow::Result<(ResolvedRun, Box<dyn Backend>, Plan)> {
        let backend = backend::open(self.backend, environment).await?.backend;
        let resolved = self.resolve(environment)?;
        let (request, policy) = (&resolved.request, &resolved.policy);
        let plan = plan(RunId::now(), request, policy, &Machine::this(), &backend.abilities())?;
        Ok((resolved, backend, plan))
    }

    /// Says what is meant: the policy is read and checked, and whoever asks for it is
    /// who `environment` says.
    pub fn resolve(self, environment: &Environment) -> anyhow::Result<ResolvedRun> {
        let state = environment.state().context("neither XDG_STATE_HOME nor HOME is set")?;
        let text: Arc<str> = self.policy.into();
        let name = "the request";
        let policy = policies::read(&Source::new(name, Arc::clone(&text)), &NoFiles)?;
        let mode = self.project.is_none().then_some(Workspace::None);
        let workspace = self.project.unwrap_or_else(|| PathBuf::from("/"));
        let is_shown = mode != Some(Workspace::None);
        let Owners { user, disk: owner, own_users, .. } = owners(&workspace, is_shown, environment);
        let request = Request {
            command: self.command,
            caller: StartedBy::this(environment),
            tty: false,
            no_sandbox: false,
            fail_on_denied: false,
            probe: false,
            terminal: "dumb".to_owned(),
            backend: self.backend,
            attach: None,
            image: self.image,
            workspace,
            mode,
            show: policy.fs.show.clone(),
            user,
            own_users,
            owner,
            defaults: ProcLimits::default(),
            environment: Vec::new(),
            value_hashes: BTreeMap::new(),
            tools: Vec::new(),
            runs: state_folder::runs(&state),
            files: BTreeMap::new(),
            approval: Approval::Named,
            policies_here: Vec::new(),
            secrets: Vec::new(),
            pins: Vec::new(),
            trusted: Vec::new(),
            notes: Vec::new(),
        };
        Ok(ResolvedRun {
            request,
            policy,
            for_gateway: GatewayPolicy {
                path: name.into(),
                texts: vec![(name.into(), text)],
                allow: Vec::new(),
            },
            upstream: Upstream::default(),
            phases: Phases::default(),
            state,
            environment: environment.clone(),
        })
    }
}
