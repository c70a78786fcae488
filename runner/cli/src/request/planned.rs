//! What `run` and `session start` do alike before they make anything.

use engine::backend::{self, Backend};
use engine::plan::{Machine, Plan, PlanText, RunId, plan};
use engine::spec::{AGENT_IMAGE, ResolvedRun};
use engine::sweep::sweep;
use tokio::runtime::Runtime;

use crate::console::{Console, Format};
use crate::exit::{Exit, Failure};

/// A run or a session that is decided on, and the backend that will make it.
pub(crate) struct PlannedRun {
    pub(crate) resolved: ResolvedRun,
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) plan: Plan,
    /// Why this backend, where nobody chose it.
    why_backend: Option<String>,
}

impl PlannedRun {
    /// Opens the backend and decides everything.
    pub(crate) fn new(resolved: ResolvedRun, runtime: &Runtime) -> Result<Self, Failure> {
        let ResolvedRun { request, policy, phases, environment, .. } = &resolved;
        let opening = backend::open(request.backend, environment);
        let opened = runtime.block_on(phases.of("open", opening));
        let opened = opened.map_err(|err| Failure::NotStarted(err.into()))?;
        let abilities = opened.backend.abilities();
        let plan = plan(RunId::now(), request, policy, &Machine::this(), &abilities)
            .map_err(|err| Failure::Usage(err.to_string()))?;
        Ok(Self { resolved, backend: opened.backend, plan, why_backend: opened.why })
    }

    /// Says what a person should know before it starts.
    pub(crate) fn say_notes(&self, console: &mut Console) {
        for note in self.why_backend.iter().chain(&self.plan.notes) {
            console.note(note);
        }
    }

    /// Removes what killed runs left, and builds our image if the plan needs it and
    /// there is none. Any other image is its owner's business; creating the sandbox
    /// says so.
    pub(crate) async fn clear_the_way(&self, console: &mut Console) -> anyhow::Result<()> {
        let Self { resolved, backend, plan, .. } = self;
        let has_image = async { plan.image != AGENT_IMAGE || backend.has_image(AGENT_IMAGE).await };
        let sweeping = sweep(&**backend, &resolved.environment);
        // That nothing could be swept is no reason not to start.
        let (has_image, _) = tokio::join!(has_image, resolved.phases.of("sweep", sweeping));
        if !has_image {
            console.say(format_args!("building {AGENT_IMAGE}, this once; about a minute"));
            backend.build_image(AGENT_IMAGE).await?;
        }
        Ok(())
    }
}

/// Shows what would be done.
pub(crate) fn print_plan(plan: &Plan, console: &mut Console) -> Result<Exit, Failure> {
    match console.format {
        Format::Json | Format::Jsonl => console.json(plan)?,
        Format::Table => console.raw(PlanText(plan).to_string().as_bytes())?,
    }
    Ok(Exit::Success)
}
