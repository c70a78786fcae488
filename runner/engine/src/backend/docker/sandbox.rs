//! What a sandbox is made of.
//!
//! One straight list of everything that is asked of the engine. Nothing of it is
//! believed: [`crate::isolation`] looks at what came of it, from inside, before the
//! command starts.

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, EndpointIpamConfig, EndpointSettings, HostConfig,
    HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount, MountBindOptions,
    MountBindOptionsPropagationEnum, MountType, MountVolumeOptions, NetworkingConfig,
    ResourcesUlimits, VolumeCreateRequest,
};
use bollard::query_parameters::CreateContainerOptionsBuilder;
use inside::launch::privileges;
use inside::seccomp;

use super::container_env::{
    ANY_PORT, Bind, INIT, MASKED, READ_ONLY, SHARED_MEMORY, binds, init_args, relayed,
};
use super::labels::{RunNames, labels};
use super::{Docker, broken, failed, in_its_words, status, users};
use crate::backend::{
    BackendError, BackendStep, ListenerSource, Network, Sandbox, SandboxContent, WorkspaceMount,
};
use crate::plan::{Plan, TmpfsPlan, UserIds, files_in};

/// Builds the sandbox of `plan`, which does not run yet.
pub(super) async fn create(
    docker: &Docker,
    plan: &Plan,
    inside: &SandboxContent,
    network: Option<&Network>,
) -> Result<Sandbox, BackendError> {
    let names = RunNames::of(&plan.run);
    if let WorkspaceMount::Overlay { options } = &inside.workspace {
        let driver = [("type", "overlay"), ("device", "overlay"), ("o", options)];
        let volume = VolumeCreateRequest {
            name: Some(names.volume.clone()),
            driver: Some("local".to_owned()),
            driver_opts: Some(map(&driver)),
            labels: Some(labels(&plan.run, &docker.engine.environment)),
            ..VolumeCreateRequest::default()
        };
        docker.engine.api.create_volume(volume).await.map_err(failed(BackendStep::MakeVolume))?;
    }
    let mut wanted = container(docker, plan, inside, network, &names);
    let passwd = docker.engine.local(&plan.run).path("passwd");
    if users::write(docker, plan, &passwd).await?
        && let Some(mounts) = wanted.host_config.as_mut().and_then(|host| host.mounts.as_mut())
    {
        let target = "/etc/passwd".to_owned();
        mounts.push(bind(&Bind { source: passwd, target, read_only: true }));
    }
    let options = CreateContainerOptionsBuilder::new().name(&names.sandbox).build();
    docker.engine.api.create_container(Some(options), wanted).await.map_err(|err| {
        if status(&err) == Some(404) {
            let image = &plan.image;
            let advice =
                format!("there is no image `{image}`; `sluice image build` makes the usual one");
            return broken(BackendStep::FindImage, in_its_words(err.into()).context(advice));
        }
        if err.to_string().contains(NO_SUCH_FILE_THERE) {
            let advice = "the engine does not see this machine's files, so it is on another \
                          machine, or in a container of its own; run sluice where the engine is, \
                          or choose another backend with --backend";
            return broken(BackendStep::Create, in_its_words(err.into()).context(advice));
        }
        broken(BackendStep::Create, err)
    })?;
    Ok(Sandbox { name: names.sandbox })
}

fn container(
    docker: &Docker,
    plan: &Plan,
    inside: &SandboxContent,
    network: Option<&Network>,
    names: &RunNames,
) -> ContainerCreateBody {
    let mut environment: Vec<String> =
        plan.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
    // A name without `=` removes what the image sets.
    environment.extend(plan.unset.iter().cloned());
    ContainerCreateBody {
        image: Some(plan.image.clone()),
        entrypoint: Some(vec![INIT.to_owned()]),
        cmd: Some(init_args(plan)),
        env: Some(environment),
        user: Some(format!("{}:{}", plan.user.uid, plan.user.gid)),
        working_dir: Some(plan.directory.clone()),
        hostname: Some("sandbox".to_owned()),
        labels: Some(labels(&plan.run, &docker.engine.environment)),
        // An image's own check would run beside the command, unasked.
        healthcheck: Some(bollard::models::HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..Default::default()
        }),
        host_config: Some(host_config(docker, plan, inside, network, names)),
        networking_config: own_network(network).map(|network| NetworkingConfig {
            endpoints_config: Some(HashMap::from([(
                network.name.clone(),
                EndpointSettings {
                    ipam_config: Some(EndpointIpamConfig {
                        ipv4_address: Some(network.sandbox.to_string()),
                        ..EndpointIpamConfig::default()
                    }),
                    ..EndpointSettings::default()
                },
            )])),
        }),
        ..ContainerCreateBody::default()
    }
}

fn host_config(
    docker: &Docker,
    plan: &Plan,
    inside: &SandboxContent,
    network: Option<&Network>,
    names: &RunNames,
) -> HostConfig {
    let limits = &plan.limits;
    HostConfig {
        network_mode: Some(own_network(network).map_or("none", |made| &made.name).to_owned()),
        // The engine's own resolver asks the host's when it knows no better.
        dns: network.map(|network| vec![network.gateway.to_string()]),
        dns_search: network.map(|_| vec![".".to_owned()]),
        extra_hosts: network
            .zip(plan.network.as_ref())
            .map(|(made, planned)| vec![format!("{}:{}", planned.gateway, made.gateway)]),
        sysctls: network.map(|_| {
            let mut sysctls = map(&[
                ("net.ipv6.conf.all.disable_ipv6", "1"),
                ("net.ipv6.conf.default.disable_ipv6", "1"),
            ]);
            let any_port = relayed(plan).map(|_| ANY_PORT);
            sysctls.extend(any_port.map(|(name, from)| (name.to_owned(), from.to_owned())));
            sysctls
        }),

        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec![
            "no-new-privileges:true".to_owned(),
            format!("seccomp={}", seccomp::profile()),
        ]),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        ipc_mode: Some("private".to_owned()),
        masked_paths: Some(MASKED.map(str::to_owned).to_vec()),
        readonly_paths: Some(READ_ONLY.map(str::to_owned).to_vec()),
        privileged: Some(false),

        readonly_rootfs: Some(true),
        mounts: Some(mounts(docker, plan, inside, names)),
        tmpfs: Some(plan.tmpfs.iter().map(|place| tmpfs(place, plan.user)).collect()),
        shm_size: Some(clamp(SHARED_MEMORY.min(limits.memory / 4))),

        nano_cpus: Some(i64::from(limits.cpu_millis) * 1_000_000),
        memory: Some(clamp(limits.memory)),
        // As much as memory alone: no swap.
        memory_swap: Some(clamp(limits.memory)),
        pids_limit: Some(limits.pids.into()),
        ulimits: Some(vec![
            ulimit("core", 0),
            ulimit("fsize", limits.file_bytes()),
            ulimit("nofile", limits.open_files),
            ulimit("msgqueue", privileges::MESSAGE_QUEUES),
            ulimit("sigpending", privileges::QUEUED_SIGNALS),
        ]),
        // When the machine itself runs out of memory, rather a sandbox than the
        // person's own programs.
        oom_score_adj: Some(500),

        // The engine would keep everything the command prints, without end.
        log_config: Some(HostConfigLogConfig {
            typ: Some("none".to_owned()),
            ..HostConfigLogConfig::default()
        }),
        auto_remove: Some(false),
        ..HostConfig::default()
    }
}

/// The network that the engine made; nothing where there are only doors.
fn own_network(network: Option<&Network>) -> Option<&Network> {
    network.filter(|network| network.listeners == ListenerSource::Own)
}

fn mounts(docker: &Docker, plan: &Plan, inside: &SandboxContent, names: &RunNames) -> Vec<Mount> {
    let local = docker.engine.local(&plan.run);
    let mut mounts: Vec<Mount> = binds(plan, inside, &local).iter().map(bind).collect();
    if let WorkspaceMount::Overlay { .. } = inside.workspace {
        mounts.push(Mount {
            target: Some(plan.workspace.target.to_string()),
            source: Some(names.volume.clone()),
            typ: Some(MountType::VOLUME),
            volume_options: Some(MountVolumeOptions {
                no_copy: Some(true),
                ..MountVolumeOptions::default()
            }),
            ..Mount::default()
        });
    }
    mounts
}

fn bind(wanted: &Bind) -> Mount {
    Mount {
        target: Some(wanted.target.clone()),
        source: Some(wanted.source.display().to_string()),
        typ: Some(MountType::BIND),
        read_only: Some(wanted.read_only),
        // What the host mounts there later is not for the sandbox.
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}

fn tmpfs(place: &TmpfsPlan, user: UserIds) -> (String, String) {
    let exec = if place.executable { "exec" } else { "noexec" };
    let inodes = files_in(place.bytes);
    let UserIds { uid, gid } = user;
    let options = format!(
        "rw,nosuid,nodev,{exec},size={},nr_inodes={inodes},mode=1777,uid={uid},gid={gid}",
        place.bytes
    );
    (place.target.to_string(), options)
}

fn ulimit(name: &str, most: u64) -> ResourcesUlimits {
    ResourcesUlimits {
        name: Some(name.to_owned()),
        soft: Some(clamp(most)),
        hard: Some(clamp(most)),
    }
}

fn clamp(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What the engine says of a mount whose files are not where it looks.
const NO_SUCH_FILE_THERE: &str = "bind source path does not exist";

pub(super) fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
