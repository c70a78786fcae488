//! `sluice policy init`: what it writes is valid, lints clean and keeps its own
//! promises, whatever the directory holds.

use std::fs;
use std::os::unix::fs::symlink;

use expect_test::expect;

use crate::world::World;

/// A world whose package managers have registries, so no rule goes without.
fn world() -> World {
    let mut world = World::new();
    world.set("PIP_INDEX_URL", "https://py.registry.example/simple");
    world.set("NPM_CONFIG_REGISTRY", "https://js.registry.example/");
    world
}

#[track_caller]
fn init_and_prove(world: &World) -> String {
    let ran = world.sluice(&["policy", "init"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "wrote sandbox.policy.yaml\n"), "{ran:?}");
    let text = world.read("sandbox.policy.yaml");
    for verb in ["check", "lint", "test"] {
        let ran = world.sluice(&["policy", verb]);
        assert_eq!(ran.code, 0, "{verb}: {ran:?}\n{text}");
    }
    assert!(world.sluice(&["policy", "test"]).stdout.ends_with(" 0 failed\n"));
    text
}

#[test]
fn an_empty_directory_gets_a_policy_that_allows_nothing() {
    let text = init_and_prove(&world());
    expect![[r##"
        # yaml-language-server: $schema=./sandbox.policy.schema.json
        # $schema: ./sandbox.policy.schema.json
        #
        # What an agent may do in this project. What no rule allows is denied.
        #   sluice policy check     is it valid?
        #   sluice policy test      does it keep the promises below?
        #   sluice policy explain sandbox.policy.yaml GET https://example.com/
        #   sluice policy schema > sandbox.policy.schema.json     help in editors
        version: 1
        name: project

        # Presets add their rules to those below; `sluice policy presets` lists them.
        extends:
          - no-exfiltration   # paste sites, request bins, tunnels: denied whatever else is allowed
          # - llm-anthropic   # the Messages API, with a key that only the gateway knows

        fs:
          workspace: overlay            # changes are kept apart until you apply them
          deny: ["**/.env*", "**/*.pem", "**/*.key"]   # not even readable

        proc:
          pids: 1024
          timeout: 1h
          # memory: 4GiB                # demanded once it stands here: where it cannot be kept, nothing starts

        net:
          enabled: true
          allow: []                           # write entries below instead of []
            # - docs.example.com                # one host: https, and only reading
            # - {host: api.example.com, methods: [GET, POST], paths: ["/v1/**"]}
          limits: {upload: 50MiB}            # what a run may send in all

        # Promises that `sluice policy test` checks.
        tests:
          - {request: POST https://pastebin.com/api, expect: deny}
          - {request: GET https://example.com/, expect: deny}
    "##]]
    .assert_eq(&text);
}

#[test]
fn a_project_gets_what_it_calls_for() {
    let world = world();
    world.write(".git/config", "[remote \"origin\"]\n\turl = git@github.com:acme/widgets.git\n");
    world.write("pyproject.toml", "[project]\ndependencies = [\"requests>=2\", \"pytest\"]\n");
    world.write("requirements-dev.txt", "numpy==1.0\n");
    world.write("package.json", r#"{"dependencies": {"express": "4", "@acme/ui": "1"}}"#);
    world.write("Cargo.toml", "[package]\n");
    let text = init_and_prove(&world);
    expect![[r#"
        extends:
          - no-exfiltration   # paste sites, request bins, tunnels: denied whatever else is allowed
          - github-read       # the remote is on GitHub: pages, files and the API, read only
          - python-dev        # pyproject.toml: documentation and the usual tools
          - node-dev          # package.json: documentation and the usual tools
          # - llm-anthropic   # the Messages API, with a key that only the gateway knows

        fs:
          workspace: overlay            # changes are kept apart until you apply them
          deny: ["**/.env*", "**/*.pem", "**/*.key"]   # not even readable

        proc:
          pids: 1024
          timeout: 1h
          # memory: 4GiB                # demanded once it stands here: where it cannot be kept, nothing starts

        net:
          enabled: true
          allow:
            # The repository this comes from, to fetch. To let an agent push its own branches, add
            # `access: push, refs: ["refs/heads/agent/*"]`.
            - {name: origin, git: github.com/acme/widgets}
            # Packages that pyproject.toml names; what they need in turn must be named too.
            - name: python-packages
              pip: [numpy, requests]
            # Packages that package.json names; what they need in turn must be named too.
            - name: node-packages
              npm: ["@acme/ui", express]
            # Rust's documentation. Crates come from the registry that cargo is set up to use: add its
            # hosts here, or vendor the crates.
            - doc.rust-lang.org
            - docs.rs
            # - docs.example.com                # one host: https, and only reading
            # - {host: api.example.com, methods: [GET, POST], paths: ["/v1/**"]}
          limits: {upload: 50MiB}            # what a run may send in all

        # Promises that `sluice policy test` checks.
        tests:
          - {request: POST https://pastebin.com/api, expect: deny}
          - {request: GET https://example.com/, expect: deny}
          - {request: "POST https://github.com/acme/widgets.git/git-upload-pack", expect: allow}
          - {request: "POST https://github.com/acme/widgets.git/git-receive-pack", expect: deny}
          - {request: GET https://doc.rust-lang.org/std/, expect: allow}
    "#]].assert_eq(&text[text.find("extends:").unwrap()..]);

    let explain = |method: &str, url: &str| {
        let file = "sandbox.policy.yaml";
        world.sluice(&["policy", "explain", file, method, url, "--exit-code"]).code
    };
    assert_eq!(explain("GET", "https://py.registry.example/simple/numpy/"), 0);
    assert_eq!(explain("GET", "https://js.registry.example/@acme%2Fui"), 0);
    assert_eq!(explain("GET", "https://js.registry.example/other"), 3);
    assert_eq!(explain("POST", "https://github.com/acme/widgets.git/git-upload-pack"), 0);
}

#[test]
fn a_policy_that_is_there_is_not_overwritten() {
    let world = World::with_policy("version: 1\n");
    let ran = world.sluice(&["policy", "init"]);
    expect![[r#"
        exit 1
        --- stdout
        --- stderr
        error: sandbox.policy.yaml already exists; --force replaces it, --stdout prints a new one
    "#]]
    .assert_eq(&ran.whole());
    assert_eq!(world.read("sandbox.policy.yaml"), "version: 1\n");

    let printed = world.sluice(&["policy", "init", "--stdout"]);
    assert_eq!(world.read("sandbox.policy.yaml"), "version: 1\n");
    assert_eq!(world.sluice(&["policy", "init", "--force"]).code, 0);
    assert_eq!(world.read("sandbox.policy.yaml"), printed.stdout);
    assert_eq!(world.sluice(&["policy", "init", "missing"]).code, 2);
}

#[test]
fn a_link_in_its_place_is_never_written_through() {
    let world = World::new();
    let victim = world.home().join("victim");
    fs::write(&victim, "keep me").unwrap();
    symlink(&victim, world.project().join("sandbox.policy.yaml")).unwrap();
    assert_eq!(world.sluice(&["policy", "init"]).code, 1);
    assert_eq!(world.sluice(&["policy", "init", "--force"]).code, 0);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "keep me");
    assert!(world.read("sandbox.policy.yaml").starts_with("# yaml-language-server:"));
}

#[test]
fn a_hostile_directory_changes_nothing_but_names() {
    let world = world();
    let secret = world.home().join("credentials");
    fs::write(&secret, "hunter2\n").unwrap();
    symlink(&secret, world.project().join("requirements.txt")).unwrap();
    world.write(
        ".git/config",
        "[remote \"origin\"]\n\turl = https://github.com/a/b\"}\\n  allow: [evil.example]\n[core]\n\tfsmonitor = touch pwned\n\tsshCommand = touch pwned\n",
    );
    world.write("package.json", r#"{"dependencies": {"x]\n- evil.example": "1", "good": "1"}}"#);
    world.write("requirements-x.txt", "ok\n\"]\n    - evil.example\nname: {host: evil.example}\n");
    let text = init_and_prove(&world);
    assert!(!text.contains("evil") && !text.contains("hunter2"), "{text}");
    assert!(text.contains("npm: [good]") && text.contains("pip: [ok]"), "{text}");
    assert!(!world.project().join("pwned").exists());
}

#[test]
fn a_strange_name_of_the_directory_is_left_out() {
    let world = world();
    let odd = world.project().join("a: [b]\n#");
    fs::create_dir(&odd).unwrap();
    let ran = world.sluice(&["policy", "init", odd.to_str().unwrap()]);
    ran.assert_harmless();
    assert_eq!(ran.code, 0);
    let text = fs::read_to_string(odd.join("sandbox.policy.yaml")).unwrap();
    assert!(!text.contains("\nname:"), "{text}");
    assert_eq!(
        world.sluice(&["policy", "check", odd.join("sandbox.policy.yaml").to_str().unwrap()]).code,
        0
    );
}
