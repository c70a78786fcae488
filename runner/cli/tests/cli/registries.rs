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
fn a_default_is_read_from_what_is_installed_outside_of_the_project() {
    let mut world = World::with_policy(POLICY);
    let index =
        "\nPyPI = PackageIndex(\"https://py.example/\", file_storage_domain=\"f.example\")\n";
    let path = "lib/python3.1/site-packages/pip/_internal/models/index.py";
    world.write(&format!("tools/{path}"), index);
    world.set("PATH", world.project().join("tools/bin").to_str().unwrap());
    assert!(!allowed(&world, "https://py.example/simple/requests/"));

    // The very same files outside of the project are the machine's.
    fs::rename(world.project().join("tools"), world.home().join("tools")).unwrap();
    world.set("PATH", world.home().join("tools/bin").to_str().unwrap());
    assert!(allowed(&world, "https://py.example/simple/requests/"));
    assert!(allowed(&world, "https://f.example/a/requests-1.0-py3-none-any.whl"));
    assert!(!allowed(&world, "https://f.example/a/evil-1.0-py3-none-any.whl"));
}

const DRY_RUN: [&str; 8] =
    ["run", "--dry-run", "--backend", "namespaces", "--image", "host", "--", "true"];

#[test]
fn no_program_is_started_for_a_run() {
    let mut world = World::with_policy(POLICY);
    let (bin, sang) = (world.home().join("bin"), world.home().join("sang"));
    fs::create_dir(&bin).unwrap();
    let canary = format!("#!/bin/sh\necho \"$0\" >> {}\n", sang.display());
    for name in ["pip", "pip3", "python", "python3", "npm", "node", "git", "uv", "yarn", "sh"] {
        fs::write(bin.join(name), &canary).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    world.set("PATH", bin.to_str().unwrap());
    for _ in 0..2 {
        let ran = world.sluice(&DRY_RUN);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(!sang.exists(), "{}", fs::read_to_string(&sang).unwrap());
        // With registries that somebody set, too.
        world.set("PIP_INDEX_URL", "https://py.registry.example/simple");
        world.set("NPM_CONFIG_REGISTRY", "https://js.registry.example/");
    }
    std::process::Command::new(bin.join("pip")).status().unwrap();
    assert!(sang.exists(), "a canary that is started sings");
}

#[test]
fn a_run_says_what_to_write_where_an_index_keeps_its_files_elsewhere() {
    let mut world = World::with_policy(POLICY);
    world.set("PIP_INDEX_URL", "https://py.registry.example/simple");
    let ran = world.sluice(&DRY_RUN);
    let told = ran.stdout + &ran.stderr;
    assert!(told.contains("write `files: [https://...]` in the pip rule"), "{told}");
}
