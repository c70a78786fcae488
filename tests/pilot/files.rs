//! What can be said of the pilot's files without starting it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tests::available::{is_installed, python, skip};
use tests::boxes::{docker, image};
use tests::{CommandDeadline as _, wait_for};

use crate::pilot::{Said, can_run, clone};

/// Compose v2 follows the specification; 1.29 has a mind of its own.
#[test]
fn the_file_is_understood_by_compose_v2_and_by_1_29() {
    let folder = clone();
    if let Some(python) = python(&["check_jsonschema"]) {
        let said = Said::of(
            Command::new(python)
                .args(["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"])
                .args(["compose.yaml", "compose/private-cgroup.yaml"])
                .current_dir(&folder)
                .output_in_time()
                .unwrap(),
        );
        assert_eq!(said.code, 0, "{said:?}");
    }
    if is_installed("docker-compose") {
        let mut command = Command::new("docker-compose");
        let said =
            Said::of(command.args(["config", "-q"]).current_dir(&folder).output_in_time().unwrap());
        assert_eq!(said.code, 0, "{said:?}");
    }
}

/// Whoever starts it, by `docker compose up` or by `compose/up`, starts this file.
#[test]
fn every_service_of_the_file_is_confined_and_can_be_built() {
    let Some(file) = compose_file() else { return };
    for (name, service) in file["services"].as_object().unwrap() {
        assert_eq!(service["cap_drop"], json!(["ALL"]), "{name}");
        assert_eq!(service["read_only"], true, "{name}");
        assert_eq!(service["restart"], "no", "{name}");
        assert_eq!(service["pull_policy"], "never", "{name}");
        let options = service["security_opt"].as_array().unwrap();
        assert!(options.contains(&json!("no-new-privileges:true")), "{name}");
        assert!(!service["user"].as_str().unwrap().starts_with('0'), "{name}");
        for limit in ["mem_limit", "memswap_limit", "pids_limit"] {
            assert!(!service[limit].is_null(), "{name} has no {limit}");
        }
        for hole in ["ports", "expose", "privileged", "cap_add", "devices", "pid", "userns_mode"] {
            assert!(service[hole].is_null(), "{name} has {hole}");
        }
        let volumes = service["volumes"].to_string();
        assert!(!volumes.contains("docker.sock"), "{name}");
        let build = &service["build"];
        let dockerfile = build["dockerfile"].as_str().unwrap_or("Dockerfile");
        // The context is the clone, or a folder of its own.
        let context = clone().join(build["context"].as_str().unwrap());
        assert!(context.join(dockerfile).is_file(), "{name}: {build}");
    }
    let lists = |name: &str| file["services"][name]["security_opt"].to_string();
    assert!(lists("sandbox").contains("seccomp=compose/seccomp.json"));
    assert!(lists("gateway").contains("seccomp=compose/seccomp-gateway.json"));
    let networks = file["services"]["sandbox"]["networks"].as_object().unwrap();
    assert_eq!(networks.keys().collect::<Vec<_>>(), ["inside"]);
    assert_eq!(file["services"]["review"]["network_mode"], "none");
    assert_eq!(file["networks"]["inside"]["internal"], true);
}

/// `compose.yaml` with everything filled in that anchors stand for.
fn compose_file() -> Option<Value> {
    let python = python(&["ruamel.yaml"])?;
    let script = "import json, ruamel.yaml; \
                  print(json.dumps(ruamel.yaml.YAML(typ='safe').load(open('compose.yaml'))))";
    let read =
        Command::new(python).args(["-c", script]).current_dir(clone()).output_in_time().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    Some(serde_json::from_slice(&read.stdout).unwrap())
}

/// What a builder is sent ends up in layers and caches.
#[test]
fn neither_credentials_nor_settings_nor_history_are_sent_to_a_builder() {
    if !can_run() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    fs::copy(clone().join(".dockerignore"), home.path().join(".dockerignore")).unwrap();
    let sent = ["Cargo.lock", "compose/images/pack", "runner/src/main.rs"];
    let kept = [
        ".env",
        ".git/config",
        "compose/secrets/token",
        "compose/settings-green/policy.yaml",
        "fuzz/target/program",
        "target/program",
        "notes.txt",
    ];
    for file in sent.iter().chain(&kept) {
        let path = home.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
    fs::write(
        home.path().join("compose/Dockerfile"),
        "FROM scratch\nCOPY . /sent/\nCMD [\"/x\"]\n",
    )
    .unwrap();
    let tag = format!("sluice-test/context:{}", std::process::id());
    let mut build = Command::new("docker");
    build.args(["build", "-q", "-f", "compose/Dockerfile", "-t", &tag, "."]);
    let built = Said::of(build.current_dir(home.path()).output_in_time().unwrap());
    assert_eq!(built.code, 0, "{built:?}");
    let container = docker(&["create", &tag]);
    let list = format!("docker export {container} | tar -t");
    let listed = Said::of(Command::new("sh").args(["-c", &list]).output_in_time().unwrap());
    docker(&["rm", &container]);
    docker(&["rmi", &tag]);
    let has = |file: &str| listed.stdout.lines().any(|line| line == format!("sent/{file}"));
    for file in sent {
        assert!(has(file), "{file} is missing: {listed:?}");
    }
    for file in kept {
        assert!(!has(file), "{file} was sent");
    }
}

#[test]
fn the_gateways_image_is_the_same_bytes_every_time() {
    if !is_installed("tar") || !is_installed("sha256sum") {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_sluice-gateway-under-test");
    let pack = |file: &str| {
        let mut command = Command::new(clone().join("compose/images/pack"));
        let said =
            command.args(["gateway", program, file]).current_dir(home.path()).output_in_time();
        let said = Said::of(said.unwrap());
        assert_eq!(said.code, 0, "{said:?}");
        (said.stdout, fs::read(home.path().join(file)).unwrap())
    };
    let (first, one) = pack("one.tar");
    // Archives hold times in seconds.
    let second = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let then = second();
    wait_for("the next second", || (second() > then).then_some(()));
    let (second, two) = pack("two.tar");
    assert_eq!(first, second);
    assert!(one == two, "the archives differ");

    let unpacked = Said::of(
        Command::new("tar")
            .args(["-xf", "one.tar"])
            .current_dir(home.path())
            .output_in_time()
            .unwrap(),
    );
    assert_eq!(unpacked.code, 0, "{unpacked:?}");
    let manifest = read_json(&home.path().join("manifest.json"));
    let config = read_json(&home.path().join(manifest[0]["Config"].as_str().unwrap()));
    assert_eq!(config["config"]["User"], "65532:65532");
    for label in ["title", "version", "revision", "licenses"] {
        let label = format!("org.opencontainers.image.{label}");
        assert!(config["config"]["Labels"][&label].is_string(), "{label}");
    }
    let inside = Said::of(
        Command::new("tar")
            .args(["-tf", "layer.tar"])
            .current_dir(home.path())
            .output_in_time()
            .unwrap(),
    );
    let programs: Vec<_> = inside
        .stdout
        .lines()
        .filter(|line| !line.ends_with('/') && !line.starts_with("etc/ssl/"))
        .collect();
    assert_eq!(programs, ["sluice-gateway"], "no shell, nothing else");
}

/// For people whose images come from a builder.
#[test]
fn the_dockerfile_makes_the_same_gateway() {
    if !can_run() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let folder = clone().join("compose/images");
    fs::copy(folder.join("gateway/Dockerfile"), home.path().join("Dockerfile")).unwrap();
    let layer = home.path().join("layer.tar");
    let program = env!("CARGO_BIN_EXE_sluice-gateway-under-test");
    let mut command = Command::new(folder.join("pack"));
    let said = Said::of(command.args(["gateway", program]).arg(layer).output_in_time().unwrap());
    assert_eq!(said.code, 0, "{said:?}");
    let tag = format!("sluice-test/gateway:{}", std::process::id());
    let mut command = Command::new("docker");
    let built =
        command.args(["build", "-q", "-t", &tag]).arg(home.path()).output_in_time().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let said = docker(&["run", "--rm", "--network", "none", "--read-only", &tag, "--version"]);
    docker(&["rmi", &tag]);
    assert!(said.starts_with("sluice-gateway "), "{said}");
}

#[test]
fn both_recipes_of_the_agents_image_install_the_same() {
    let read = |name: &str| fs::read_to_string(clone().join("compose/images/agent").join(name));
    let (recipe, dockerfile) = (read("root-filesystem").unwrap(), read("Dockerfile").unwrap());
    let lists = recipe.lines().filter_map(|line| line.strip_prefix("packages="));
    let packages: Vec<&str> =
        lists.flat_map(|list| list.split(',')).filter(|name| *name != "$packages").collect();
    assert!(packages.len() > 20, "{packages:?}");
    // What every Debian image has already.
    let base = ["debianutils", "libc-bin", "base-files", "dash"];
    for package in packages.iter().filter(|name| !base.contains(name)) {
        assert!(dockerfile.split_whitespace().any(|word| word == *package), "{package}");
    }
}

/// A folder with the recipe of the agent's image, on a machine whose engine only
/// writes down what it is asked for and whose packages are two.
struct Workshop(tempfile::TempDir);

impl Workshop {
    fn new(latest_is: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("compose/images/agent");
        fs::create_dir_all(&folder).unwrap();
        fs::copy(clone().join("Cargo.toml"), home.path().join("Cargo.toml")).unwrap();
        for name in ["build", "config", "root-filesystem"] {
            fs::copy(clone().join("compose/images/agent").join(name), folder.join(name)).unwrap();
        }
        fs::write(folder.join("packages.lock"), "one 1.0 all\ntwo 2.0 all\n").unwrap();
        let workshop = Self(home);
        workshop.program(
            "docker",
            &format!(
                "[ \"$1\" != image ] || {{ {latest_is}; exit; }}; printf '%s\\n' \"$@\" >>asked"
            ),
        );
        workshop.program(
            "mmdebstrap",
            "mkdir -p var/lib/dpkg; printf 'Package: %s\\nVersion: %s\\nArchitecture: all\\n\\n' \
             one 1.0 two 2.1 >var/lib/dpkg/status; tar -c ./var",
        );
        workshop
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.0.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn build(&self, arguments: &[&str]) -> Said {
        let path = format!("{}:{}", self.0.path().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(self.0.path().join("compose/images/agent/build"));
        command.args(arguments).env("PATH", path).current_dir(self.0.path());
        Said::of(command.env_remove("SLUICE_APT_SOURCES").output_in_time().unwrap())
    }

    fn asked(&self) -> String {
        fs::read_to_string(self.0.path().join("asked")).unwrap_or_default()
    }
}

#[test]
fn packages_other_than_the_pinned_are_named_and_refused_where_that_is_asked_for() {
    let workshop = Workshop::new("false");
    let said = workshop.build(&["--pinned"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stderr.contains("1 packages are other"), "{said:?}");
    assert!(said.stderr.contains("two 2.0 all") && said.stderr.contains("two 2.1 all"), "{said:?}");
    assert_eq!(workshop.asked(), "", "nothing was made of them");

    let said = workshop.build(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stderr.contains("two 2.1 all") && workshop.asked().contains("import"), "{said:?}");

    assert_eq!(workshop.build(&["--lock"]).code, 0);
    assert_eq!(workshop.build(&["--pinned"]).code, 0, "they are the pinned ones now");
}

#[test]
fn an_image_of_your_own_is_left_alone() {
    for latest_is in ["echo '<no value>'", "echo"] {
        let workshop = Workshop::new(latest_is);
        let said = workshop.build(&[]);
        assert_eq!((said.code, said.stdout.as_str()), (0, "sluice/agent:latest"), "{said:?}");
        assert!(said.stderr.contains("of your own") && workshop.asked().is_empty(), "{said:?}");
        assert_eq!(workshop.build(&["--lock"]).code, 0);
        let asked = workshop.asked();
        assert!(asked.contains("import") && !asked.contains("latest"), "{asked}");
    }
    let workshop = Workshop::new("echo an-older-recipe");
    assert_eq!(workshop.build(&[]).code, 0);
    assert!(workshop.asked().contains("import"), "ours of another day is made anew");
}

#[test]
fn both_ways_to_build_the_agents_image_say_the_same_of_it() {
    let workshop = Workshop::new("false");
    assert_eq!(workshop.build(&[]).code, 0);
    let asked = workshop.asked();
    let mut by_script = asked.lines().skip_while(|line| *line != "--change").collect::<Vec<_>>();
    by_script.retain(|line| *line != "--change");
    let by_program = engine::image::agent::config(cli::environment::of_this_process()).unwrap();
    assert!(by_program.last().unwrap().starts_with("LABEL sluice.recipe="), "{by_program:?}");
    assert!(by_script.len() > by_program.len(), "the archive's name follows: {by_script:?}");
    for (script, program) in by_script.iter().zip(&by_program) {
        let is_revision = program.contains("image.revision");
        assert!(script == program || is_revision, "{script:?} {program:?}");
    }
    let dockerfile = fs::read_to_string(clone().join("compose/images/agent/Dockerfile")).unwrap();
    for line in by_program.iter().filter(|line| !line.contains("sluice.recipe")) {
        let word = line.trim_start_matches("LABEL ").split(['=', ' ']).next().unwrap();
        assert!(dockerfile.contains(word), "the Dockerfile has no {word}");
    }
}

/// The name leads to what it led to, and nothing half made has one.
#[test]
fn a_build_that_fails_leaves_the_image_that_was_there() {
    if !can_run() || !is_installed("mmdebstrap") {
        return;
    }
    let Some(image) = image() else { return };
    let home = tempfile::tempdir().unwrap();
    let sources = home.path().join("nowhere.list");
    fs::write(&sources, "deb [trusted=yes] file:/no/such/folder none main\n").unwrap();
    let repository = format!("sluice-test/failed-{}", std::process::id());
    let name = format!("{repository}:latest");
    docker(&["tag", image, &name]);
    let all = format!("{repository}*");
    let list = || docker(&["images", "--no-trunc", "-q", &all]);
    let before = list();
    let mut build = Command::new(env!("CARGO_BIN_EXE_sluice-under-test"));
    build.args(["image", "build", "--backend", "docker", "--name", &name]);
    let said = Said::of(build.env("SLUICE_APT_SOURCES", &sources).output_in_time().unwrap());
    let after = list();
    docker(&["rmi", &name]);
    assert!(said.code != 0 && said.stderr.contains("the recipe failed"), "{said:?}");
    assert_eq!(after, before, "{said:?}");
}

#[test]
fn a_list_of_the_agents_packages_can_be_had() {
    if !can_run() || !is_installed("mmdebstrap") {
        return;
    }
    let images = clone().join("compose/images");
    let built = Said::of(Command::new(images.join("agent/build")).output_in_time().unwrap());
    assert_eq!(built.code, 0, "{built:?}");
    let said = Said::of(Command::new(images.join("sbom")).arg("agent").output_in_time().unwrap());
    assert_eq!(said.code, 0, "{said:?}");
    let list: Value = serde_json::from_str(&said.stdout).unwrap();
    let names: Vec<&str> = list["components"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    for package in ["python3", "nodejs", "git", "curl", "libc6"] {
        assert!(names.contains(&package), "{package}: {names:?}");
    }
}

#[test]
fn a_list_of_what_is_linked_in_stands_beside_the_image() {
    if !is_installed("cargo") {
        return;
    }
    let said = Said::of(
        Command::new(clone().join("compose/images/sbom")).arg("gateway").output_in_time().unwrap(),
    );
    if said.code != 0 && said.stderr.contains("offline") {
        return skip("cargo's index");
    }
    assert_eq!(said.code, 0, "{said:?}");
    let list: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(list["bomFormat"], "CycloneDX");
    let components = list["components"].as_array().unwrap();
    let rustls = components.iter().find(|one| one["name"] == "rustls").unwrap();
    let locked = fs::read_to_string(clone().join("Cargo.lock")).unwrap();
    let version = rustls["version"].as_str().unwrap();
    assert!(locked.contains(&format!("name = \"rustls\"\nversion = \"{version}\"")), "{rustls}");
    assert!(components.iter().all(|one| one["licenses"].is_array()), "each with its licence");
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}
