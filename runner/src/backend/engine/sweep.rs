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

use super::labels::{MANAGED_BY, OWNER, RUN, RUNTIME, US};
use super::{Engine, status};
use crate::backend::{BackendError, Found, Step};
use crate::plan::RunId;
use crate::teardown::Resource;

/// Everything with our label that belongs to a run, in the order to remove it.
pub(in crate::backend) async fn found(engine: &Engine) -> Result<Vec<Found>, BackendError> {
    let ours = HashMap::from([("label", vec![format!("{MANAGED_BY}={US}")])]);
    let of_volumes = ListVolumesOptionsBuilder::new().filters(&ours).build();
    let of_networks = ListNetworksOptionsBuilder::new().filters(&ours).build();
    let (containers, volumes, networks) = tokio::join!(
        containers(engine, &ours),
        engine.api.list_volumes(Some(of_volumes)),
        engine.api.list_networks(Some(of_networks)),
    );
    let volumes = volumes.map_err(engine.failed(Step::List))?;
    let networks = networks.map_err(engine.failed(Step::List))?;
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

/// Podman has words for states that Docker's interface does not know, for the
/// moment in which a container changes from one to the other. So it is asked
/// again.
async fn containers(
    engine: &Engine,
    ours: &HashMap<&str, Vec<String>>,
) -> Result<Vec<ContainerSummary>, BackendError> {
    let mut pause = FIRST_PAUSE;
    loop {
        let options = ListContainersOptionsBuilder::new().all(true).filters(ours).build();
        match engine.api.list_containers(Some(options)).await {
            Ok(containers) => return Ok(containers),
            Err(err) if err.to_string().contains("unknown variant") && pause <= LAST_PAUSE => {}
            Err(err) => return Err(engine.failed(Step::List)(err)),
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
) -> Option<Found> {
    let labels = labels?;
    let run = RunId::parse(labels.get(RUN)?).ok()?;
    let owner = labels.get(OWNER)?.parse().ok()?;
    let runtime = labels.get(RUNTIME).map(PathBuf::from).filter(|path| path.is_absolute());
    Some(Found { run, resource, owner, running, runtime })
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
            Resource::Folder(_) => return Ok(()),
        };
        match removed {
            Ok(()) => return Ok(()),
            Err(err) if status(&err) == Some(404) => return Ok(()),
            // In use, or being removed by somebody else at this moment.
            Err(err) if is_in_use(&err) && pause <= LAST_PAUSE => {}
            Err(err) => return Err(engine.broken(Step::Remove, err)),
        }
        time::sleep(pause).await;
        pause *= 2;
    }
}

/// Docker has a status for it; Podman says it in words.
fn is_in_use(err: &bollard::errors::Error) -> bool {
    match status(err) {
        Some(403 | 409) => true,
        Some(500) => err.to_string().contains("being used"),
        Some(_) | None => false,
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Some six seconds in all.
const LAST_PAUSE: Duration = Duration::from_millis(3200);
