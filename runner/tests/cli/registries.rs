//! Where packages come from is the machine's word, never the project's.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::world::World;

const POLICY: &str =
    "version: 1\nnet:\n  enabled: true\n  allow: [{pip: [requests]}, {npm: [left-pad]}]\n";

fn allowed(world: &World, url: &str) -> bool {
    let file = "sandbox.policy.yaml";
    let ran = world.sluice(&["policy", "explain", file, "GET", url, "--exit-code"]);
    assert!(matches!(ran.code, 0 | 3), "{ran:?}");
    ran.code == 0
}

#[test]
fn settings_of_the_user_and_the_environment_count() {
    let mut world = World::with_policy(POLICY);
    assert!(!allowed(&world, "https://js.registry.example/left-pad"));
    fs::write(world.home().join(".npmrc"), "registry=https://js.registry.example/\n").unwrap();
    assert!(allowed(&world, "https://js.registry.example/left-pad"));
    world.set("PIP_INDEX_URL", "https://user:pw@py.registry.example/simple");
    assert!(allowed(&world, "https://py.registry.example/simple/requests/"));
}

#[test]
fn settings_of_the_project_do_not() {
    let world = World::with_policy(POLICY);
    world.write(".npmrc", "registry=https://evil.example/\n");
    world.write("pip.conf", "[global]\nindex-url=https://evil.example/\n");
    assert!(!allowed(&world, "https://evil.example/left-pad"));
    assert!(!allowed(&world, "https://evil.example/requests/"));
}

#[test]
fn programs_of_the_project_are_not_run() {
    let mut world = World::with_policy(POLICY);
    for tool in ["npm", "python3"] {
        world.write(&format!("bin/{tool}"), "#!/bin/sh\necho https://evil.example/\n");
        let path = world.project().join("bin").join(tool);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let inside = world.project().join("bin");
    world.set("PATH", &format!("bin:{}", inside.display()));
    assert!(!allowed(&world, "https://evil.example/left-pad"));

    // The very same program outside of the project is the machine's.
    let outside = world.home().join("bin");
    fs::rename(inside, &outside).unwrap();
    world.set("PATH", outside.to_str().unwrap());
    assert!(allowed(&world, "https://evil.example/left-pad"));
}
