//! What a sandbox is made of, in Podman's words.
//!
//! The same straight list as for Docker, and as little believed:
//! [`crate::isolation`] looks at what came of it, from inside, before the command
//! starts.

use std::collections::BTreeMap;

use inside::launch::pools::MAX_TERMINALS;
use inside::launch::privileges;
use inside::seccomp;
use serde_json::{Value, json};

use super::container::{bind, closed, set, sysctls, ulimits, write};
use super::{Podman, WORK};
use crate::backend::engine::container_env::{
    ANY_PORT, Bind, INIT, MASKED, SHARED_MEMORY, binds, init_args, relayed,
};
use crate::backend::engine::labels::RunNames;
use crate::backend::{
    BackendError, BackendStep, Enforcement, ListenerSource, Network, Sandbox, SandboxContent,
    WorkspaceMount,
};
use crate::plan::{Plan, TmpfsPlan, UserIds, files_in};

/// Builds the sandbox of `plan`, which does not run yet.
pub(super) async fn create(
    podman: &Podman,
    plan: &Plan,
    inside: &SandboxContent,
    network: Option<&Network>,
) -> Result<Sandbox, BackendError> {
    let names = RunNames::of(&plan.run);
    let local = podman.engine.local(&plan.run);
    let (profile, hosts, resolver) =
        (local.path("seccomp.json"), local.path("hosts"), local.path("resolv.conf"));
    write(podman, &profile, &seccomp::profile())?;
    write(podman, &hosts, &known_hosts(plan, network))?;
    write(podman, &resolver, &name_servers(network))?;

    let mut wanted = container(podman, plan, network, &names);
    let mut mounts: Vec<Value> = binds(plan, inside, &local).iter().map(bind).collect();
    for (source, target) in [(hosts, "/etc/hosts"), (resolver, "/etc/resolv.conf")] {
        mounts.push(bind(&Bind { source, target: target.to_owned(), read_only: true }));
    }
    mounts.extend(plan.tmpfs.iter().map(|place| tmpfs(place, plan.user)));
    mounts.push(terminals());
    if let WorkspaceMount::Overlay { options } = &inside.workspace {
        mounts.push(overlay(&plan.workspace.target, options));
        // Whoever removes the sandbox must know where the kernel left things
        // that are nobody's.
        let work = options.split(',').find_map(|option| option.strip_prefix("workdir="));
        if let (Some(work), Some(labels)) = (work, wanted.get_mut("labels")) {
            set(labels, [(WORK, json!(work))]);
        }
    }
    set(&mut wanted, [("mounts", json!(mounts)), ("seccomp_profile_path", json!(profile))]);
    let made = podman.libpod.post("/containers/create", &wanted).await;
    made.map_err(|err| {
        if err.status() == Some(404) {
            let image = &plan.image;
            let advice =
                format!("there is no image `{image}`; `sluice image build` makes the usual one");
            return podman.broken(BackendStep::FindImage, anyhow::Error::new(err).context(advice));
        }
        podman.broken(BackendStep::Create, err)
    })?;
    Ok(Sandbox { name: names.sandbox })
}

fn container(podman: &Podman, plan: &Plan, network: Option<&Network>, names: &RunNames) -> Value {
    let mut wanted = closed(podman, &names.sandbox, &plan.run, plan.user);
    let limits = &plan.limits;
    let environment: BTreeMap<_, _> = plan.environment.iter().cloned().collect();
    // Podman's own, which say where we are.
    let unset = plan.unset.iter().map(String::as_str).chain(["container"]);
    set(
        &mut wanted,
        [
            ("image", json!(plan.image)),
            ("entrypoint", json!([INIT])),
            ("command", json!(init_args(plan))),
            ("env", json!(environment)),
            ("unsetenv", json!(unset.collect::<Vec<_>>())),
            ("work_dir", json!(plan.directory)),
            ("hostname", json!("sandbox")),
            ("stdin", json!(false)),
            // The caller's name is nobody's business in there.
            ("manage_password", json!(false)),
            ("mask", json!(MASKED)),
            ("shm_size", json!(SHARED_MEMORY.min(limits.memory / 4))),
            (
                "r_limits",
                ulimits(&[
                    ("core", 0),
                    ("fsize", limits.file_bytes()),
                    ("nofile", limits.open_files),
                    ("nproc", limits.pids.into()),
                    ("msgqueue", privileges::MESSAGE_QUEUES),
                    ("sigpending", privileges::QUEUED_SIGNALS),
                ]),
            ),
            // When the machine itself runs out of memory, rather a sandbox than
            // the person's own programs.
            ("oom_score_adj", json!(500)),
            ("resource_limits", resources(podman, plan)),
            ("use_image_resolv_conf", json!(true)),
        ],
    );
    match network.filter(|network| network.listeners == ListenerSource::Own) {
        None => {
            set(&mut wanted, [("netns", json!({"nsmode": "none"}))]);
            if relayed(plan).is_some() {
                set(&mut wanted, [("sysctl", sysctls(&[ANY_PORT]))]);
            }
        }
        Some(network) => set(
            &mut wanted,
            [
                ("netns", json!({"nsmode": "bridge"})),
                (
                    "networks",
                    json!({
                        &network.name:
                            {"interface_name": "eth0", "static_ips": [network.sandbox]},
                    }),
                ),
                ("sysctl", sysctls(&[])),
            ],
        ),
    }
    wanted
}

/// Only what is kept is asked for: the rest would be ignored, with a warning.
fn resources(podman: &Podman, plan: &Plan) -> Value {
    let limits = &plan.limits;
    let enforced = |controller| podman.about.limits(controller) == Enforcement::Enforced;
    let mut resources = json!({});
    if enforced("cpu") {
        let quota = u64::from(limits.cpu_millis) * PERIOD / 1000;
        set(&mut resources, [("cpu", json!({"quota": quota, "period": PERIOD}))]);
    }
    if enforced("memory") {
        // As much as memory alone: no swap.
        let memory = json!({"limit": limits.memory, "swap": limits.memory});
        set(&mut resources, [("memory", memory)]);
    }
    if enforced("pids") {
        set(&mut resources, [("pids", json!({"limit": limits.pids}))]);
    }
    resources
}

/// Handed to the kernel as it is, so that several layers can be below.
fn overlay(target: &str, options: &str) -> Value {
    json!({
        "destination": target,
        "type": "overlay",
        "source": "overlay",
        "options": options.split(',').chain(["nosuid", "nodev"]).collect::<Vec<_>>(),
    })
}

/// Podman refuses words that it does not know, and knows few. What follows the
/// size it takes for part of it and hands it on.
fn tmpfs(place: &TmpfsPlan, user: UserIds) -> Value {
    let exec = if place.executable { "exec" } else { "noexec" };
    let inodes = files_in(place.bytes);
    let UserIds { uid, gid } = user;
    let size = format!("size={},nr_inodes={inodes},mode=1777,uid={uid},gid={gid}", place.bytes);
    json!({
        "destination": place.target,
        "type": "tmpfs",
        "source": "tmpfs",
        // What the image has there stays there; else its mode would come along.
        "options": ["rw", "nosuid", "nodev", exec, &size, "notmpcopyup"],
    })
}

/// As the engine has them, but for how many: it would let a container have all.
fn terminals() -> Value {
    let most = format!("max={MAX_TERMINALS}");
    json!({
        "destination": "/dev/pts",
        "type": "devpts",
        "source": "devpts",
        "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", &most],
    })
}

fn known_hosts(plan: &Plan, network: Option<&Network>) -> String {
    let mut text = "127.0.0.1\tlocalhost sandbox\n".to_owned();
    if let Some((made, planned)) = network.zip(plan.network.as_ref()) {
        text.push_str(&format!("{}\t{}\n", made.gateway, planned.gateway));
    }
    text
}

fn name_servers(network: Option<&Network>) -> String {
    network.map(|network| format!("nameserver {}\nsearch .\n", network.gateway)).unwrap_or_default()
}

/// Microseconds.
const PERIOD: u64 = 100_000;
