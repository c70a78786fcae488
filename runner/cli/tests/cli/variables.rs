//! What a run's record says of the variables it was given.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::world::{Ran, World};

/// What `sluice run` would do, with further flags.
fn plan(world: &World, flags: &[&str]) -> Ran {
    let mut words =
        vec!["run", "--dry-run", "-o", "json", "--backend", "namespaces", "--image", "host"];
    words.extend(flags);
    words.extend(["--", "true"]);
    world.sluice(&words)
}

#[test]
fn values_of_variables_are_planned_by_a_hash_and_credentials_are_warned_about() {
    let mut world = World::new();
    world.set("MY_TOKEN", "hunter2-canary");
    let ran = plan(&world, &["-e", "MY_TOKEN", "-e", "MODE=fast-canary"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!ran.stdout.contains("canary"), "{}", ran.stdout);
    let environment = ran.json()["environment"].clone();
    let variables = environment.as_array().unwrap();
    let value = |name: &str| &variables.iter().find(|pair| pair[0] == name).unwrap()[1];
    assert_eq!(value("HOME"), "/home/agent");
    assert_eq!(value("MY_TOKEN")["hmac_sha256"].as_str().unwrap().len(), 64);
    assert!(
        ran.json()["notes"].to_string().contains("MY_TOKEN may be a credential"),
        "{}",
        ran.stdout
    );
    assert!(!ran.json()["notes"].to_string().contains("MODE"), "{}", ran.stdout);
}

#[test]
fn without_a_key_a_variable_is_recorded_by_its_name() {
    let world = World::new();
    let with = ["-e", "MODE=fast-canary"];
    plan(&world, &with);
    let key = world.state().join("keys/values");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let ran = plan(&world, &with);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!ran.stdout.contains("canary"), "{}", ran.stdout);
    assert!(ran.stdout.contains("variables are recorded by name alone"), "{}", ran.stdout);
}
