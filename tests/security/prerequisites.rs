//! H9: each prerequisite of isolation is taken away in turn, on the real engine,
//! and each time the run refuses to start.
//!
//! The engine is real and makes what it is told; between it and the runner stands
//! one that changes what is asked for. So nothing in the product knows of this,
//! and what refuses is the measurement from inside.

use std::process::Command;

use serde_json::{Value, json};
use tests::CommandDeadline as _;
use tests::boxes::{Person, Programs};
use tests::lying_engine::{Lie, LyingEngine};

const NETWORK: &str = "version: 1\nnet: {enabled: true}\n";

fn person() -> Option<Person> {
    Person::with_docker(Programs {
        sluice: env!("CARGO_BIN_EXE_sluice-under-test"),
        init: env!("CARGO_BIN_EXE_sluice-init-under-test"),
        probe: env!("CARGO_BIN_EXE_sluice-probe-under-test"),
        gateway: env!("CARGO_BIN_EXE_sluice-gateway-under-test"),
        launch: env!("CARGO_BIN_EXE_sluice-launch-under-test"),
    })
}

/// A run through an engine that tells this lie must not start, and say why.
#[track_caller]
fn refuses(what: &str, lie: Lie) {
    if let Some(person) = person() {
        refuses_to(person, what, lie);
    }
}

/// The same, of somebody whose sandboxes have a network of their own.
#[track_caller]
fn refuses_on_a_network(what: &str, lie: Lie) {
    if let Some(person) = person() {
        refuses_to(person.attached_by("network"), what, lie);
    }
}

#[track_caller]
fn refuses_to(mut person: Person, what: &str, lie: Lie) {
    let engine = LyingEngine::start(lie);
    person.set("DOCKER_HOST", &engine.address());
    let policy = person.policy(NETWORK);
    let ran = person.shell(&["--policy", &policy], "echo the command ran");
    assert_eq!(ran.code, 125, "{what}: {}", ran.stderr);
    assert!(!ran.stdout.contains("the command ran"), "{what}");
    assert!(ran.stderr.contains("weaker than planned"), "{what}: {}", ran.stderr);
    assert!(ran.stderr.contains(what), "{what}: {}", ran.stderr);
    assert_eq!(person.left_of(ran.run()), "", "{what}");
}

macro_rules! refused {
    ($claim:ident, $what:expr, $lie:expr) => {
        #[test]
        fn $claim() {
            refuses($what, $lie);
        }
    };
    (on a network: $claim:ident, $what:expr, $lie:expr) => {
        #[test]
        fn $claim() {
            refuses_on_a_network($what, $lie);
        }
    };
}

fn host_config(wanted: &mut Value) -> &mut Value {
    &mut wanted["HostConfig"]
}

/// The control: an engine in between that changes nothing that matters.
#[test]
fn an_engine_that_does_as_it_is_told_is_used() {
    let Some(mut person) = person() else { return };
    let engine = LyingEngine::start(Lie::Sandbox(|wanted| {
        wanted["Labels"]["dev.sluice.test"] = json!("an honest engine");
    }));
    person.set("DOCKER_HOST", &engine.address());
    let policy = person.policy(NETWORK);
    let ran = person.shell(&["--policy", &policy], "echo the command ran");
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "the command ran\n"), "{}", ran.stderr);
}

refused!(
    without_a_filter_of_system_calls,
    "system calls are filtered",
    Lie::Sandbox(|wanted| {
        host_config(wanted)["SecurityOpt"] =
            json!(["no-new-privileges:true", "seccomp=unconfined"]);
    })
);
refused!(
    with_the_engines_own_filter,
    "no hypervisor sockets",
    Lie::Sandbox(|wanted| {
        host_config(wanted)["SecurityOpt"] = json!(["no-new-privileges:true"]);
    })
);
refused!(
    with_new_privileges,
    "no new privileges",
    Lie::Sandbox(|wanted| {
        let options = host_config(wanted)["SecurityOpt"].as_array_mut().unwrap();
        options.retain(|option| !option.as_str().unwrap().starts_with("no-new-privileges"));
    })
);
refused!(
    with_one_more_capability,
    "no capabilities to gain",
    Lie::Sandbox(|wanted| {
        host_config(wanted)["CapDrop"] = json!([]);
    })
);
refused!(
    as_root,
    "not root",
    Lie::Sandbox(|wanted| {
        wanted["User"] = json!("0:0");
    })
);
refused!(
    with_a_writable_root,
    "the root is read-only",
    Lie::Sandbox(|wanted| {
        host_config(wanted)["ReadonlyRootfs"] = json!(false);
    })
);
refused!(
    with_the_hosts_control_groups,
    "own control group namespace",
    Lie::Sandbox(|wanted| {
        host_config(wanted)["CgroupnsMode"] = json!("host");
    })
);
refused!(
    without_a_limit_of_memory,
    "memory is limited",
    Lie::Sandbox(|wanted| {
        host_config(wanted)["Memory"] = json!(0);
        host_config(wanted)["MemorySwap"] = json!(0);
    })
);
refused!(
    without_a_limit_of_processes,
    "processes are limited",
    Lie::Sandbox(|wanted| {
        host_config(wanted)["PidsLimit"] = json!(-1);
    })
);
refused!(
    without_a_limit_of_processors,
    "processors are limited",
    Lie::Sandbox(|wanted| {
        host_config(wanted)["NanoCpus"] = json!(0);
    })
);
refused!(
    with_an_engines_socket,
    "no engine socket",
    Lie::Sandbox(|wanted| {
        let socket = json!({
            "Type": "bind", "Source": "/var/run/docker.sock", "Target": "/var/run/docker.sock"
        });
        host_config(wanted)["Mounts"].as_array_mut().unwrap().push(socket);
    })
);
refused!(
    on a network: on_the_hosts_network,
    "no network but its gateway's",
    Lie::Sandbox(|wanted| {
        host_config(wanted)["NetworkMode"] = json!("host");
        host_config(wanted)["Sysctls"] = json!({});
        host_config(wanted)["ExtraHosts"] = json!([]);
        wanted["NetworkingConfig"] = json!({});
        wanted["Hostname"] = json!("");
    })
);
refused!(
    on a network: on_a_network_where_the_host_has_an_address,
    "nobody at the next hop",
    Lie::Network(|wanted| {
        let options = wanted["Options"].as_object_mut().unwrap();
        options.retain(|name, _| name.ends_with("bridge.name"));
    })
);
refused!(
    on a network: on_a_network_that_is_not_internal,
    "nobody at the next hop",
    Lie::Network(|wanted| {
        wanted["Internal"] = json!(false);
        wanted["Options"] = json!({});
    })
);
refused!(
    on a network: with_the_hosts_name_servers,
    "names lead to the gateway",
    Lie::Sandbox(|wanted| {
        host_config(wanted)["Dns"] = json!(["192.0.2.53"]);
    })
);

/// Without a network, doors are opened where the engine says that the sandbox is. They must
/// not be opened anywhere else: the machine's own network would end there.
#[test]
fn no_doors_are_opened_in_a_network_that_is_somebody_elses() {
    for (said, lie) in [
        (
            "it is the network that this process is in",
            Lie::Sandbox(|wanted| {
                host_config(wanted)["NetworkMode"] = json!("host");
                host_config(wanted)["Sysctls"] = json!({});
                host_config(wanted)["ExtraHosts"] = json!([]);
                wanted["Hostname"] = json!("");
            }),
        ),
        (
            "and not loopback alone",
            Lie::Sandbox(|wanted| host_config(wanted)["NetworkMode"] = json!("bridge")),
        ),
    ] {
        let Some(person) = person() else { return };
        let mut person = person.attached_by("sockets");
        let engine = LyingEngine::start(lie);
        person.set("DOCKER_HOST", &engine.address());
        let policy = person.policy(NETWORK);
        let ran = person.shell(&["--policy", &policy], "echo the command ran");
        assert_eq!((ran.code, ran.stdout.as_str()), (125, ""), "{}", ran.stderr);
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
        assert_eq!(person.left_of(ran.run()), "");
        let routes = Command::new("ip").args(["route", "show", "table", "local"]).output_in_time();
        let routes = String::from_utf8(routes.unwrap().stdout).unwrap();
        assert!(!routes.contains("local default") && !routes.contains("local 0.0.0.0/0"));
    }
}
