//! Undoes a run, newest first, whatever happened.
//!
//! Every resource is registered here *before* it is created, under a name
//! derived from the run's id. A crash between "registered" and "created" costs
//! one harmless removal; the other order would cost a leaked network.

use files::removal::remove_folder;

use crate::backend::Backend;
pub use crate::resource::Resource;

/// The things one run has made, in the order it made them.
#[derive(Debug, Default)]
pub struct Teardown {
    made: Vec<Resource>,
}

/// Something that could not be removed, and why.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Left {
    pub resource: Resource,
    pub why: String,
}

impl Teardown {
    pub fn will_make(&mut self, resource: Resource) {
        self.made.push(resource);
    }

    /// Removes everything, going on past failures, and returns what is left.
    #[must_use = "what is left must be reported to the user"]
    pub async fn run(self, backend: &dyn Backend) -> Vec<Left> {
        let mut left = Vec::new();
        let mut made: Vec<Resource> = self.made.into_iter().rev().collect();
        while let Some(wave) = made.iter().map(Resource::wave).min() {
            let (now, later) = made.into_iter().partition(|resource| resource.wave() == wave);
            made = later;
            let now: Vec<Resource> = now;
            let removing = now.iter().map(|resource| remove(resource, backend));
            let removed = futures_util::future::join_all(removing).await;
            let failed = now.into_iter().zip(removed);
            left.extend(
                failed.filter_map(|(resource, done)| Some(Left { resource, why: done.err()? })),
            );
        }
        left
    }
}

/// Removes one thing; absent already counts as removed.
pub async fn remove(resource: &Resource, backend: &dyn Backend) -> Result<(), String> {
    match resource {
        Resource::Folder(path) => remove_folder(path).map_err(|err| err.to_string()),
        Resource::Container(_)
        | Resource::Network(_)
        | Resource::Process(_)
        | Resource::Volume(_) => {
            backend.remove(resource).await.map_err(|err| format!("{:#}", anyhow::Error::new(err)))
        }
    }
}
