//! The gateway's container, between the sandbox's network and the world.

use bollard::models::{
    ContainerCreateBody, EndpointIpamConfig, EndpointSettings, HostConfig,
    HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount, MountType, NetworkConnectRequest,
    ResourcesUlimits,
};
use bollard::query_parameters::CreateContainerOptionsBuilder;
use inside::seccomp;

use super::labels::{RunNames, labels};
use super::sandbox::map;
use super::{Docker, broken, containers, egress, failed, status};
use crate::backend::{BackendError, BackendStep, GatewayContent, GatewayHandle, Network};
use crate::image;
use crate::plan::Plan;

/// Builds the gateway of `plan`, which does not run yet and stands on no network
/// but the one towards the world.
pub(super) async fn create(
    docker: &Docker,
    plan: &Plan,
    content: &GatewayContent,
) -> Result<(), BackendError> {
    let names = RunNames::of(&plan.run);
    let api = &docker.engine.api;
    let mut image = image::gateway::name(&content.program, &docker.engine.environment)
        .map_err(|err| broken(BackendStep::BuildImage, err))?;
    // That it is there is what is usual, and asking would be one more question.
    let options = || Some(CreateContainerOptionsBuilder::new().name(&names.gateway).build());
    let made =
        api.create_container(options(), container(docker, plan, content, image.clone())).await;
    if made.as_ref().err().and_then(status) == Some(404) {
        image = image::gateway::ensure(api, &content.program, "")
            .await
            .map_err(|err| broken(BackendStep::BuildImage, err))?;
        api.create_container(options(), container(docker, plan, content, image))
            .await
            .map_err(failed(BackendStep::StartGateway))?;
    } else {
        made.map_err(failed(BackendStep::StartGateway))?;
    }
    Ok(())
}

/// Starts it on the sandbox's network too. Engines before 25 refuse two networks
/// at creation.
pub(super) async fn start(
    docker: &Docker,
    plan: &Plan,
    name: &str,
    network: &Network,
) -> Result<GatewayHandle, BackendError> {
    let inner = NetworkConnectRequest {
        container: name.to_owned(),
        endpoint_config: Some(EndpointSettings {
            ipam_config: Some(EndpointIpamConfig {
                ipv4_address: Some(network.gateway.to_string()),
                ..EndpointIpamConfig::default()
            }),
            ..EndpointSettings::default()
        }),
    };
    docker
        .engine
        .api
        .connect_network(&network.name, inner)
        .await
        .map_err(failed(BackendStep::StartGateway))?;

    containers::start_gateway(&docker.engine, plan, name).await
}

fn container(
    docker: &Docker,
    plan: &Plan,
    content: &GatewayContent,
    image: String,
) -> ContainerCreateBody {
    let local = docker.engine.local(&plan.run);
    let mut words = vec!["--config".to_owned(), "/settings/gateway.yaml".to_owned()];
    words.extend(plan.gateway_life());
    ContainerCreateBody {
        image: Some(image),
        cmd: Some(words),
        user: Some(format!("{}:{}", content.user.uid, content.user.gid)),
        hostname: Some("gateway".to_owned()),
        labels: Some(labels(&plan.run, &docker.engine.environment)),
        // When the one who attached is gone, it reads the end of its input.
        open_stdin: Some(plan.session.is_none()),
        stdin_once: Some(plan.session.is_none()),
        attach_stdin: Some(plan.session.is_none()),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        host_config: Some(HostConfig {
            network_mode: Some(egress::NAME.to_owned()),
            sysctls: Some(map(&[
                // It stands between two networks and must not be a router.
                ("net.ipv4.ip_forward", "0"),
                // Port 53, 80 and 443 without a capability.
                ("net.ipv4.ip_unprivileged_port_start", "0"),
                ("net.ipv6.conf.all.disable_ipv6", "1"),
            ])),
            cap_drop: Some(vec!["ALL".to_owned()]),
            security_opt: Some(vec![
                "no-new-privileges:true".to_owned(),
                format!("seccomp={}", seccomp::gateway_profile()),
            ]),
            cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
            readonly_rootfs: Some(true),
            mounts: Some(vec![
                mount(&local.settings(), "/settings", true),
                mount(&local.control_folder(), "/control", false),
                mount(&content.audit, "/audit", false),
            ]),
            log_config: Some(HostConfigLogConfig {
                typ: Some("none".to_owned()),
                ..HostConfigLogConfig::default()
            }),
            memory: Some(MEMORY),
            memory_swap: Some(MEMORY),
            pids_limit: Some(PIDS),
            ulimits: Some(vec![ResourcesUlimits {
                name: Some("nofile".to_owned()),
                soft: i64::try_from(plan.limits.open_files).ok(),
                hard: i64::try_from(plan.limits.open_files).ok(),
            }]),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

fn mount(source: &std::path::Path, target: &str, read_only: bool) -> Mount {
    Mount {
        source: Some(source.display().to_string()),
        target: Some(target.to_owned()),
        typ: Some(MountType::BIND),
        read_only: Some(read_only),
        ..Mount::default()
    }
}

const MEMORY: i64 = 512 << 20;
const PIDS: i64 = 256;
