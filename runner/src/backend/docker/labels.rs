//! What a run's things are called, and how they are found again.

use std::collections::HashMap;

use policies::Workspace;

use crate::plan::{Plan, RunId};
use crate::teardown::Resource;

pub(super) const RUN: &str = "dev.sluice.run";
pub(super) const MANAGED_BY: &str = "dev.sluice.managed-by";
pub(super) const OWNER: &str = "dev.sluice.owner";
pub(super) const US: &str = "sluice";

/// The names of everything one run makes.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) gateway: String,
    pub(super) network: String,
    /// A network device's; those have 15 bytes at most.
    pub(super) bridge: String,
    pub(super) sandbox: String,
    pub(super) volume: String,
}

impl Names {
    pub(super) fn of(run: &RunId) -> Self {
        Self {
            gateway: format!("sluice-{run}-gateway"),
            network: format!("sluice-{run}"),
            bridge: format!("{BRIDGE_PREFIX}{}", run.short()),
            sandbox: format!("sluice-{run}"),
            volume: format!("sluice-{run}-workspace"),
        }
    }

    pub(super) fn resources(self, plan: &Plan) -> Vec<Resource> {
        let mut made = Vec::new();
        if plan.network.is_some() {
            made.push(Resource::Network(self.network));
            made.push(Resource::Container(self.gateway));
        }
        if plan.workspace.mode == Workspace::Overlay {
            made.push(Resource::Volume(self.volume));
        }
        made.push(Resource::Container(self.sandbox));
        made
    }
}

/// One firewall rule covers every sandbox's bridge.
pub(super) const BRIDGE_PREFIX: &str = "slc-";

pub(super) fn labels(run: &RunId) -> HashMap<String, String> {
    let owner = rustix::process::getuid().as_raw();
    HashMap::from([
        (RUN.to_owned(), run.as_str().to_owned()),
        (MANAGED_BY.to_owned(), US.to_owned()),
        (OWNER.to_owned(), owner.to_string()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridges_name_fits_into_a_network_device() {
        let names = Names::of(&RunId::now());
        assert!(names.bridge.len() <= 15, "{}", names.bridge);
    }
}
