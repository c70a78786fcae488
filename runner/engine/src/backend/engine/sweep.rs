//! Finding what is ours on an engine, and removing it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use bollard::models::ContainerSummary;
use bollard::query_parameters::{
    ListContainersOptionsBuilder, ListNetworksOptionsBuilder, ListVolumesOptionsBuilder,
    RemoveContainerOptionsBuilder, RemoveVolumeOptionsBuilder,
};
use tokio::time;

use super::Engine;
use super::labels::{MANAGED_BY, OWNER, RUN, RUNTIME, US};
use super::refusal::{is_in_use, is_unknown_word, status};
use crate::backend::{BackendError, BackendStep, LabelledResource};
use crate::plan::RunId;
use crate::resource::Resource;

/// Everything with our label that belongs to a run, in the order to remove it.
pub(in crate::backend) async fn found(
    engine: &Engine,
) -> Result<Vec<LabelledResource>, BackendError> {
    let ours = HashMap::from([("label", vec![format!("{MANAGED_BY}={US}")])]);
    let of_volumes = ListVolumesOptionsBuilder::new().filters(&ours).build();
    let of_networks = ListNetworksOptionsBuilder::new().filters(&ours).build();
    let (containers, volumes, networks) = tokio::join!(
        containers(engine, &ours),
        engine.api.list_volumes(Some(of_volumes)),
        engine.api.list_networks(Some(of_networks)),
    );
    let volumes = volumes.map_err(engine.failed(BackendStep::List))?;
    let networks = networks.map_err(engine.failed(BackendStep::List))?;
    let mut found = Vec::new();
    for container in containers? {
        let name = container.names.and_then(|names| names.into_iter().next()).unwrap_or_default();
        let name = name.trim_start_matches('/').to_owned();
        let running = container.state == Some(bollard::models::ContainerSummaryStateEnum::RUNNING);
        found.extend(labelled(container.labels, Resource::Container(name), running));
    }
    for volume in volumes.volumes.unwrap_or_default() {
        found.extend(labelled(Some(volume.labels), Resource::Volume(volume.name), false));
    }
    for network in networks {
        let name = network.name.unwrap_or_default();
        found.extend(labelled(network.labels, Resource::Network(name), false));
    }
    Ok(found)
}

/// An answer with a word that we do not know is asked for again.
async fn containers(
    engine: &Engine,
    ours: &HashMap<&str, Vec<String>>,
) -> Result<Vec<ContainerSummary>, BackendError> {
    let mut pause = FIRST_PAUSE;
    loop {
        let options = ListContainersOptionsBuilder::new().all(true).filters(ours).build();
        match engine.api.list_containers(Some(options)).await {
            Ok(containers) => return Ok(containers),
            Err(err) if is_unknown_word(&err) && pause <= LAST_PAUSE => {}
            Err(err) => return Err(engine.failed(BackendStep::List)(err)),
        }
        time::sleep(pause).await;
        pause *= 2;
    }
}

/// What has our label and no run is shared, and stays.
fn labelled(
    labels: Option<HashMap<String, String>>,
    resource: Resource,
    running: bool,
) -> Option<LabelledResource> {
    let labels = labels?;
    let run = RunId::parse(labels.get(RUN)?).ok()?;
    let owner = labels.get(OWNER)?.parse().ok()?;
    let runtime = labels.get(RUNTIME).map(PathBuf::from).filter(|path| path.is_absolute());
    Some(LabelledResource { run, resource, owner, running, runtime })
}

/// Removes one thing. An engine may say for a moment that a network is still in
/// use after its last container went, so that is asked again.
pub(in crate::backend) async fn remove(
    engine: &Engine,
    resource: &Resource,
) -> Result<(), BackendError> {
    let mut pause = FIRST_PAUSE;
    loop {
        let removed = match resource {
            Resource::Container(name) => {
                let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
                engine.api.remove_container(name, Some(options)).await
            }
            Resource::Network(name) => engine.api.remove_network(name).await,
            Resource::Volume(name) => {
                let options = RemoveVolumeOptionsBuilder::new().force(true).build();
                engine.api.remove_volume(name, Some(options)).await
            }
            Resource::Folder(_) | Resource::Process(_) => return Ok(()),
        };
        match removed {
            Ok(()) => return Ok(()),
            Err(err) if status(&err) == Some(404) => return Ok(()),
            Err(err) if is_in_use(&err) && pause <= LAST_PAUSE => {}
            Err(err) => return Err(engine.broken(BackendStep::Remove, err)),
        }
        time::sleep(pause).await;
        pause *= 2;
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Some six seconds in all.
const LAST_PAUSE: Duration = Duration::from_millis(3200);
