//! The gateway's container, between the sandbox's network and the world.

use inside::seccomp;
use serde_json::{Value, json};

use super::container::{bind, closed, set, sysctls, ulimits, write};
use super::network::{EGRESS, ensure_egress};
use super::{OUR_OWN, Podman};
use crate::backend::engine::container_env::Bind;
use crate::backend::engine::containers;
use crate::backend::{
    BackendError, BackendStep, CreatedGateway, Enforcement, GatewayHandle, Network,
};
use crate::image;
use crate::plan::Plan;

/// Starts the gateway of `plan` on its network.
pub(super) async fn start(
    podman: &Podman,
    plan: &Plan,
    gateway: &CreatedGateway,
    network: &Network,
) -> Result<GatewayHandle, BackendError> {
    let image = image::gateway::ensure(&podman.engine.api, &gateway.content.program, OUR_OWN)
        .await
        .map_err(|err| podman.broken(BackendStep::BuildImage, err))?;
    ensure_egress(podman).await?;
    let local = podman.engine.local(&plan.run);
    let hosts = local.path("gateway-hosts");
    write(podman, &hosts, "127.0.0.1\tlocalhost\n")?;
    let profile = local.path("gateway-seccomp.json");
    write(podman, &profile, &seccomp::gateway_profile())?;

    let mut wanted = container(podman, plan, gateway, network);
    let mounts = [
        mount(&local.settings(), "/settings", true),
        mount(&local.control_folder(), "/control", false),
        mount(&gateway.content.audit, "/audit", false),
        mount(&hosts, "/etc/hosts", true),
    ];
    set(
        &mut wanted,
        [
            ("image", json!(image)),
            ("mounts", json!(mounts)),
            ("seccomp_profile_path", json!(profile)),
        ],
    );
    podman
        .libpod
        .post("/containers/create", &wanted)
        .await
        .map_err(|err| podman.broken(BackendStep::StartGateway, err))?;
    containers::start_gateway(&podman.engine, plan, &gateway.name).await
}

fn container(podman: &Podman, plan: &Plan, gateway: &CreatedGateway, network: &Network) -> Value {
    let mut wanted = closed(podman, &gateway.name, &plan.run, gateway.content.user);
    let files_open = plan.limits.open_files;
    let mut words = vec!["--config".to_owned(), "/settings/gateway.yaml".to_owned()];
    words.extend(plan.gateway_life());
    set(
        &mut wanted,
        [
            ("command", json!(words)),
            ("stdin", json!(plan.session.is_none())),
            ("hostname", json!("gateway")),
            ("netns", json!({"nsmode": "bridge"})),
            (
                "networks",
                json!({
                    EGRESS: {"interface_name": "eth0"},
                    &network.name: {"interface_name": "eth1", "static_ips": [network.gateway]},
                }),
            ),
            (
                "sysctl",
                sysctls(&[
                    // It stands between two networks and must not be a router.
                    ("net.ipv4.ip_forward", "0"),
                    // Port 53, 80 and 443 without a capability.
                    ("net.ipv4.ip_unprivileged_port_start", "0"),
                ]),
            ),
            ("r_limits", ulimits(&[("nofile", files_open), ("nproc", PIDS), ("core", 0)])),
        ],
    );
    if podman.about.limits("memory") == Enforcement::Enforced {
        let memory = json!({"memory": {"limit": MEMORY, "swap": MEMORY}});
        set(&mut wanted, [("resource_limits", memory)]);
    }
    wanted
}

fn mount(source: &std::path::Path, target: &str, read_only: bool) -> Value {
    bind(&Bind { source: source.to_owned(), target: target.to_owned(), read_only })
}

const MEMORY: u64 = 512 << 20;
const PIDS: u64 = 256;
