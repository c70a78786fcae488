//! What a run's things are called, and how they are found again.

use std::collections::HashMap;

use policies::Workspace;

use crate::environment::Environment;
use crate::plan::{Plan, RunId};
use crate::resource::{Resource, RunResources};
use policies::Attachment;

pub(in crate::backend) const RUN: &str = "dev.sluice.run";
pub(in crate::backend) const MANAGED_BY: &str = "dev.sluice.managed-by";
pub(in crate::backend) const OWNER: &str = "dev.sluice.owner";
/// Where the run's folder is, whose lock says whether it goes on.
pub(in crate::backend) const RUNTIME: &str = "dev.sluice.runtime";
pub(in crate::backend) const US: &str = "sluice";

/// The names of everything one run makes.
#[derive(Clone, Debug)]
pub(in crate::backend) struct RunNames {
    pub(in crate::backend) gateway: String,
    pub(in crate::backend) network: String,
    /// A network device's; those have 15 bytes at most.
    pub(in crate::backend) bridge: String,
    pub(in crate::backend) sandbox: String,
    pub(in crate::backend) volume: String,
}

impl RunNames {
    pub(in crate::backend) fn of(run: &RunId) -> Self {
        Self {
            gateway: format!("sluice-{run}-gateway"),
            network: format!("sluice-{run}"),
            bridge: format!("{BRIDGE_PREFIX}{}", run.short()),
            sandbox: format!("sluice-{run}"),
            volume: format!("sluice-{run}-workspace"),
        }
    }

    /// The run whose sandbox or gateway is called this.
    pub(in crate::backend) fn run_of(name: &str) -> Option<RunId> {
        let run = name.strip_prefix("sluice-")?;
        RunId::parse(run.strip_suffix("-gateway").unwrap_or(run)).ok()
    }

    pub(in crate::backend) fn resources(self, plan: &Plan) -> RunResources {
        let attach = plan.network.as_ref().map(|network| network.attach);
        let has_network = attach == Some(Attachment::Network);
        let network = has_network.then_some(Resource::Network(self.network));
        let gateway = attach.map(|attach| match attach {
            Attachment::Network => Resource::Container(self.gateway),
            Attachment::Relay | Attachment::Sockets => Resource::Process(self.gateway),
        });
        let is_overlay = plan.workspace.mode == Workspace::Overlay;
        let volume = is_overlay.then_some(Resource::Volume(self.volume));
        RunResources {
            sandbox: Resource::Container(self.sandbox),
            gateway,
            others: network.into_iter().chain(volume).collect(),
        }
    }
}

/// One firewall rule covers every sandbox's bridge.
pub(in crate::backend) const BRIDGE_PREFIX: &str = "slc-";

pub(in crate::backend) fn labels(
    run: &RunId,
    environment: &Environment,
) -> HashMap<String, String> {
    let owner = rustix::process::getuid().as_raw();
    let runtime = environment.runtime();
    HashMap::from([
        (RUN.to_owned(), run.as_str().to_owned()),
        (MANAGED_BY.to_owned(), US.to_owned()),
        (OWNER.to_owned(), owner.to_string()),
        (RUNTIME.to_owned(), runtime.display().to_string()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridges_name_fits_into_a_network_device() {
        let names = RunNames::of(&RunId::now());
        assert!(names.bridge.len() <= 15, "{}", names.bridge);
    }
}
